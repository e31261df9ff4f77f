// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --control-flow-to-scf %s | FileCheck %s

// CHECK-LABEL: func.func @count
// CHECK-SAME:    %[[START:.*]]: tensor<i32>, %[[N:.*]]: tensor<i32>
// CHECK:         scf.while (%[[I:.*]] = %[[START]]) : (tensor<i32>) -> tensor<i32> {
// CHECK:           %[[LESS:.*]] = stablehlo.compare LT, %[[I]], %[[N]]
// CHECK:           %[[C:.*]] = tensor.extract %[[LESS]][] : tensor<i1>
// CHECK:           scf.condition(%[[C]]) %[[I]]
// CHECK:         } do {
// CHECK:           %[[NEXT:.*]] = stablehlo.add
// CHECK:           scf.yield %[[NEXT]]
func.func @count(%start: tensor<i32>, %n: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.while(%i = %start) : tensor<i32>
  cond {
    %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %1 : tensor<i32>
  }
  return %0 : tensor<i32>
}

// CHECK-LABEL: func.func @choose
// CHECK:         %[[P:.*]] = tensor.extract %arg0[] : tensor<i1>
// CHECK:         scf.if %[[P]] -> (tensor<4xf32>) {
// CHECK:           scf.yield %arg1
// CHECK:         } else {
// CHECK:           scf.yield %arg2
func.func @choose(%p: tensor<i1>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.if"(%p) ({
    stablehlo.return %a : tensor<4xf32>
  }, {
    stablehlo.return %b : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// The last branch is the one for every other number.
// CHECK-LABEL: func.func @select
// CHECK:         %[[K:.*]] = tensor.extract %arg0[] : tensor<i32>
// CHECK:         %[[I:.*]] = arith.index_cast %[[K]] : i32 to index
// CHECK:         scf.index_switch %[[I]] -> tensor<4xf32>
// CHECK:         case 0 {
// CHECK-NEXT:      scf.yield %arg1
// CHECK:         default {
// CHECK-NEXT:      scf.yield %arg2
func.func @select(%k: tensor<i32>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.case"(%k) ({
    stablehlo.return %a : tensor<4xf32>
  }, {
    stablehlo.return %b : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
