// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --split-rows=rows=256 --split-input-file %s | FileCheck %s
// RUN: nki-opt --stablehlo-to-linalg --split-rows --split-input-file %s | FileCheck --check-prefix=FITS %s

// The sums of the first 256 rows, and the quotients by them, come before those of the last 44. Without a number of
// rows, a graph that SBUF can keep stays as it is.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<300x64xf32, "hbm"> {nki.name = "arg0"}, %[[R:[a-z0-9]+]]: memref<300x64xf32, "hbm">
// CHECK:         %[[SUMS:.*]] = memref.alloc() {{.*}} : memref<300xf32, "hbm">
// CHECK-NEXT:    %[[FILLED:.*]] = memref.reinterpret_cast %[[SUMS]] to offset: [0], sizes: [256]
// CHECK-NEXT:    linalg.generic {{.*}} ins(%{{.*}} : f32) outs(%[[FILLED]] :
// CHECK:         %[[X0:.*]] = memref.reinterpret_cast %[[X]] to offset: [0], sizes: [256, 64], strides: [64, 1]
// CHECK-NEXT:    %[[S0:.*]] = memref.reinterpret_cast %[[SUMS]] to offset: [0], sizes: [256], strides: [1]
// CHECK-NEXT:    linalg.generic {{.*}} "reduction"]} ins(%[[X0]] : {{.*}}) outs(%[[S0]] :
// CHECK:         %[[X1:.*]] = memref.reinterpret_cast %[[X]] to offset: [0], sizes: [256, 64], strides: [64, 1]
// CHECK-NEXT:    %[[S1:.*]] = memref.reinterpret_cast %[[SUMS]] to offset: [0], sizes: [256], strides: [1]
// CHECK-NEXT:    %[[R1:.*]] = memref.reinterpret_cast %[[R]] to offset: [0], sizes: [256, 64], strides: [64, 1]
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[X1]], %[[S1]] : {{.*}}) outs(%[[R1]] :
// CHECK:           "scalar.alu"(%{{.*}}, %{{.*}}) {fn = "divide"}
// CHECK:         %[[X2:.*]] = memref.reinterpret_cast %[[X]] to offset: [16384], sizes: [44, 64], strides: [64, 1]
// CHECK-NEXT:    %[[S2:.*]] = memref.reinterpret_cast %[[SUMS]] to offset: [256], sizes: [44], strides: [1]
// CHECK-NEXT:    linalg.generic {{.*}} "reduction"]} ins(%[[X2]] : {{.*}}) outs(%[[S2]] :
// CHECK:         %[[R3:.*]] = memref.reinterpret_cast %[[R]] to offset: [16384], sizes: [44, 64], strides: [64, 1]
// CHECK-NEXT:    linalg.generic {{.*}} outs(%[[R3]] :
// CHECK-NOT:     linalg.generic
// FITS-LABEL:  func.func @rows(
// FITS-NOT:      memref.reinterpret_cast
// FITS:          linalg.generic {{.*}} "reduction"]} ins(%arg0 : memref<300x64xf32, "hbm">)
func.func @rows(%x: tensor<300x64xf32>) -> tensor<300x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sums = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<300x64xf32>, tensor<f32>) -> tensor<300xf32>
  %each = stablehlo.broadcast_in_dim %sums, dims = [0] : (tensor<300xf32>) -> tensor<300x64xf32>
  %r = stablehlo.divide %x, %each : tensor<300x64xf32>
  return %r : tensor<300x64xf32>
}

// -----

// The sums of columns need all rows, so no quotient can come before the last of them.
// CHECK-LABEL: func.func @columns(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<300x64xf32, "hbm"> {nki.name = "arg0"}, %[[R:[a-z0-9]+]]: memref<300x64xf32, "hbm">
// CHECK:         %[[SUMS:.*]] = memref.alloc() {{.*}} : memref<64xf32, "hbm">
// CHECK-NOT:     memref.reinterpret_cast
// CHECK:         linalg.generic {{.*}} "reduction"]} ins(%[[X]] : {{.*}}) outs(%[[SUMS]] :
// CHECK:         linalg.generic {{.*}} ins(%[[X]], %[[SUMS]] : {{.*}}) outs(%[[R]] :
func.func @columns(%x: tensor<300x64xf32>) -> tensor<300x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sums = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<300x64xf32>, tensor<f32>) -> tensor<64xf32>
  %each = stablehlo.broadcast_in_dim %sums, dims = [1] : (tensor<64xf32>) -> tensor<300x64xf32>
  %r = stablehlo.divide %x, %each : tensor<300x64xf32>
  return %r : tensor<300x64xf32>
}
