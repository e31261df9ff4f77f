// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg=compare=1 %s | FileCheck %s

// Two searches, each by the upper and by the lower half of integers, then for the first position.
// CHECK-LABEL: func.func @two(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x64xi32, "hbm">
// CHECK:           "scalar.alu"({{.*}}) {fn = "arith_shift_right"}
// CHECK:           "scalar.alu"({{.*}}) {fn = "bitwise_and"}
// CHECK:         linalg.generic {{.*}} "reduction"]} {{.*}} outs(%[[HIGH:.*]] :
// CHECK:           "scalar.alu"({{.*}}) {fn = "maximum"}
// CHECK:         linalg.generic {{.*}} "reduction"]} {{.*}} outs(%[[LOW:.*]] :
// CHECK:           "scalar.alu"({{.*}}) {fn = "maximum"}
// CHECK:         linalg.generic {{.*}} "reduction"]} {{.*}} outs(%[[PLACE:.*]] :
// CHECK:           "scalar.alu"({{.*}}) {fn = "minimum"}
// CHECK:           "scalar.alu"({{.*}}) {fn = "maximum"}
// CHECK:           "scalar.alu"({{.*}}) {fn = "maximum"}
// CHECK:           "scalar.alu"({{.*}}) {fn = "minimum"}
// CHECK-NOT:     fn = "minimum"
// CHECK:         return
func.func @two(%x: tensor<8x64xi32>) -> (tensor<8x2xi32>, tensor<8x2xi32>) {
  %v, %p = chlo.top_k(%x, k = 2) : tensor<8x64xi32> -> (tensor<8x2xi32>, tensor<8x2xi32>)
  return %v, %p : tensor<8x2xi32>, tensor<8x2xi32>
}
