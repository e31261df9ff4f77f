// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --tile-and-place %s | FileCheck %s

// The tile of the sum is read as integers; nothing passes through HBM.
// CHECK-LABEL: func.func @bits(
// CHECK:           linalg.yield
// CHECK:         %[[SUM:.*]] = "nki.view"(%[[TILE:[a-z0-9_]+]]) {access = #nki.access<f32,
// CHECK:         linalg.generic {{.*}} outs(%[[SUM]] :
// CHECK:           "scalar.alu"({{.*}}) {fn = "add"}
// CHECK:         %[[BITS:.*]] = "nki.view"(%[[TILE]]) {access = #nki.access<i32, {{.*}} -> memref<8x16xi32,
// CHECK-NOT:     "hbm"
// CHECK:         linalg.generic {{.*}} ins(%[[BITS]] : memref<8x16xi32,
// CHECK:           "scalar.alu"({{.*}}) {fn = "bitwise_xor"}
func.func @bits(%x: tensor<8x16xf32>) -> tensor<8x16xi32> {
  %0 = stablehlo.add %x, %x : tensor<8x16xf32>
  %1 = stablehlo.bitcast_convert %0 : (tensor<8x16xf32>) -> tensor<8x16xi32>
  %2 = stablehlo.not %1 : tensor<8x16xi32>
  return %2 : tensor<8x16xi32>
}
