// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="exchange=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// The result's rows are those of the right factor: it becomes the left one, and the store writes complete rows.
// BEFORE-LABEL:  func.func @gradient(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_2:.*]] : memref<16x32xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<64x16xf32, {{.*}}"sbuf">, memref<64x32xf32, {{.*}}"sbuf">) outs(%[[SUM_2]] : memref<16x32xf32, {{.*}}"psum">)
// BEFORE:        linalg.generic {{.*}} ins(%[[SUM_2]] : memref<16x32xf32, {{.*}}"psum">) outs(%[[TILE_3:.*]] : memref<16x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]] : memref<16x32xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<16x32xf32, strided<[1, 16]>, "hbm">)
// BEFORE-NOT:    linalg.generic
// BEFORE:        return
// CHECK-LABEL:   func.func @gradient(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[SUM_2:.*]] : memref<32x16xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<64x32xf32, {{.*}}"sbuf">, memref<64x16xf32, {{.*}}"sbuf">) outs(%[[SUM_2]] : memref<32x16xf32, {{.*}}"psum">)
// CHECK:         linalg.generic {{.*}} ins(%[[SUM_2]] : memref<32x16xf32, {{.*}}"psum">) outs(%[[TILE_3:.*]] : memref<32x16xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_3]] : memref<32x16xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<32x16xf32, {{.*}}"hbm">)
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @gradient(%x: tensor<64x32xf32>, %g: tensor<64x16xf32>) -> tensor<32x16xf32> {
  %0 = stablehlo.dot_general %g, %x, contracting_dims = [0] x [0] : (tensor<64x16xf32>, tensor<64x32xf32>) -> tensor<16x32xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<16x32xf32>) -> tensor<32x16xf32>
  return %1 : tensor<32x16xf32>
}
