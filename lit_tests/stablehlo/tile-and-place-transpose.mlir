// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="transpose=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// The second fold needs the columns of a tile that is on chip: a transpose brings them there.
// BEFORE-LABEL:  func.func @both(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_1:.*]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]] : memref<64x32xf32, {{.*}}"sbuf">) outs(%[[TILE_1]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_1]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<32x64xf32, strided<[1, 32]>, "hbm">) outs(%[[TILE_2:.*]] : memref<32x64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_3:.*]] : memref<32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_2]] : memref<32x64xf32, {{.*}}"sbuf">) outs(%[[TILE_3]] : memref<32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]] : memref<32xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<32xf32, {{.*}}"hbm">)
// BEFORE-NOT:    linalg.generic
// BEFORE:        return
// CHECK-LABEL:   func.func @both(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_1:.*]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_0]] : memref<64x32xf32, {{.*}}"sbuf">) outs(%[[TILE_1]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_1]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_2:.*]] : memref<64x32xf32, {{.*}}"sbuf">) outs(%[[TILE_3:.*]] : memref<32x64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_4:.*]] : memref<32xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_3]] : memref<32x64xf32, {{.*}}"sbuf">) outs(%[[TILE_4]] : memref<32xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_4]] : memref<32xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<32xf32, {{.*}}"hbm">)
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @both(%a: tensor<64x32xf32>) -> (tensor<64xf32>, tensor<32xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : (tensor<64x32xf32>, tensor<f32>) -> tensor<64xf32>
  %1 = stablehlo.reduce(%a init: %z) applies stablehlo.maximum across dimensions = [0] : (tensor<64x32xf32>, tensor<f32>) -> tensor<32xf32>
  return %0, %1 : tensor<64xf32>, tensor<32xf32>
}
