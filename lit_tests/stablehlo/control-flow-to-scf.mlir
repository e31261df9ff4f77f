// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --control-flow-to-scf %s | FileCheck %s

// CHECK-LABEL: func.func @count(
// CHECK-SAME:    %[[START:[a-z0-9]+]]: tensor<i32>, %[[N:[a-z0-9]+]]: tensor<i32>
// CHECK-NEXT:    %[[R:.*]] = scf.while (%[[I:.*]] = %[[START]]) : (tensor<i32>) -> tensor<i32> {
// CHECK-NEXT:      %[[LESS:.*]] = stablehlo.compare LT, %[[I]], %[[N]]
// CHECK-NEXT:      %[[C:.*]] = tensor.extract %[[LESS]][] : tensor<i1>
// CHECK-NEXT:      scf.condition(%[[C]]) %[[I]] : tensor<i32>
// CHECK-NEXT:    } do {
// CHECK-NEXT:    ^bb0(%[[J:.*]]: tensor<i32>):
// CHECK-NEXT:      %[[ONE:.*]] = stablehlo.constant dense<1> : tensor<i32>
// CHECK-NEXT:      %[[NEXT:.*]] = stablehlo.add %[[J]], %[[ONE]]
// CHECK-NEXT:      scf.yield %[[NEXT]] : tensor<i32>
// CHECK-NEXT:    }
// CHECK-NEXT:    return %[[R]]
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

// CHECK-LABEL: func.func @choose(
// CHECK-SAME:    %[[P:[a-z0-9]+]]: tensor<i1>, %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>
// CHECK-NEXT:    %[[C:.*]] = tensor.extract %[[P]][] : tensor<i1>
// CHECK-NEXT:    %[[R:.*]] = scf.if %[[C]] -> (tensor<4xf32>) {
// CHECK-NEXT:      scf.yield %[[A]]
// CHECK-NEXT:    } else {
// CHECK-NEXT:      scf.yield %[[B]]
// CHECK-NEXT:    }
// CHECK-NEXT:    return %[[R]]
func.func @choose(%p: tensor<i1>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.if"(%p) ({
    stablehlo.return %a : tensor<4xf32>
  }, {
    stablehlo.return %b : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// The last branch is the one for every other number.
// CHECK-LABEL: func.func @select(
// CHECK-SAME:    %[[K:[a-z0-9]+]]: tensor<i32>, %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>
// CHECK-NEXT:    %[[N:.*]] = tensor.extract %[[K]][] : tensor<i32>
// CHECK-NEXT:    %[[I:.*]] = arith.index_cast %[[N]] : i32 to index
// CHECK-NEXT:    %[[R:.*]] = scf.index_switch %[[I]] -> tensor<4xf32>
// CHECK-NEXT:    case 0 {
// CHECK-NEXT:      scf.yield %[[A]]
// CHECK-NEXT:    }
// CHECK-NEXT:    default {
// CHECK-NEXT:      scf.yield %[[B]]
// CHECK-NEXT:    }
// CHECK-NEXT:    return %[[R]]
func.func @select(%k: tensor<i32>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.case"(%k) ({
    stablehlo.return %a : tensor<4xf32>
  }, {
    stablehlo.return %b : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
