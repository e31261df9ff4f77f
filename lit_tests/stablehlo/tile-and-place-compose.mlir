// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="compose=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// The fold reads two tiles of results as one, which is copied together from them. Nothing stores these results.
// BEFORE-LABEL:  func.func @joined(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_1:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_1]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64x16xf32, strided<[32, 1]>, "hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, {{.*}}"hbm">) outs(%[[TILE_2:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_2]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_3:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64x16xf32, strided<[32, 1], offset: 16>, "hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, {{.*}}"hbm">) outs(%[[TILE_4:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_5:.*]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_4]] : memref<64x32xf32, {{.*}}"sbuf">) outs(%[[TILE_5]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_5]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// BEFORE-NOT:    linalg.generic
// BEFORE:        return
// CHECK-LABEL:   func.func @joined(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_0]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_1:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, {{.*}}"hbm">) outs(%[[TILE_2:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_2]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_3:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_4:.*]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_5:.*]] : memref<64x16xf32, strided<[32, 1]>, "sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_6:.*]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_7:.*]] : memref<64x16xf32, strided<[32, 1], offset: 16>, "sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_8:.*]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_9:.*]] : memref<64x32xf32, {{.*}}"sbuf">) outs(%[[TILE_8]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_8]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @joined(%a: tensor<64x16xf32>, %b: tensor<64x16xf32>) -> tensor<64xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.exponential %a : tensor<64x16xf32>
  %1 = stablehlo.exponential %b : tensor<64x16xf32>
  %2 = stablehlo.concatenate %0, %1, dim = 1 : (tensor<64x16xf32>, tensor<64x16xf32>) -> tensor<64x32xf32>
  %3 = stablehlo.reduce(%2 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<64x32xf32>, tensor<f32>) -> tensor<64xf32>
  return %3 : tensor<64xf32>
}
