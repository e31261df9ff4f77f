// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products and sums of 16-bit floats accumulate in float32, and are rounded once.
// With widen=0 they keep their type, for tile-and-place, which accumulates in float32 on chip.
// RUN: nki-opt --stablehlo-to-linalg %s | FileCheck %s
// RUN: nki-opt --pass-pipeline='builtin.module(stablehlo-to-linalg{widen=0})' %s | FileCheck %s --check-prefix=NARROW

// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<8x64xbf16, "hbm"> {{.*}} %[[B:[a-z0-9]+]]: memref<64x4xbf16, "hbm"> {{.*}} %[[R:[a-z0-9]+]]: memref<8x4xbf16, "hbm"> {{.*}} %[[S:[a-z0-9]+]]: memref<8xbf16, "hbm">
// CHECK:         %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK:         %[[SUMS:.*]] = memref.alloc() {{.*}} : memref<8x4xf32, "hbm">
// CHECK:         linalg.generic {{.*}} ins(%[[A]], %[[B]] : {{.*}}) outs(%[[SUMS]] :
// CHECK-NEXT:    ^bb0(%[[X:.*]]: bf16, %[[Y:.*]]: bf16, %[[OLD:.*]]: f32):
// CHECK-NEXT:      %[[LEFT:.*]] = "scalar.convert"(%[[X]]) : (bf16) -> f32
// CHECK-NEXT:      %[[RIGHT:.*]] = "scalar.convert"(%[[Y]]) : (bf16) -> f32
// CHECK-NEXT:      %[[PRODUCT:.*]] = "scalar.alu"(%[[LEFT]], %[[RIGHT]]) {fn = "multiply"} : (f32, f32) -> f32
// CHECK-NEXT:      %[[NEW:.*]] = "scalar.alu"(%[[OLD]], %[[PRODUCT]]) {fn = "add"} : (f32, f32) -> f32
// CHECK-NEXT:      linalg.yield %[[NEW]] : f32
// CHECK:         linalg.generic {{.*}} ins(%[[SUMS]] : {{.*}}) outs(%[[R]] :
// CHECK-NEXT:    ^bb0(%[[SUM:.*]]: f32, %{{.*}}: bf16):
// CHECK-NEXT:      "scalar.convert"(%[[SUM]]) : (f32) -> bf16
// A fold starts from its constant in float32.
// CHECK:         %[[TOTALS:.*]] = memref.alloc() {{.*}} : memref<8xf32, "hbm">
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[ZERO]] : f32) outs(%[[TOTALS]] :
// CHECK:         linalg.generic {{.*}} ins(%[[A]] : {{.*}}) outs(%[[TOTALS]] :
// CHECK:         linalg.generic {{.*}} ins(%[[TOTALS]] : {{.*}}) outs(%[[S]] :
// NARROW-LABEL: func.func @main(
// NARROW-SAME:    %[[A:[a-z0-9]+]]: memref<8x64xbf16, "hbm"> {{.*}} %[[B:[a-z0-9]+]]: memref<64x4xbf16, "hbm"> {{.*}} %[[R:[a-z0-9]+]]: memref<8x4xbf16, "hbm"> {{.*}} %[[S:[a-z0-9]+]]: memref<8xbf16, "hbm">
// NARROW-NOT:     xf32
// NARROW:         linalg.generic {{.*}} ins(%[[A]], %[[B]] : {{.*}}) outs(%[[R]] :
// NARROW:         linalg.generic {{.*}} ins(%[[A]] : {{.*}}) outs(%[[S]] :
func.func @main(%a: tensor<8x64xbf16>, %b: tensor<64x4xbf16>) -> (tensor<8x4xbf16>, tensor<8xbf16>) {
  %zero = stablehlo.constant dense<0.0> : tensor<bf16>
  %product = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<8x64xbf16>, tensor<64x4xbf16>) -> tensor<8x4xbf16>
  %sum = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x64xbf16>, tensor<bf16>) -> tensor<8xbf16>
  return %product, %sum : tensor<8x4xbf16>, tensor<8xbf16>
}
