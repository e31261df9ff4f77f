// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/torch.h>
#include "torchneuron/register.h"
#include <neuron/neuron-utils.hpp>

torch::Tensor same(torch::Tensor x) { return torch::zeros(x.sizes(), torch::kFloat); }
torch::Tensor same_which(torch::Tensor x, int64_t which) { return same(x); }

torch::Tensor bad_shape(torch::Tensor x, int64_t which) {
  if (which == 0) x.accessor<float, 2>();  // shape-data
  if (which == 1) torch::neuron::tcm_malloc(8);  // tcm-in-shape
  if (which == 2) get_dst_tensor();  // dst-in-shape
  if (which == 3) TORCH_CHECK(x.size(0) == 3, "three rows, please");  // check
  if (which == 4) torch::exp(x);  // shape-data (exp)
  return same(x);
}

NEURON_LIBRARY(faulty, m) {
  m.def("misuse", &same_which, "misuse");
  m.def("throws", &same, "throws");
  m.def("throws_a_number", &same, "throws_a_number");
  m.def("cores", &same_which, "cores");
  m.def("bad_shape", &bad_shape, "misuse");
}
