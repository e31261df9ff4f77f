// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="vectors=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// Each row times a row: one instruction of the vector engine instead of 96 products with one column.
// BEFORE-LABEL:  func.func @dots(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x1xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x1xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x1xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<64x1xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_2:.*]] : memref<1x1xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<64x1xf32, {{.*}}"sbuf">, memref<64x1xf32, {{.*}}"sbuf">) outs(%[[SUM_2]] : memref<1x1xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[SUM_2]] : memref<1x1xf32, {{.*}}"psum">) outs(%[[TILE_3:.*]] : memref<1x1xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]] : memref<1x1xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<1x1xf32, {{.*}}"hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x1xf32, strided<[1, 1], offset: 64>, "hbm">) outs(%[[TILE_4:.*]] : memref<64x1xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x1xf32, strided<[1, 1], offset: 64>, "hbm">) outs(%[[TILE_5:.*]] : memref<64x1xf32, {{.*}}"sbuf">)
// CHECK-LABEL:   func.func @dots(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<96x64xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<96x64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<96x64xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<96x64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_2:.*]] : memref<96xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<96x64xf32, {{.*}}"sbuf">, memref<96x64xf32, {{.*}}"sbuf">) outs(%[[TILE_2]] : memref<96xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_2]] : memref<96xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<96xf32, {{.*}}"hbm">)
func.func @dots(%a: tensor<96x64xf32>, %b: tensor<96x64xf32>) -> tensor<96xf32> {
  %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<96x64xf32>, tensor<96x64xf32>) -> tensor<96xf32>
  return %0 : tensor<96xf32>
}
