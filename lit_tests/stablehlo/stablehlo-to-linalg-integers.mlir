// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg=compare=1 --split-input-file %s | FileCheck %s

// The ones of 8 bits: pairs of neighboring bits are added, then pairs of these sums, then the two halves.
// CHECK-LABEL: func.func @ones(
// CHECK-DAG:     %[[NIBBLE:.*]] = arith.constant 15 : i8
// CHECK-DAG:     %[[FOUR:.*]] = arith.constant 4 : i8
// CHECK-DAG:     %[[PAIRS:.*]] = arith.constant 51 : i8
// CHECK-DAG:     %[[TWO:.*]] = arith.constant 2 : i8
// CHECK-DAG:     %[[EVEN:.*]] = arith.constant 85 : i8
// CHECK-DAG:     %[[ONE:.*]] = arith.constant 1 : i8
// CHECK:         linalg.generic {{.*}} ins(%[[A:.*]] : memref<4x6xi8, "hbm">)
// CHECK-NEXT:    (%[[X:.*]]: i8, %{{.*}}: i8):
// CHECK-NEXT:      %[[MOVED:.*]] = "scalar.alu"(%[[X]], %[[ONE]]) {fn = "right_shift"} : (i8, i8) -> i8
// CHECK-NEXT:      %[[ODD_BITS:.*]] = "scalar.alu"(%[[MOVED]], %[[EVEN]]) {fn = "bitwise_and"} : (i8, i8) -> i8
// CHECK-NEXT:      %[[EVEN_BITS:.*]] = "scalar.alu"(%[[X]], %[[EVEN]]) {fn = "bitwise_and"} : (i8, i8) -> i8
// CHECK-NEXT:      %[[SUMS:.*]] = "scalar.alu"(%[[EVEN_BITS]], %[[ODD_BITS]]) {fn = "add"} : (i8, i8) -> i8
// CHECK-NEXT:      %[[OTHERS:.*]] = "scalar.alu"(%[[SUMS]], %[[TWO]]) {fn = "right_shift"} : (i8, i8) -> i8
// CHECK:           %[[OF_FOUR:.*]] = "scalar.alu"(%{{.*}}, %{{.*}}) {fn = "add"} : (i8, i8) -> i8
// CHECK-NEXT:      "scalar.alu"(%[[OF_FOUR]], %[[FOUR]]) {fn = "right_shift"} : (i8, i8) -> i8
// CHECK:           %[[ONES:.*]] = "scalar.alu"(%{{.*}}, %{{.*}}) {fn = "add"} : (i8, i8) -> i8
// CHECK-NEXT:      linalg.yield %[[ONES]] : i8
func.func @ones(%a: tensor<4x6xi8>) -> tensor<4x6xi8> {
  %0 = stablehlo.popcnt %a : tensor<4x6xi8>
  return %0 : tensor<4x6xi8>
}

// -----

// The greatest of unsigned integers is that of wider ones with a sign.
// CHECK-LABEL: func.func @greatest(
// CHECK:         %[[WIDE:.*]] = memref.alloc() {{.*}} : memref<4xi32, "hbm">
// CHECK:         linalg.generic {{.*}} "reduction"]} ins(%{{.*}} : memref<4x6xi8, "hbm">) outs(%[[WIDE]] : memref<4xi32, "hbm">)
// CHECK-NEXT:    (%[[BITS:.*]]: i8, %[[OLD:.*]]: i32):
// CHECK-NEXT:      %[[X:.*]] = "scalar.wrap"(%[[BITS]]) : (i8) -> ui8
// CHECK-NEXT:      %[[NEW:.*]] = "scalar.convert"(%[[X]]) : (ui8) -> i32
// CHECK-NEXT:      %[[GREATEST:.*]] = "scalar.alu"(%[[OLD]], %[[NEW]]) {fn = "maximum"} : (i32, i32) -> i32
// CHECK-NEXT:      linalg.yield %[[GREATEST]] : i32
func.func @greatest(%a: tensor<4x6xui8>) -> tensor<4xui8> {
  %c = stablehlo.constant dense<0> : tensor<ui8>
  %0 = stablehlo.reduce(%a init: %c) applies stablehlo.maximum across dimensions = [1] : (tensor<4x6xui8>, tensor<ui8>) -> tensor<4xui8>
  return %0 : tensor<4xui8>
}

// -----

// The greatest of truth values is whether one is true.
// CHECK-LABEL: func.func @any(
// CHECK:         linalg.generic {{.*}} "reduction"]} ins(%{{.*}} : memref<4x6xi1, "hbm">)
// CHECK-NEXT:    (%[[X:.*]]: i1, %[[OLD:.*]]: i1):
// CHECK-NEXT:      %[[ANY:.*]] = "scalar.alu"(%[[OLD]], %[[X]]) {fn = "bitwise_or"} : (i1, i1) -> i1
// CHECK-NEXT:      linalg.yield %[[ANY]] : i1
func.func @any(%a: tensor<4x6xi1>) -> tensor<4xi1> {
  %c = stablehlo.constant dense<false> : tensor<i1>
  %0 = stablehlo.reduce(%a init: %c) applies stablehlo.maximum across dimensions = [1] : (tensor<4x6xi1>, tensor<i1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}
