// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --lower-to-isa --split-input-file --verify-diagnostics %s

func.func @sorted(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "stablehlo.sort"(%a) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    // expected-error@+1 {{'stablehlo.exponential' in the comparison of a sort as engine instructions is not supported}}
    %2 = stablehlo.exponential %x : tensor<f32>
    %1 = stablehlo.compare LT, %2, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
