// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="images=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// The image is copied into its padding in HBM, or laid out on chip: the padding is written there, the pixels of a line
// are transposed with those beside them, and products read the image, four pixels apart of each line, in place.
// BEFORE-LABEL: func.func @padded(
// BEFORE:       linalg.generic {{.*}} outs(%{{.*}} : memref<1x8x512xf32, strided<[1, 640, 1], offset: 704>, "hbm">)
// CHECK-LABEL:  func.func @padded(
// CHECK-NOT:    offset: 704>, "hbm">) {
// CHECK:        %[[IMAGE:.*]] = memref.alloc() : memref<128x160xf32, "sbuf">
// CHECK:        linalg.fill {{.*}} outs(%{{.*}} : memref<128x4x4xf32, strided<[160, 40, 1]>, "sbuf">)
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<32x2x64xf32, strided<[128, 64, 1]>, "hbm">) outs(%{{.*}} : memref<32x2x64xf32, {{.*}}"sbuf">)
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<32x128xf32, strided<[128, 1]>, "sbuf">) outs(%{{.*}} : memref<128x32xf32, {{.*}}"psum">)
// CHECK:        "nki.view"(%[[IMAGE]]) {access = #nki.access<f32, {{.*}}, {{\[\[}}1, 128], [1, 32]]>}
// CHECK:        linalg.generic {{.*}} outs(%{{.*}} : memref<32x16xf32, strided<[32, 1]>, "psum">)
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<32x32xf32, strided<[32, 1]>, "sbuf">) outs(%{{.*}} : memref<32x32xf32, strided<[32, 1]>, "hbm">)
func.func @padded(%x: tensor<1x8x8x64xf32>, %w: tensor<3x3x64x16xf32>) -> tensor<1x8x8x16xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x64xf32>, tensor<3x3x64x16xf32>) -> tensor<1x8x8x16xf32>
  return %0 : tensor<1x8x8x16xf32>
}
