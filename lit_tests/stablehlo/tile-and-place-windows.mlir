// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="windows=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// The three positions of a dilated window read rows 0 to 15, 2 to 17 and 4 to 19. They are loaded and transposed once.
// BEFORE-LABEL: func.func @conv(
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<16x16xf32, strided<[16, 1]>, "hbm">) outs(%{{.*}} : memref<16x16xf32, {{.*}}"sbuf">)
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<16x16xf32, strided<[16, 1], offset: 32>, "hbm">) outs(%{{.*}} : memref<16x16xf32, {{.*}}"sbuf">)
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<16x16xf32, strided<[16, 1], offset: 64>, "hbm">) outs(%{{.*}} : memref<16x16xf32, {{.*}}"sbuf">)
// CHECK-LABEL:  func.func @conv(
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<20x16xf32, {{.*}}"hbm">) outs(%[[ROWS:.*]] : memref<20x16xf32, {{.*}}"sbuf">)
// CHECK:        linalg.generic {{.*}} ins(%[[ROWS]] : memref<20x16xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<16x20xf32, {{.*}}"sbuf">)
// CHECK-NOT:    ins(%{{.*}} : memref<16x16xf32, {{.*}}"hbm">)
// CHECK:        linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : memref<16x16xf32, strided<[20, 1]>, "sbuf">, memref<16x8xf32, {{.*}}"sbuf">) outs(%[[SUM:.*]] : memref<16x8xf32, {{.*}}"psum">)
// CHECK:        linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : memref<16x16xf32, strided<[20, 1], offset: 2>, "sbuf">, memref<16x8xf32, {{.*}}"sbuf">) outs(%[[SUM]] :
// CHECK:        linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : memref<16x16xf32, strided<[20, 1], offset: 4>, "sbuf">, memref<16x8xf32, {{.*}}"sbuf">) outs(%[[SUM]] :
func.func @conv(%x: tensor<1x20x16xf32>, %w: tensor<3x16x8xf32>) -> tensor<1x16x8xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[0, 0]], rhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x20x16xf32>, tensor<3x16x8xf32>) -> tensor<1x16x8xf32>
  return %0 : tensor<1x16x8xf32>
}
