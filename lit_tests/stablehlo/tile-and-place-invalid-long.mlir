// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --narrow-integers=arguments=0 --stablehlo-to-linalg=compare --tile-and-place --verify-diagnostics %s

func.func @long(%a: tensor<8xf32>, %i: tensor<i64>) -> tensor<2xf32> {
  // expected-error@+1 {{a choice or an index of type i64 in a graph as engine instructions is not supported}}
  %0 = stablehlo.dynamic_slice %a, %i, sizes = [2] : (tensor<8xf32>, tensor<i64>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
