// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="later-rows=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// The queries of the second head are in partitions 64 to 127. An engine copies them to the first ones.
// BEFORE-LABEL: func.func @heads(
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<64x1xf32, strided<[1, 1], offset: 64>, "hbm">) outs(%{{.*}} : memref<64x1xf32, {{.*}}"sbuf">)
// CHECK-LABEL:  func.func @heads(
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x1xf32, strided<[1, 1], offset: 64>, "sbuf">) outs(%[[QUERIES:.*]] : memref<64x1xf32, {{.*}}"sbuf">)
// CHECK:        linalg.generic {{.*}} ins(%{{.*}}, %[[QUERIES]] :
// CHECK-NOT:    memref<64x1xf32, strided<[1, 1], offset: 64>, "hbm">
func.func @heads(%x: tensor<1x64xf32>, %w: tensor<64x128xf32>, %keys: tensor<2x64x256xf32>) -> tensor<2x1x256xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<1x64xf32>, tensor<64x128xf32>) -> tensor<1x128xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x128xf32>) -> tensor<2x1x64xf32>
  %2 = stablehlo.dot_general %1, %keys, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x1x64xf32>, tensor<2x64x256xf32>) -> tensor<2x1x256xf32>
  return %2 : tensor<2x1x256xf32>
}
