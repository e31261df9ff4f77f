// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="readers=0 elements=16384" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place=elements=16384 %s | FileCheck %s

// Three tiles of 64 KiB a partition exceed what stays on chip. The oldest one has a later reader, the others have none.
// BEFORE-LABEL:  func.func @again(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x16384xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<128x16384xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_1:.*]] : memref<128xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]] : memref<128x16384xf32, {{.*}}"sbuf">) outs(%[[TILE_1]] : memref<128xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_1]] : memref<128xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128xf32, {{.*}}"hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x16384xf32, {{.*}}"hbm">) outs(%[[TILE_2:.*]] : memref<128x16384xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_3:.*]] : memref<128xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_2]] : memref<128x16384xf32, {{.*}}"sbuf">) outs(%[[TILE_3]] : memref<128xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_3]] : memref<128xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128xf32, {{.*}}"hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x16384xf32, {{.*}}"hbm">) outs(%[[TILE_4:.*]] : memref<128x16384xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_5:.*]] : memref<128xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_4]] : memref<128x16384xf32, {{.*}}"sbuf">) outs(%[[TILE_5]] : memref<128xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_5]] : memref<128xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128xf32, {{.*}}"hbm">)
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x16384xf32, {{.*}}"hbm">) outs(%[[TILE_6:.*]] : memref<128x16384xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_7:.*]] : memref<128xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_6]] : memref<128x16384xf32, {{.*}}"sbuf">) outs(%[[TILE_7]] : memref<128xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_7]] : memref<128xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128xf32, {{.*}}"hbm">)
// BEFORE-NOT:    linalg.generic
// BEFORE:        return
// CHECK-LABEL:   func.func @again(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x16384xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<128x16384xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_1:.*]] : memref<128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_0]] : memref<128x16384xf32, {{.*}}"sbuf">) outs(%[[TILE_1]] : memref<128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_1]] : memref<128xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128xf32, {{.*}}"hbm">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x16384xf32, {{.*}}"hbm">) outs(%[[TILE_2:.*]] : memref<128x16384xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_3:.*]] : memref<128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_2]] : memref<128x16384xf32, {{.*}}"sbuf">) outs(%[[TILE_3]] : memref<128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_3]] : memref<128xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128xf32, {{.*}}"hbm">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<128x16384xf32, {{.*}}"hbm">) outs(%[[TILE_4:.*]] : memref<128x16384xf32, {{.*}}"sbuf">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_5:.*]] : memref<128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_4]] : memref<128x16384xf32, {{.*}}"sbuf">) outs(%[[TILE_5]] : memref<128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_5]] : memref<128xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128xf32, {{.*}}"hbm">)
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[TILE_6:.*]] : memref<128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[PART_7:.*]] : memref<128x16384xf32, {{.*}}"sbuf">) outs(%[[TILE_6]] : memref<128xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_6]] : memref<128xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128xf32, {{.*}}"hbm">)
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @again(%a: tensor<128x16384xf32>, %b: tensor<128x16384xf32>, %c: tensor<128x16384xf32>) -> (tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : (tensor<128x16384xf32>, tensor<f32>) -> tensor<128xf32>
  %1 = stablehlo.reduce(%b init: %z) applies stablehlo.add across dimensions = [1] : (tensor<128x16384xf32>, tensor<f32>) -> tensor<128xf32>
  %2 = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [1] : (tensor<128x16384xf32>, tensor<f32>) -> tensor<128xf32>
  %3 = stablehlo.reduce(%a init: %z) applies stablehlo.maximum across dimensions = [1] : (tensor<128x16384xf32>, tensor<f32>) -> tensor<128xf32>
  return %0, %1, %2, %3 : tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>
}
