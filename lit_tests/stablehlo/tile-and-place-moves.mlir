// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="moves=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// Both parts of the joined rows are on chip already. The sum reads a tile that is copied together from them.
// BEFORE-LABEL:  func.func @repeated(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<64x16xf32, {{.*}}"sbuf">, memref<64xf32, {{.*}}"sbuf">) outs(%[[TILE_2:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_2]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64x16xf32, {{.*}}"hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<1x64x16xf32, strided<[1, 16, 1]>, "hbm">) outs(%{{.*}} : memref<1x64x16xf32, strided<[1, 32, 1]>, "hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<1x64x16xf32, strided<[1, 16, 1]>, "hbm">) outs(%{{.*}} : memref<1x64x16xf32, strided<[1, 32, 1], offset: 16>, "hbm">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_3:.*]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[PART_4:.*]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_3]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<64x32xf32, {{.*}}"hbm">) outs(%[[TILE_5:.*]] : memref<64x32xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_6:.*]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_5]] : memref<64x32xf32, {{.*}}"sbuf">) outs(%[[TILE_6]] : memref<64xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_6]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// BEFORE-NOT:    linalg.generic
// BEFORE:        return
// CHECK-LABEL:   func.func @repeated(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<64x16xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<64xf32, {{.*}}"hbm">) outs(%[[TILE_1:.*]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_0]], %[[TILE_1]] : memref<64x16xf32, {{.*}}"sbuf">, memref<64xf32, {{.*}}"sbuf">) outs(%[[TILE_2:.*]] : memref<64x16xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_3:.*]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_4:.*]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_3]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_3]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_5:.*]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_6:.*]] : memref<64x16xf32, strided<[32, 1]>, "sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_7:.*]] : memref<64x16xf32, {{.*}}"sbuf">) outs(%[[TILE_8:.*]] : memref<64x16xf32, strided<[32, 1], offset: 16>, "sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_9:.*]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_10:.*]] : memref<64x32xf32, {{.*}}"sbuf">) outs(%[[TILE_9]] : memref<64xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_9]] : memref<64xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<64xf32, {{.*}}"hbm">)
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @repeated(%a: tensor<64x16xf32>, %v: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %each = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<64xf32>) -> tensor<64x16xf32>
  %0 = stablehlo.multiply %a, %each : tensor<64x16xf32>
  %1 = stablehlo.concatenate %0, %a, dim = 1 : (tensor<64x16xf32>, tensor<64x16xf32>) -> tensor<64x32xf32>
  %2 = stablehlo.reduce(%0 init: %z) applies stablehlo.maximum across dimensions = [1] : (tensor<64x16xf32>, tensor<f32>) -> tensor<64xf32>
  %3 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<64x32xf32>, tensor<f32>) -> tensor<64xf32>
  return %2, %3 : tensor<64xf32>, tensor<64xf32>
}
