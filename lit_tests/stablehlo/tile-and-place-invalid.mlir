// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --lower-to-isa --split-input-file --verify-diagnostics %s

func.func @sorted(%a: tensor<8xi32>) -> tensor<8xi32> {
  %0 = "stablehlo.sort"(%a) ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    // expected-error@+1 {{'stablehlo.count_leading_zeros' in the comparison of a sort as engine instructions is not supported}}
    %2 = stablehlo.count_leading_zeros %x : tensor<i32>
    %1 = stablehlo.compare LT, %2, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<8xi32>) -> tensor<8xi32>
  return %0 : tensor<8xi32>
}
