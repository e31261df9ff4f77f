// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ReLU and its gradient: element by element on one core, and by blocks on one core or several.
#include <neuron/neuron-utils.hpp>
#include <torch/torch.h>

#include <algorithm>

// Every access goes to the device's memory: short to write, and slow.
torch::Tensor relu_elements(const torch::Tensor& x) {
  torch::Tensor y = torch::empty(x.sizes(), torch::kFloat);
  auto from = x.accessor<float, 2>();
  auto to = y.accessor<float, 2>();
  for (int64_t i = 0; i < x.size(0); i++) {
    for (int64_t j = 0; j < x.size(1); j++) to[i][j] = std::max(from[i][j], 0.f);
  }
  return y;
}

namespace {

constexpr size_t BLOCK = 1024;              // elements; three blocks of 4 KB fit the pool of 16 KB

struct Part {                               // of a flat tensor, for this core
  size_t begin, end;
};

Part part_of(size_t total) {
  const size_t count = get_cpu_count(), size = (total + count - 1) / count, begin = std::min(total, size * get_cpu_id());
  return {begin, std::min(total, begin + size)};
}

float* allocate() { return static_cast<float*>(torch::neuron::tcm_malloc(BLOCK * sizeof(float))); }

}  // namespace

torch::Tensor relu_forward(const torch::Tensor& x) {
  torch::Tensor y = get_dst_tensor();
  auto from = x.tcm_accessor();
  auto to = y.tcm_accessor();
  float* block = allocate();
  const Part part = part_of(x.numel());
  for (size_t i = part.begin; i < part.end; i += BLOCK) {
    const size_t n = std::min(BLOCK, part.end - i);
    from.tensor_to_tcm<float>(block, i, n);
    for (size_t k = 0; k < n; k++) block[k] = std::max(block[k], 0.f);
    to.tcm_to_tensor<float>(block, i, n);
  }
  torch::neuron::tcm_free(block);
  return y;
}

torch::Tensor relu_backward(const torch::Tensor& gradient, const torch::Tensor& x) {
  torch::Tensor y = get_dst_tensor();
  auto from_gradient = gradient.tcm_accessor();
  auto from_x = x.tcm_accessor();
  auto to = y.tcm_accessor();
  float *block = allocate(), *values = allocate();
  const Part part = part_of(x.numel());
  for (size_t i = part.begin; i < part.end; i += BLOCK) {
    const size_t n = std::min(BLOCK, part.end - i);
    from_gradient.tensor_to_tcm<float>(block, i, n);
    from_x.tensor_to_tcm<float>(values, i, n);
    for (size_t k = 0; k < n; k++) block[k] = values[k] > 0.f ? block[k] : 0.f;
    to.tcm_to_tensor<float>(block, i, n);
  }
  torch::neuron::tcm_free(block);
  torch::neuron::tcm_free(values);
  return y;
}
