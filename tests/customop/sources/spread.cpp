// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels for several cores: which core writes what, and in which order they run.
#include <neuron/neuron-utils.hpp>
#include <torch/torch.h>

#include <atomic>

static std::atomic<int> next{0};

// Each core writes its part: the input, with the core's number and its place in the order added.
torch::Tensor spread(torch::Tensor x, int64_t in_order) {
  torch::Tensor y = get_dst_tensor();
  const size_t total = x.numel(), count = get_cpu_count(), id = get_cpu_id(), part = (total + count - 1) / count;
  const size_t begin = std::min(total, part * id), end = std::min(total, begin + part), chunk = 100;
  const float added = in_order ? static_cast<float>(next++ % 8) : static_cast<float>(id);
  float* buffer = static_cast<float*>(torch::neuron::tcm_malloc(chunk * sizeof(float)));
  auto from = x.tcm_accessor(), to = y.tcm_accessor();
  for (size_t i = begin; i < end; i += chunk) {
    const size_t n = std::min(chunk, end - i);
    from.tensor_to_tcm<float>(buffer, i, n);
    for (size_t k = 0; k < n; k++) buffer[k] += 1000 * added;
    to.tcm_to_tensor<float>(buffer, i, n);
  }
  torch::neuron::tcm_free(buffer);
  return y;
}
