// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="totals=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// Each partition folds the 128 parts of the sum, so that the quotient does not load the total from HBM.
// BEFORE-LABEL: func.func @share(
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<1x128xf32, {{.*}}"sbuf">) outs(%[[TOTAL:.*]] : memref<1xf32, {{.*}}"sbuf">)
// BEFORE:       linalg.generic {{.*}} ins(%[[TOTAL]] : memref<1xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<1xf32, {{.*}}"hbm">)
// BEFORE:       linalg.generic {{.*}} ins(%{{.*}} : memref<128xf32, strided<[0]>, "hbm">) outs(%{{.*}} : memref<128xf32, {{.*}}"sbuf">)
// CHECK-LABEL:  func.func @share(
// CHECK:        linalg.generic {{.*}} ins(%{{.*}} : memref<128x128xf32, strided<[1, 0]>, "sbuf">) outs(%[[PARTS:.*]] : memref<128x128xf32, {{.*}}"sbuf">)
// CHECK:        linalg.generic {{.*}} ins(%[[PARTS]] : memref<128x128xf32, {{.*}}"sbuf">) outs(%[[ROWS:.*]] : memref<128x128xf32, {{.*}}"sbuf">)
// CHECK:        linalg.generic {{.*}} ins(%[[ROWS]] : memref<128x128xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<128xf32, {{.*}}"sbuf">)
// CHECK-NOT:    outs(%{{.*}} : memref<1xf32, {{.*}}"hbm">)
func.func @share(%x: tensor<512xf32>) -> tensor<512xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<512xf32>, tensor<f32>) -> tensor<f32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<512xf32>
  %2 = stablehlo.divide %x, %1 : tensor<512xf32>
  return %2 : tensor<512xf32>
}
