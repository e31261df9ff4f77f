// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="packed=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// Rows of 48 elements of 14 patches are 16 products for each row of patches; copied in HBM, 196 rows of 768 are six.
// BEFORE-LABEL: func.func @patches(
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<14x48xbf16, {{.*}}"hbm">) outs(%{{.*}} : memref<14x48xbf16, {{.*}}"sbuf">)
// BEFORE:       linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : memref<14x512xf32, {{.*}}"psum">)
// CHECK-LABEL:  func.func @patches(
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<1x14x14x16x48xbf16, strided<[1, 10752, 48, 672, 1]>, "hbm">) outs(%{{.*}} : memref<1x14x14x16x48xbf16, {{.*}}"hbm">)
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x768xbf16, {{.*}}"hbm">) outs(%{{.*}} : memref<128x768xbf16, {{.*}}"sbuf">)
// CHECK:        linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : memref<128x512xf32, {{.*}}"psum">)
// CHECK-NOT:    14x48xbf16
func.func @patches(%image: tensor<224x224x3xbf16>, %w: tensor<768x768xbf16>) -> tensor<196x768xbf16> {
  %0 = stablehlo.reshape %image : (tensor<224x224x3xbf16>) -> tensor<14x16x14x16x3xbf16>
  %1 = stablehlo.transpose %0, dims = [0, 2, 1, 3, 4] : (tensor<14x16x14x16x3xbf16>) -> tensor<14x14x16x16x3xbf16>
  %2 = stablehlo.reshape %1 : (tensor<14x14x16x16x3xbf16>) -> tensor<196x768xbf16>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<196x768xbf16>, tensor<768x768xbf16>) -> tensor<196x768xbf16>
  return %3 : tensor<196x768xbf16>
}
