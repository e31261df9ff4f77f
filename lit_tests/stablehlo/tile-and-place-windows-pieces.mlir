// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="images=0 windows=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="images=0" %s | FileCheck %s

// A window has 192 elements of three positions, in two pieces. The third position reads rows 2 to 9 of the first one.
// BEFORE-LABEL: func.func @pieces(
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<8x128xf32, strided<[64, 1]>, "hbm">) outs(%{{.*}} : memref<8x128xf32, {{.*}}"sbuf">)
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<8x64xf32, strided<[64, 1], offset: 128>, "hbm">) outs(%{{.*}} : memref<8x64xf32, {{.*}}"sbuf">)
// CHECK-LABEL:  func.func @pieces(
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<10x128xf32, strided<[64, 1]>, "hbm">) outs(%[[ROWS:.*]] : memref<10x128xf32, {{.*}}"sbuf">)
// CHECK:        linalg.generic {{.*}} ins(%[[ROWS]] : memref<10x128xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128x10xf32, {{.*}}"sbuf">)
// CHECK:        linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : memref<128x8xf32, strided<[10, 1]>, "sbuf">,
// CHECK:        linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : memref<64x8xf32, strided<[10, 1], offset: 2>, "sbuf">,
func.func @pieces(%x: tensor<1x12x64xf32>, %w: tensor<3x64x16xf32>) -> tensor<1x8x16xf32> {
  %0 = stablehlo.slice %x [0:1, 0:10, 0:64] : (tensor<1x12x64xf32>) -> tensor<1x10x64xf32>
  %1 = stablehlo.convolution(%0, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x10x64xf32>, tensor<3x64x16xf32>) -> tensor<1x8x16xf32>
  return %1 : tensor<1x8x16xf32>
}
