// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="short-rows=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// Rows of 128 bytes: each partition loads four that follow each other, in one run of 512 bytes.
// BEFORE-LABEL:  func.func @product(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x32xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<128x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x1xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<128x1xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_2:.*]] : memref<32x1xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<128x32xf32, {{.*}}"sbuf">, memref<128x1xf32, {{.*}}"sbuf">) outs(%[[SUM_2]] : memref<32x1xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x32xf32, strided<[32, 1], offset: 4096>, "hbm">) outs(%[[TILE_3:.*]] : memref<128x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x1xf32, strided<[1, 1], offset: 128>, "hbm">) outs(%[[TILE_4:.*]] : memref<128x1xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]], %[[TILE_4]] : memref<128x32xf32, {{.*}}"sbuf">, memref<128x1xf32, {{.*}}"sbuf">) outs(%[[SUM_2]] : memref<32x1xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x32xf32, strided<[32, 1], offset: 8192>, "hbm">) outs(%[[TILE_5:.*]] : memref<128x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x1xf32, strided<[1, 1], offset: 256>, "hbm">) outs(%[[TILE_6:.*]] : memref<128x1xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_5]], %[[TILE_6]] : memref<128x32xf32, {{.*}}"sbuf">, memref<128x1xf32, {{.*}}"sbuf">) outs(%[[SUM_2]] : memref<32x1xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x32xf32, strided<[32, 1], offset: 12288>, "hbm">) outs(%[[TILE_7:.*]] : memref<128x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x1xf32, strided<[1, 1], offset: 384>, "hbm">) outs(%[[TILE_8:.*]] : memref<128x1xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_7]], %[[TILE_8]] : memref<128x32xf32, {{.*}}"sbuf">, memref<128x1xf32, {{.*}}"sbuf">) outs(%[[SUM_2]] : memref<32x1xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[SUM_2]] : memref<32x1xf32, {{.*}}"psum">) outs(%[[TILE_9:.*]] : memref<32x1xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_9]] : memref<32x1xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<32x1xf32, {{.*}}"hbm">)
// BEFORE-NOT:    linalg.generic
// BEFORE:        return
// CHECK-LABEL:   func.func @product(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x128xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<128x128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x4xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<128x4xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_2:.*]] : memref<32x1xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_3:.*]], %[[PART_4:.*]] : memref<128x32xf32, strided<[128, 1]>, "sbuf">, memref<128x1xf32, strided<[4, 1]>, "sbuf">) outs(%[[SUM_2]] : memref<32x1xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_5:.*]], %[[PART_6:.*]] : memref<128x32xf32, strided<[128, 1], offset: 32>, "sbuf">, memref<128x1xf32, strided<[4, 1], offset: 1>, "sbuf">) outs(%[[SUM_2]] : memref<32x1xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_7:.*]], %[[PART_8:.*]] : memref<128x32xf32, strided<[128, 1], offset: 64>, "sbuf">, memref<128x1xf32, strided<[4, 1], offset: 2>, "sbuf">) outs(%[[SUM_2]] : memref<32x1xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_9:.*]], %[[PART_10:.*]] : memref<128x32xf32, strided<[128, 1], offset: 96>, "sbuf">, memref<128x1xf32, strided<[4, 1], offset: 3>, "sbuf">) outs(%[[SUM_2]] : memref<32x1xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[SUM_2]] : memref<32x1xf32, {{.*}}"psum">) outs(%[[TILE_11:.*]] : memref<32x1xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_11]] : memref<32x1xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<32x1xf32, {{.*}}"hbm">)
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @product(%a: tensor<1x512xf32>, %b: tensor<512x32xf32>) -> tensor<1x32xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<1x512xf32>, tensor<512x32xf32>) -> tensor<1x32xf32>
  return %0 : tensor<1x32xf32>
}
