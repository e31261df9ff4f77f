// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Factories and elementwise functions. Operands have one shape: these functions do not broadcast. Dtypes are promoted as in PyTorch.
#pragma once
#include <gpsimd/tensor.h>

namespace torch {

#define GPSIMD_AT gpsimd::Place at = gpsimd::here()

Tensor empty(IntArrayRef size, TensorOptions options, GPSIMD_AT);
Tensor full(IntArrayRef size, const Scalar& value, TensorOptions options, GPSIMD_AT);
Tensor zeros(IntArrayRef size, TensorOptions options, GPSIMD_AT);
Tensor ones(IntArrayRef size, TensorOptions options, GPSIMD_AT);
Tensor eye(int64_t n, int64_t m, TensorOptions options, GPSIMD_AT);

#define GPSIMD_UNARY(name)                    \
  Tensor name(const Tensor& self, GPSIMD_AT); \
  Tensor& name##_out(Tensor& result, const Tensor& self, GPSIMD_AT);
GPSIMD_UNARY(abs) GPSIMD_UNARY(ceil) GPSIMD_UNARY(floor) GPSIMD_UNARY(sin) GPSIMD_UNARY(cos) GPSIMD_UNARY(tan)
GPSIMD_UNARY(log) GPSIMD_UNARY(log2) GPSIMD_UNARY(log10) GPSIMD_UNARY(exp) GPSIMD_UNARY(bitwise_not)
#undef GPSIMD_UNARY

#define GPSIMD_BINARY(name, Left, Right)                         \
  Tensor name(const Left& self, const Right& other, GPSIMD_AT); \
  Tensor& name##_out(Tensor& result, const Left& self, const Right& other, GPSIMD_AT);
GPSIMD_BINARY(pow, Tensor, Scalar) GPSIMD_BINARY(pow, Scalar, Tensor) GPSIMD_BINARY(pow, Tensor, Tensor)
GPSIMD_BINARY(mul, Tensor, Scalar) GPSIMD_BINARY(mul, Tensor, Tensor)
GPSIMD_BINARY(div, Tensor, Scalar) GPSIMD_BINARY(div, Tensor, Tensor)
GPSIMD_BINARY(bitwise_and, Tensor, Scalar) GPSIMD_BINARY(bitwise_and, Scalar, Tensor)
GPSIMD_BINARY(bitwise_and, Tensor, Tensor)
GPSIMD_BINARY(bitwise_or, Tensor, Scalar) GPSIMD_BINARY(bitwise_or, Scalar, Tensor)
GPSIMD_BINARY(bitwise_or, Tensor, Tensor)
#undef GPSIMD_BINARY

#define GPSIMD_SCALED(name, Right)                                                            \
  Tensor name(const Tensor& self, const Right& other, const Scalar& alpha = 1, GPSIMD_AT);   \
  Tensor& name##_out(Tensor& result, const Tensor& self, const Right& other, const Scalar& alpha = 1, GPSIMD_AT);
GPSIMD_SCALED(add, Scalar) GPSIMD_SCALED(add, Tensor) GPSIMD_SCALED(sub, Scalar) GPSIMD_SCALED(sub, Tensor)
#undef GPSIMD_SCALED

Tensor clamp(const Tensor& self, const Scalar& min, const Scalar& max, GPSIMD_AT);
Tensor& clamp_out(Tensor& result, const Tensor& self, const Scalar& min, const Scalar& max, GPSIMD_AT);

#undef GPSIMD_AT

}  // namespace torch
