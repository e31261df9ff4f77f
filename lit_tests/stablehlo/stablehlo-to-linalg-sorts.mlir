// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg=compare=1 --split-input-file %s | FileCheck %s
// RUN: not nki-opt --stablehlo-to-linalg --split-input-file %s 2>&1 | FileCheck --check-prefix=BEFORE %s

// Three steps: elements 0 and 2 are compared with those beside them, then 0 and 1 with those at distance 2, then 1.
// BEFORE: error: 'stablehlo.sort' in a linked module is not supported [NKI-UNSUPPORTED]
// CHECK:         memref.global {{.*}} : memref<3xi1, "hbm"> = dense<[false, true, false]>
// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xi32, "hbm">
// CHECK:         %[[A:.*]] = memref.reinterpret_cast %[[X]] to offset: [0], sizes: [8, 3], strides: [4, 1]
// CHECK:         %[[B:.*]] = memref.reinterpret_cast %[[X]] to offset: [1], sizes: [8, 3], strides: [4, 1]
// CHECK:         linalg.generic {{.*}} ins(%[[B]], %[[A]], %{{.*}} : {{.*}}) outs(%[[SWAP:.*]] :
// CHECK:           "scalar.alu"({{.*}}) {fn = "less"}
// CHECK:         linalg.generic {{.*}} ins(%[[SWAP]], %[[B]], %[[A]] : {{.*}}) outs(
// CHECK:           "scalar.alu"({{.*}}) {fn = "select"}
// CHECK:         to offset: [0], sizes: [8, 2], strides: [4, 1]
// CHECK:         to offset: [2], sizes: [8, 2], strides: [4, 1]
// CHECK:           "scalar.alu"({{.*}}) {fn = "less"}
// CHECK:           "scalar.alu"({{.*}}) {fn = "less"}
// CHECK-NOT:     fn = "less"
// CHECK:         return
func.func @rows(%x: tensor<8x4xi32>) -> tensor<8x4xi32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 1 : i64, is_stable = false}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<8x4xi32>) -> tensor<8x4xi32>
  return %0 : tensor<8x4xi32>
}

// -----

// A stable sort compares positions, too. Floats in total order are compared by their bits.
// CHECK-LABEL: func.func @pairs(
// CHECK:         linalg.index 1 : index
// CHECK:         "scalar.bitcast"(%{{.*}}) : (f32) -> i32
// CHECK:         "scalar.alu"({{.*}}) {fn = "arith_shift_right"}
// CHECK:         "scalar.alu"({{.*}}) {fn = "less"}
// CHECK:         return
func.func @pairs(%x: tensor<8x2xf32>) -> tensor<8x2xf32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<8x2xf32>) -> tensor<8x2xf32>
  return %0 : tensor<8x2xf32>
}

// -----

// More than 1,024 rows are sorted in a loop, 512 in each iteration, and the last 64 behind it.
// CHECK-DAG:   #[[BLOCK:.*]] = affine_map<()[s0] -> (s0 * 512)>
// CHECK-LABEL: func.func @blocks(
// CHECK-DAG:     %[[END:.*]] = arith.constant 4 : index
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %[[END]] step
// CHECK:           affine.apply #[[BLOCK]]()[%[[I]]]
// CHECK:           linalg.generic {{.*}} : memref<512x1xi32
// CHECK:             "scalar.alu"({{.*}}) {fn = "less"}
// CHECK:         linalg.generic {{.*}} : memref<64x1xi32
// CHECK:           "scalar.alu"({{.*}}) {fn = "less"}
// CHECK-NOT:     fn = "less"
// CHECK:         return
func.func @blocks(%x: tensor<2112x2xi32>) -> tensor<2112x2xi32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 1 : i64, is_stable = false}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<2112x2xi32>) -> tensor<2112x2xi32>
  return %0 : tensor<2112x2xi32>
}
