// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Generalized intersection over union of box pairs, rows of boxes spread over the cores.
#include <neuron/neuron-utils.hpp>
#include <torch/torch.h>

#include <algorithm>

constexpr float SMALL = 1e-5f;

static float giou_of(const float* a, const float* b) {          // boxes (left, top, right, bottom)
  const float area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]);
  const float width = std::max(std::min(a[2], b[2]) - std::max(a[0], b[0]), 0.f);
  const float height = std::max(std::min(a[3], b[3]) - std::max(a[1], b[1]), 0.f);
  const float common = width * height, united = area - common;
  const float around_width = std::max(a[2], b[2]) - std::min(a[0], b[0]);
  const float around_height = std::max(a[3], b[3]) - std::min(a[1], b[1]);
  const float around = around_width * around_height;
  return common / std::max(united, SMALL) - (around - united) / std::max(around, SMALL);
}

// first, second [N, M, 4]; the result [N, M].
torch::Tensor giou(const torch::Tensor& first, const torch::Tensor& second) {
  const size_t rows = first.size(0), boxes = first.size(1);
  torch::Tensor result = get_dst_tensor();
  auto from_first = first.tcm_accessor();
  auto from_second = second.tcm_accessor();
  auto to = result.tcm_accessor();
  float* a = static_cast<float*>(torch::neuron::tcm_malloc(boxes * 4 * sizeof(float)));
  float* b = static_cast<float*>(torch::neuron::tcm_malloc(boxes * 4 * sizeof(float)));
  float* values = static_cast<float*>(torch::neuron::tcm_malloc(boxes * sizeof(float)));
  TORCH_CHECK(a && b && values, "a row of ", boxes, " boxes does not fit tightly coupled memory");
  for (size_t row = get_cpu_id(); row < rows; row += get_cpu_count()) {
    from_first.tensor_to_tcm<float>(a, row * boxes * 4, boxes * 4);
    from_second.tensor_to_tcm<float>(b, row * boxes * 4, boxes * 4);
    for (size_t i = 0; i < boxes; i++) values[i] = giou_of(a + 4 * i, b + 4 * i);
    to.tcm_to_tensor<float>(values, row * boxes, boxes);
  }
  for (float* block : {a, b, values}) torch::neuron::tcm_free(block);
  return result;
}
