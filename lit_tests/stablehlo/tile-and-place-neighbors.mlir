// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="images=0 neighbors=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="images=0" %s | FileCheck %s

// The image has 8 rows of 8 results. A tile has the results of a row, not of a column.
// BEFORE-LABEL: func.func @conv(
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<8x16xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<8x16xf32, strided<[128, 1]>, "hbm">)
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<8x16xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<8x16xf32, strided<[128, 1], offset: 16>, "hbm">)
// CHECK-LABEL:  func.func @conv(
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<8x16xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<8x16xf32, strided<[16, 1]>, "hbm">)
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<8x16xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<8x16xf32, strided<[16, 1], offset: 128>, "hbm">)
func.func @conv(%x: tensor<1x10x10x32xf32>, %w: tensor<3x3x32x16xf32>) -> tensor<1x8x8x16xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x10x10x32xf32>, tensor<3x3x32x16xf32>) -> tensor<1x8x8x16xf32>
  return %0 : tensor<1x8x8x16xf32>
}
