// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg %s | FileCheck %s

// Results are arguments; a loop that counts is an scf.for, what it carries is in a buffer.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<4x8xf32, "hbm"> {nki.name = "arg0"},
// CHECK-SAME:    %[[R:[a-z0-9]+]]: memref<4x8xf32, "hbm"> {nki.name = "result0", nki.shared = 0 : i64})
// CHECK-SAME:    attributes {nki.results = [1]}
// CHECK-DAG:     %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG:     %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG:     %[[C3:.*]] = arith.constant 3 : index
// CHECK:         %[[START:.*]] = memref.alloc() {{.*}} : memref<4x8xf32, "hbm">
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[A]] : {{.*}}) outs(%[[START]] :
// CHECK:         linalg.generic {{.*}} ins(%[[START]] : {{.*}}) outs(%[[R]] :
// CHECK:         scf.for %{{.*}} = %[[C0]] to %[[C3]] step %[[C1]] {
// CHECK-NEXT:      %[[NEXT:.*]] = memref.alloc() {{.*}} : memref<4x8xf32, "hbm">
// CHECK-NEXT:      linalg.generic {{.*}} ins(%[[R]] : {{.*}}) outs(%[[NEXT]] :
// CHECK-NEXT:      (%[[X:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:        %[[SQUARE:.*]] = "scalar.alu"(%[[X]], %[[X]]) {fn = "multiply"} : (f32, f32) -> f32
// CHECK-NEXT:        linalg.yield %[[SQUARE]] : f32
// CHECK:           linalg.generic {{.*}} ins(%[[NEXT]] : {{.*}}) outs(%[[R]] :
// CHECK:             linalg.yield %in : f32
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    return
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
