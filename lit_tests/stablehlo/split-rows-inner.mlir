// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --split-rows=inner=0 %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --split-rows %s | FileCheck %s

// The scores of one of two heads take 8 MiB and do not stay on chip: each head is computed by blocks of its rows.
// BEFORE-LABEL:  func.func @heads(
// BEFORE:          %[[SCORES:.*]] = memref.alloc() {{.*}} : memref<2x2048x1024xf32, "hbm">
// BEFORE-NOT:      memref.reinterpret_cast
// BEFORE:          linalg.generic {{.*}} "reduction"]} ins(%{{.*}}, %{{.*}} : {{.*}}) outs(%[[SCORES]] : memref<2x2048x1024xf32, "hbm">)
// CHECK-LABEL:   func.func @heads(
// CHECK:           %[[SCORES:.*]] = memref.alloc() {{.*}} : memref<2x2048x1024xf32, "hbm">
// CHECK:           memref.reinterpret_cast %[[SCORES]] to offset: [0], sizes: [1, 256, 1024]
// CHECK:           linalg.generic {{.*}} "reduction"]} ins(%{{.*}}, %{{.*}} : memref<1x256x64xf32, {{.*}}, memref<1x64x1024xf32, {{.*}}) outs(%{{.*}} : memref<1x256x1024xf32, {{.*}}"hbm">)
// CHECK:           linalg.generic {{.*}} "reduction"]} ins(%{{.*}} : memref<1x256x1024xf32, {{.*}}) outs(%{{.*}} : memref<1x256xf32, {{.*}}"hbm">)
// CHECK:           memref.reinterpret_cast %[[SCORES]] to offset: [262144], sizes: [1, 256, 1024]
// CHECK:           linalg.generic {{.*}} "reduction"]} ins(%{{.*}}, %{{.*}} : memref<1x256x64xf32, {{.*}}, memref<1x64x1024xf32, {{.*}}) outs(%{{.*}} : memref<1x256x1024xf32, {{.*}}offset: 262144>, "hbm">)
func.func @heads(%q: tensor<2x2048x64xf32>, %k: tensor<2x64x1024xf32>) -> tensor<2x2048x1024xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x2048x64xf32>, tensor<2x64x1024xf32>) -> tensor<2x2048x1024xf32>
  %1 = stablehlo.exponential %0 : tensor<2x2048x1024xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x2048x1024xf32>, tensor<f32>) -> tensor<2x2048xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x2048xf32>) -> tensor<2x2048x1024xf32>
  %4 = stablehlo.divide %1, %3 : tensor<2x2048x1024xf32>
  return %4 : tensor<2x2048x1024xf32>
}
