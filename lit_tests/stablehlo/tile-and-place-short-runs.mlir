// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="short-runs=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// Each of two products reads half of the rows of both factors. The first one loads complete rows, and both read them.
// BEFORE-LABEL:  func.func @heads(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, strided<[32, 1]>, "hbm">) outs(%[[TILE_0:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, strided<[64, 1]>, "hbm">) outs(%[[TILE_1:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_2:.*]] : memref<16x32xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<64x16xf32, {{.*}}"sbuf">, memref<64x32xf32, {{.*}}"sbuf">) outs(%[[SUM_2]] : memref<16x32xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[SUM_2]] : memref<16x32xf32, {{.*}}"psum">) outs(%[[TILE_3:.*]] : memref<16x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]] : memref<16x32xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<16x32xf32, {{.*}}"hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, strided<[32, 1], offset: 16>, "hbm">) outs(%[[TILE_4:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, strided<[64, 1], offset: 32>, "hbm">) outs(%[[TILE_5:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_6:.*]] : memref<16x32xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_4]], %[[TILE_5]] : memref<64x16xf32, {{.*}}"sbuf">, memref<64x32xf32, {{.*}}"sbuf">) outs(%[[SUM_6]] : memref<16x32xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[SUM_6]] : memref<16x32xf32, {{.*}}"psum">) outs(%[[TILE_7:.*]] : memref<16x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_7]] : memref<16x32xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<16x32xf32, strided<[32, 1], offset: 512>, "hbm">)
// BEFORE-NOT:    linalg.generic
// BEFORE:        return
// CHECK-LABEL:   func.func @heads(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<64x64xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<64x64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_2:.*]] : memref<16x32xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_3:.*]], %[[PART_4:.*]] : memref<64x16xf32, strided<[32, 1]>, "sbuf">, memref<64x32xf32, strided<[64, 1]>, "sbuf">) outs(%[[SUM_2]] : memref<16x32xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[SUM_2]] : memref<16x32xf32, {{.*}}"psum">) outs(%[[TILE_5:.*]] : memref<16x32xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_5]] : memref<16x32xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<16x32xf32, {{.*}}"hbm">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_6:.*]] : memref<16x32xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_7:.*]], %[[PART_8:.*]] : memref<64x16xf32, strided<[32, 1], offset: 16>, "sbuf">, memref<64x32xf32, strided<[64, 1], offset: 32>, "sbuf">) outs(%[[SUM_6]] : memref<16x32xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[SUM_6]] : memref<16x32xf32, {{.*}}"psum">) outs(%[[TILE_9:.*]] : memref<16x32xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_9]] : memref<16x32xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<16x32xf32, strided<[32, 1], offset: 512>, "hbm">)
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @heads(%a: tensor<64x2x16xf32>, %b: tensor<64x2x32xf32>) -> tensor<2x16x32xf32> {
  %0 = stablehlo.dot_general %a, %b, batching_dims = [1] x [1], contracting_dims = [0] x [0] : (tensor<64x2x16xf32>, tensor<64x2x32xf32>) -> tensor<2x16x32xf32>
  return %0 : tensor<2x16x32xf32>
}
