// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/torch.h>

#include "torchneuron/register.h"

using torch::Scalar;
using torch::ScalarType;
using torch::Tensor;

static Tensor like(const Tensor& x, int64_t dtype) { return torch::zeros(x.sizes(), static_cast<ScalarType>(dtype)); }
Tensor unary_shape(Tensor x, int64_t, int64_t dtype, int64_t) { return like(x, dtype); }
Tensor binary_shape(Tensor x, Tensor, int64_t, int64_t dtype, int64_t) { return like(x, dtype); }
Tensor with_scalar_shape(Tensor x, Scalar, int64_t, int64_t dtype, int64_t) { return like(x, dtype); }
Tensor factory_shape(int64_t, int64_t dtype) { return torch::empty({3, 4}, static_cast<ScalarType>(dtype)); }
Tensor cast_shape(Tensor x, int64_t dtype) { return like(x, dtype); }
Tensor same(Tensor x) { return torch::zeros(x.sizes(), torch::kFloat); }
Tensor numbers_shape(Tensor, const Scalar&, double, int64_t) { return torch::zeros(std::vector<int64_t>{4}, torch::kFloat); }
Tensor speak_shape(Tensor x, int64_t) { return same(x); }

NEURON_LIBRARY(api, m) {
  m.def("unary", &unary_shape, "unary");
  m.def("binary", &binary_shape, "binary");
  m.def("with_scalar", &with_scalar_shape, "with_scalar");
  m.def("factory", &factory_shape, "factory");
  m.def("cast", &cast_shape, "cast");
  m.def("streamed", &same, "streamed");
  m.def("pool", &same, "pool");
  m.def("numbers", &numbers_shape, "numbers");
  m.def("speak", &speak_shape, "speak");
}
