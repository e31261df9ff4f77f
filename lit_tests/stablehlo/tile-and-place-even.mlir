// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="even=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// Nine rows of 255 elements in tiles of at most four: three times three, not four, four and one.
// BEFORE-LABEL:  func.func @sums(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x4x255xf32, strided<[255, 32640, 1]>, "hbm">) outs(%[[TILE_0:.*]] : memref<128x4x255xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x4x255xf32, strided<[0, 255, 1]>, "hbm">) outs(%[[TILE_1:.*]] : memref<128x4x255xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<128x4x255xf32, {{.*}}"sbuf">, memref<128x4x255xf32, {{.*}}"sbuf">) outs(%[[TILE_2:.*]] : memref<128x4x255xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_2]] : memref<128x4x255xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128x4x255xf32, strided<[255, 32640, 1]>, "hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x4x255xf32, strided<[255, 32640, 1], offset: 130560>, "hbm">) outs(%[[TILE_3:.*]] : memref<128x4x255xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x4x255xf32, strided<[0, 255, 1], offset: 1020>, "hbm">) outs(%[[TILE_4:.*]] : memref<128x4x255xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]], %[[TILE_4]] : memref<128x4x255xf32, {{.*}}"sbuf">, memref<128x4x255xf32, {{.*}}"sbuf">) outs(%[[TILE_5:.*]] : memref<128x4x255xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_5]] : memref<128x4x255xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128x4x255xf32, strided<[255, 32640, 1], offset: 130560>, "hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x1x255xf32, strided<[255, 1, 1], offset: 261120>, "hbm">) outs(%[[TILE_6:.*]] : memref<128x1x255xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x1x255xf32, strided<[0, 1, 1], offset: 2040>, "hbm">) outs(%[[TILE_7:.*]] : memref<128x1x255xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_6]], %[[TILE_7]] : memref<128x1x255xf32, {{.*}}"sbuf">, memref<128x1x255xf32, {{.*}}"sbuf">) outs(%[[TILE_8:.*]] : memref<128x1x255xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_8]] : memref<128x1x255xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128x1x255xf32, strided<[255, 1, 1], offset: 261120>, "hbm">)
// CHECK-LABEL:   func.func @sums(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x3x255xf32, strided<[255, 32640, 1]>, "hbm">) outs(%[[TILE_0:.*]] : memref<128x3x255xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x3x255xf32, strided<[0, 255, 1]>, "hbm">) outs(%[[TILE_1:.*]] : memref<128x3x255xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<128x3x255xf32, {{.*}}"sbuf">, memref<128x3x255xf32, {{.*}}"sbuf">) outs(%[[TILE_2:.*]] : memref<128x3x255xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_2]] : memref<128x3x255xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128x3x255xf32, strided<[255, 32640, 1]>, "hbm">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x3x255xf32, strided<[255, 32640, 1], offset: 97920>, "hbm">) outs(%[[TILE_3:.*]] : memref<128x3x255xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x3x255xf32, strided<[0, 255, 1], offset: 765>, "hbm">) outs(%[[TILE_4:.*]] : memref<128x3x255xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_3]], %[[TILE_4]] : memref<128x3x255xf32, {{.*}}"sbuf">, memref<128x3x255xf32, {{.*}}"sbuf">) outs(%[[TILE_5:.*]] : memref<128x3x255xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_5]] : memref<128x3x255xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128x3x255xf32, strided<[255, 32640, 1], offset: 97920>, "hbm">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x3x255xf32, strided<[255, 32640, 1], offset: 195840>, "hbm">) outs(%[[TILE_6:.*]] : memref<128x3x255xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x3x255xf32, strided<[0, 255, 1], offset: 1530>, "hbm">) outs(%[[TILE_7:.*]] : memref<128x3x255xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_6]], %[[TILE_7]] : memref<128x3x255xf32, {{.*}}"sbuf">, memref<128x3x255xf32, {{.*}}"sbuf">) outs(%[[TILE_8:.*]] : memref<128x3x255xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_8]] : memref<128x3x255xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128x3x255xf32, strided<[255, 32640, 1], offset: 195840>, "hbm">)
func.func @sums(%a: tensor<9x128x255xf32>, %b: tensor<9x255xf32>) -> tensor<9x128x255xf32> {
  %0 = stablehlo.broadcast_in_dim %b, dims = [0, 2] : (tensor<9x255xf32>) -> tensor<9x128x255xf32>
  %1 = stablehlo.add %a, %0 : tensor<9x128x255xf32>
  return %1 : tensor<9x128x255xf32>
}
