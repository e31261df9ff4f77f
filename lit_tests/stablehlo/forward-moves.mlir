// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --split-input-file %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --split-input-file %s | FileCheck %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves=targets=0 --split-input-file %s | FileCheck --check-prefix=COPIED %s

// A transposed factor is read the other way round, and not written before.
// BEFORE-DAG:    #[[TURNED:map[0-9]*]] = affine_map<(d0, d1, d2) -> (d0, d2, d1)>
// BEFORE-LABEL:  func.func @scores(
// BEFORE-SAME:     %[[Q:[a-z0-9]+]]: memref<4x64x32xbf16, "hbm"> {nki.name = "arg0"}, %[[K:[a-z0-9]+]]: memref<4x64x32xbf16, "hbm">
// BEFORE:          %[[T:.*]] = memref.alloc() {{.*}} : memref<4x32x64xbf16, "hbm">
// BEFORE-NEXT:     linalg.generic {indexing_maps = [#[[TURNED]], {{.*}}]{{.*}} ins(%[[K]] : {{.*}}) outs(%[[T]] :
// BEFORE:          ins(%[[Q]], %[[T]] :
// CHECK-DAG:   #[[LEFT:map[0-9]*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// CHECK-DAG:   #[[RIGHT:map[0-9]*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
// CHECK-LABEL: func.func @scores(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: memref<4x64x32xbf16, "hbm"> {nki.name = "arg0"}, %[[K:[a-z0-9]+]]: memref<4x64x32xbf16, "hbm"> {nki.name = "arg1"}, %[[R:[a-z0-9]+]]:
// CHECK-NOT:     memref<4x32x64xbf16
// CHECK:         %[[SUMS:.*]] = memref.alloc() {{.*}} : memref<4x64x64xf32, "hbm">
// CHECK-NOT:     memref.alloc
// CHECK:         linalg.generic {indexing_maps = [#[[LEFT]], #[[RIGHT]], {{.*}} ins(%[[Q]], %[[K]] : {{.*}}) outs(%[[SUMS]] :
// CHECK:         linalg.generic {{.*}} ins(%[[SUMS]] : {{.*}}) outs(%[[R]] :
func.func @scores(%q: tensor<4x64x32xbf16>, %k: tensor<4x64x32xbf16>) -> tensor<4x64x64xbf16> {
  %t = stablehlo.transpose %k, dims = [0, 2, 1] : (tensor<4x64x32xbf16>) -> tensor<4x32x64xbf16>
  %0 = stablehlo.dot_general %q, %t, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x64x32xbf16>, tensor<4x32x64xbf16>) -> tensor<4x64x64xbf16>
  return %0 : tensor<4x64x64xbf16>
}

// -----

// A result that both products start from is a constant to each.
// BEFORE-LABEL:  func.func @twice(
// BEFORE:          %[[ZERO:.*]] = arith.constant 0.0
// BEFORE-NEXT:     %[[ONE:.*]] = memref.alloc()
// BEFORE-NEXT:     linalg.generic {{.*}} ins(%[[ZERO]] : f32) outs(%[[ONE]] :
// BEFORE:          %[[OTHER:.*]] = memref.alloc()
// BEFORE-NEXT:     linalg.generic {{.*}} ins(%[[ONE]] : {{.*}}) outs(%[[OTHER]] :
// CHECK-LABEL: func.func @twice(
// CHECK:         %[[ZERO:.*]] = arith.constant 0.0
// CHECK-NEXT:    %[[ONE:.*]] = memref.alloc()
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[ZERO]] : f32) outs(%[[ONE]] :
// CHECK:         %[[OTHER:.*]] = memref.alloc()
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[ZERO]] : f32) outs(%[[OTHER]] :
// CHECK:         linalg.generic {{.*}} "reduction"]} {{.*}} outs(%[[OTHER]] :
// CHECK:         linalg.generic {{.*}} "reduction"]} {{.*}} outs(%[[ONE]] :
func.func @twice(%x: tensor<64x32xf32>, %a: tensor<32x64xf32>, %b: tensor<32x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %0 = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (tensor<64x32xf32>, tensor<32x64xf32>) -> tensor<64x64xf32>
  %1 = stablehlo.dot_general %x, %b, contracting_dims = [1] x [0] : (tensor<64x32xf32>, tensor<32x64xf32>) -> tensor<64x64xf32>
  %2 = stablehlo.add %0, %1 : tensor<64x64xf32>
  %3 = stablehlo.subtract %0, %1 : tensor<64x64xf32>
  return %2, %3 : tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// What is returned is written: a transposed result stays one.
// CHECK-LABEL: func.func @returned(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<64x32xf32, "hbm"> {nki.name = "arg0"}, %[[R:[a-z0-9]+]]: memref<32x64xf32, "hbm">
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[X]] : {{.*}}) outs(%[[R]] :
func.func @returned(%x: tensor<64x32xf32>) -> tensor<32x64xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<64x32xf32>) -> tensor<32x64xf32>
  return %0 : tensor<32x64xf32>
}

// -----

// The batch axis is the one whose elements lie beside each other: tiles of the product would have runs of one element.
// CHECK-LABEL: func.func @no_runs(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: memref<4x64x32xf32, "hbm"> {nki.name = "arg0"}, %[[K:[a-z0-9]+]]: memref<32x64x4xf32, "hbm">
// CHECK:         %[[T:.*]] = memref.alloc() {{.*}} : memref<4x32x64xf32, "hbm">
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[K]] : {{.*}}) outs(%[[T]] :
// CHECK:         linalg.generic {{.*}} "reduction"]} ins(%[[Q]], %[[T]] :
func.func @no_runs(%q: tensor<4x64x32xf32>, %k: tensor<32x64x4xf32>) -> tensor<4x64x64xf32> {
  %t = stablehlo.transpose %k, dims = [2, 0, 1] : (tensor<32x64x4xf32>) -> tensor<4x32x64xf32>
  %0 = stablehlo.dot_general %q, %t, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x64x32xf32>, tensor<4x32x64xf32>) -> tensor<4x64x64xf32>
  return %0 : tensor<4x64x64xf32>
}

// -----

// A product whose result is only transposed writes the transposed result; so does what fills it before.
// BEFORE-DAG:    #[[TURNED:map[0-9]*]] = affine_map<(d0, d1) -> (d1, d0)>
// BEFORE-LABEL:  func.func @gradient(
// BEFORE-SAME:     %[[X:[a-z0-9]+]]: memref<64x32xf32, "hbm"> {nki.name = "arg0"}, %[[G:[a-z0-9]+]]: memref<64x16xf32, "hbm"> {nki.name = "arg1"}, %[[R:[a-z0-9]+]]: memref<32x16xf32, "hbm">
// BEFORE:          %[[T:.*]] = memref.alloc() {{.*}} : memref<16x32xf32, "hbm">
// BEFORE:          linalg.generic {{.*}} ins(%[[T]] : {{.*}}) outs(%[[R]] :
// CHECK-DAG:   #[[SUMMED:map[0-9]*]] = affine_map<(d0, d1, d2) -> (d1, d0)>
// CHECK-DAG:   #[[FILLED:map[0-9]*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func.func @gradient(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<64x32xf32, "hbm"> {nki.name = "arg0"}, %[[G:[a-z0-9]+]]: memref<64x16xf32, "hbm"> {nki.name = "arg1"}, %[[R:[a-z0-9]+]]: memref<32x16xf32, "hbm">
// CHECK-NOT:     memref<16x32xf32
// CHECK:         %[[FILL:.*]] = memref.reinterpret_cast %[[R]]
// CHECK:         linalg.generic {indexing_maps = [{{.*}}, #[[FILLED]]], {{.*}} ins(%{{.*}} : f32) outs(%[[FILL]] :
// CHECK:         %[[SUMS:.*]] = memref.reinterpret_cast %[[R]]
// CHECK:         linalg.generic {indexing_maps = [{{.*}}, #[[SUMMED]]], {{.*}} "reduction"]} ins(%{{.*}}, %{{.*}} : {{.*}}) outs(%[[SUMS]] :
// CHECK-NOT:     linalg.generic
// CHECK:         return
// COPIED-LABEL: func.func @gradient(
// COPIED-SAME:    %[[X:[a-z0-9]+]]: memref<64x32xf32, "hbm"> {nki.name = "arg0"}, %[[G:[a-z0-9]+]]: memref<64x16xf32, "hbm"> {nki.name = "arg1"}, %[[R:[a-z0-9]+]]: memref<32x16xf32, "hbm">
// COPIED:         %[[T:.*]] = memref.alloc() {{.*}} : memref<16x32xf32, "hbm">
// COPIED:         linalg.generic {{.*}} "reduction"]} ins(%{{.*}}, %{{.*}} : {{.*}}) outs(%[[T]] :
// COPIED:         linalg.generic {{.*}} ins(%[[T]] : {{.*}}) outs(%[[R]] :
func.func @gradient(%x: tensor<64x32xf32>, %g: tensor<64x16xf32>) -> tensor<32x16xf32> {
  %0 = stablehlo.dot_general %g, %x, contracting_dims = [0] x [0] : (tensor<64x16xf32>, tensor<64x32xf32>) -> tensor<16x32xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<16x32xf32>) -> tensor<32x16xf32>
  return %1 : tensor<32x16xf32>
}

// -----

// Sums that are joined along an axis write their parts of the joined buffer, which is allocated before the first one.
// CHECK-LABEL: func.func @columns(
// CHECK:         %[[C:.*]] = memref.alloc() {{.*}} : memref<2x24xf32, "hbm">
// CHECK-NOT:     memref.alloc() {{.*}} : memref<2x24xf32, "hbm">
// CHECK:         linalg.generic {{.*}} "reduction"]} ins(%{{.*}}) outs(%{{.*}} : memref<2x8xf32, strided<[24, 1]>, "hbm">)
// CHECK:         linalg.generic {{.*}} "reduction"]} ins(%{{.*}}) outs(%{{.*}} : memref<2x8xf32, strided<[24, 1], offset: 8>, "hbm">)
func.func @columns(%x: tensor<2x8x4xf32>) -> tensor<2x24xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [2] : (tensor<2x8x4xf32>, tensor<f32>) -> tensor<2x8xf32>
  %y = stablehlo.multiply %x, %x : tensor<2x8x4xf32>
  %b = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [2] : (tensor<2x8x4xf32>, tensor<f32>) -> tensor<2x8xf32>
  %w = stablehlo.multiply %x, %y : tensor<2x8x4xf32>
  %d = stablehlo.reduce(%w init: %z) applies stablehlo.add across dimensions = [2] : (tensor<2x8x4xf32>, tensor<f32>) -> tensor<2x8xf32>
  %c = stablehlo.concatenate %a, %b, %d, dim = 1 : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x24xf32>
  %r = stablehlo.multiply %c, %c : tensor<2x24xf32>
  return %r : tensor<2x24xf32>
}
