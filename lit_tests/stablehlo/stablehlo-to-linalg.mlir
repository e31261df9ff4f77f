// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg %s | FileCheck %s

// Results are arguments; a loop that counts is an scf.for, what it carries is in a buffer.
// CHECK-LABEL: func.func @main
// CHECK-SAME:    %[[A:.*]]: memref<4x8xf32, "hbm"> {nki.name = "arg0"}, %[[R:.*]]: memref<4x8xf32, "hbm"> {nki.name = "result0", nki.shared = 0 : i64}
// CHECK-SAME:    nki.results = [1]
// CHECK:         scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK:           "scalar.alu"(%{{.*}}, %{{.*}}) {fn = "multiply"}
// CHECK:         }
// CHECK:         return
func.func @main(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<4x8xf32>
  cond {
    %n = stablehlo.constant dense<3> : tensor<i32>
    %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.add %i, %one : tensor<i32>
    %2 = stablehlo.multiply %x, %x : tensor<4x8xf32>
    stablehlo.return %1, %2 : tensor<i32>, tensor<4x8xf32>
  }
  return %0#1 : tensor<4x8xf32>
}
