// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="parts=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// The second fold reads half of the columns from the tile of the first one.
// BEFORE-LABEL:  func.func @half(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_1:.*]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]] : memref<64x32xf32, {{.*}}"sbuf">) outs(%[[TILE_1]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_1]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, strided<[32, 1], offset: 16>, "hbm">) outs(%[[TILE_2:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_3:.*]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_2]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_3]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// BEFORE-NOT:    linalg.generic
// BEFORE:        return
// CHECK-LABEL:   func.func @half(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_1:.*]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_0]] : memref<64x32xf32, {{.*}}"sbuf">) outs(%[[TILE_1]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_1]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_2:.*]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_3:.*]] : memref<64x16xf32, strided<[32, 1], offset: 16>, "sbuf">) outs(%[[TILE_2]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_2]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @half(%a: tensor<64x32xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : (tensor<64x32xf32>, tensor<f32>) -> tensor<64xf32>
  %1 = stablehlo.slice %a [0:64, 16:32] : (tensor<64x32xf32>) -> tensor<64x16xf32>
  %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.maximum across dimensions = [1] : (tensor<64x16xf32>, tensor<f32>) -> tensor<64xf32>
  return %0, %2 : tensor<64xf32>, tensor<64xf32>
}
