// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="columns=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// One row times a matrix: the tensor engine loads the matrix and moves the row, and each partition gets a column.
// BEFORE-LABEL:  func.func @token(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x1xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<128x1xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x256xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<128x256xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_2:.*]] : memref<1x256xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<128x1xf32, {{.*}}"sbuf">, memref<128x256xf32, {{.*}}"sbuf">) outs(%[[SUM_2]] : memref<1x256xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[SUM_2]] : memref<1x256xf32, {{.*}}"psum">) outs(%[[TILE_3:.*]] : memref<1x256xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]] : memref<1x256xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<1x256xf32, strided<[1, 1]>, "hbm">)
// BEFORE-NOT:    linalg.generic
// BEFORE:        return
// CHECK-LABEL:   func.func @token(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x128xf32, strided<[256, 1]>, "hbm">) outs(%[[TILE_0:.*]] : memref<128x128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x1xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<128x1xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_2:.*]] : memref<128x1xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<128x128xf32, {{.*}}"sbuf">, memref<128x1xf32, {{.*}}"sbuf">) outs(%[[SUM_2]] : memref<128x1xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[SUM_2]] : memref<128x1xf32, {{.*}}"psum">) outs(%[[TILE_3:.*]] : memref<128x1xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_3]] : memref<128x1xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128x1xf32, {{.*}}"hbm">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x128xf32, strided<[256, 1], offset: 128>, "hbm">) outs(%[[TILE_4:.*]] : memref<128x128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_5:.*]] : memref<128x1xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_4]], %[[TILE_1]] : memref<128x128xf32, {{.*}}"sbuf">, memref<128x1xf32, {{.*}}"sbuf">) outs(%[[SUM_5]] : memref<128x1xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[SUM_5]] : memref<128x1xf32, {{.*}}"psum">) outs(%[[TILE_6:.*]] : memref<128x1xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_6]] : memref<128x1xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128x1xf32, strided<[1, 1], offset: 128>, "hbm">)
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @token(%a: tensor<1x128xf32>, %b: tensor<128x256xf32>) -> tensor<1x256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<1x128xf32>, tensor<128x256xf32>) -> tensor<1x256xf32>
  return %0 : tensor<1x256xf32>
}
