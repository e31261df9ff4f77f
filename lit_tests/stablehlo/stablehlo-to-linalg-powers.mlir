// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg %s | FileCheck %s

// A power of integers becomes products of squares, without a loop for each element: x^5 is x times (x^2)^2. A barrier
// of optimizations computes nothing.
// CHECK-LABEL: func.func @main(
// CHECK:         linalg.generic {{.*}} ins(%[[A:.*]] : memref<4x6xi32, "hbm">) outs(%[[R:.*]] : memref<4x6xi32, "hbm">)
// CHECK-NEXT:    (%[[X:.*]]: i32, %{{.*}}: i32):
// CHECK-NEXT:      %[[SQUARE:.*]] = "scalar.alu"(%[[X]], %[[X]]) {fn = "multiply"} : (i32, i32) -> i32
// CHECK-NEXT:      %[[FOURTH:.*]] = "scalar.alu"(%[[SQUARE]], %[[SQUARE]]) {fn = "multiply"} : (i32, i32) -> i32
// CHECK-NEXT:      %[[FIFTH:.*]] = "scalar.alu"(%[[X]], %[[FOURTH]]) {fn = "multiply"} : (i32, i32) -> i32
// CHECK-NEXT:      linalg.yield %[[FIFTH]] : i32
// CHECK-NEXT:    }
// CHECK-NEXT:    return
func.func @main(%a: tensor<4x6xi32>) -> tensor<4x6xi32> {
  %five = stablehlo.constant dense<5> : tensor<4x6xi32>
  %x = stablehlo.optimization_barrier %a : tensor<4x6xi32>
  %0 = stablehlo.power %x, %five : tensor<4x6xi32>
  return %0 : tensor<4x6xi32>
}
