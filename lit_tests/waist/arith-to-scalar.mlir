// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --arith-to-scalar %s | FileCheck %s

#id = affine_map<(i) -> (i)>

// bfloat16 is computed in float32 and rounded; a value is converted once.
// CHECK-LABEL: func.func @narrow(
// CHECK:         (%[[IN:.*]]: bf16, %{{.*}}: bf16):
// CHECK-NEXT:      %[[X:.*]] = "scalar.convert"(%[[IN]]) : (bf16) -> f32
// CHECK-NEXT:      %[[S:.*]] = "scalar.alu"(%[[X]], %[[X]]) {fn = "add"} : (f32, f32) -> f32
// CHECK-NEXT:      %[[R:.*]] = "scalar.convert"(%[[S]]) : (f32) -> bf16
// CHECK-NEXT:      linalg.yield %[[R]] : bf16
func.func @narrow(%a: memref<8xbf16, "hbm">, %o: memref<8xbf16, "hbm">) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%a : memref<8xbf16, "hbm">) outs(%o : memref<8xbf16, "hbm">) {
  ^bb0(%in: bf16, %out: bf16):
    %0 = arith.addf %in, %in : bf16
    linalg.yield %0 : bf16
  }
  return
}

// What holds for NaN as well is the opposite of an ordered comparison; a choice takes its condition as a number.
// CHECK-LABEL: func.func @chosen(
// CHECK:         (%[[A:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[L:.*]] = "scalar.alu"(%[[A]], %[[B]]) {fn = "greater_equal"} : (f32, f32) -> f32
// CHECK-NEXT:      %[[N:.*]] = "scalar.alu"(%[[L]]) {fn = "logical_not"} : (f32) -> f32
// CHECK-NEXT:      %[[C:.*]] = "scalar.convert"(%[[N]]) : (f32) -> i1
// CHECK-NEXT:      %[[F:.*]] = "scalar.convert"(%[[C]]) : (i1) -> f32
// CHECK-NEXT:      %[[R:.*]] = "scalar.alu"(%[[F]], %[[A]], %[[B]]) {fn = "select"} : (f32, f32, f32) -> f32
// CHECK-NEXT:      linalg.yield %[[R]] : f32
func.func @chosen(%a: memref<8xf32, "hbm">, %b: memref<8xf32, "hbm">, %o: memref<8xf32, "hbm">) {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
    ins(%a, %b : memref<8xf32, "hbm">, memref<8xf32, "hbm">) outs(%o : memref<8xf32, "hbm">) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %0 = arith.cmpf ult, %in, %in2 : f32
    %1 = arith.select %0, %in, %in2 : f32
    linalg.yield %1 : f32
  }
  return
}

// Integers without a sign are so between two changes of type; index arithmetic stays.
// CHECK-LABEL: func.func @without_sign(
// CHECK:         (%[[IN:.*]]: i32, %{{.*}}: i32):
// CHECK-NEXT:      %[[I:.*]] = linalg.index 0 : index
// CHECK-NEXT:      %[[N:.*]] = arith.index_cast %[[I]] : index to i32
// CHECK-NEXT:      %[[A:.*]] = "scalar.wrap"(%[[IN]]) : (i32) -> ui32
// CHECK-NEXT:      %[[B:.*]] = "scalar.wrap"(%[[N]]) : (i32) -> ui32
// CHECK-NEXT:      %[[Q:.*]] = "scalar.math"(%[[A]], %[[B]]) {fn = "quotient"} : (ui32, ui32) -> ui32
// CHECK-NEXT:      %[[R:.*]] = "scalar.wrap"(%[[Q]]) : (ui32) -> i32
// CHECK-NEXT:      linalg.yield %[[R]] : i32
func.func @without_sign(%a: memref<8xi32, "hbm">, %o: memref<8xi32, "hbm">) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%a : memref<8xi32, "hbm">) outs(%o : memref<8xi32, "hbm">) {
  ^bb0(%in: i32, %out: i32):
    %i = linalg.index 0 : index
    %n = arith.index_cast %i : index to i32
    %0 = arith.divui %in, %n : i32
    linalg.yield %0 : i32
  }
  return
}

// Named operations have bodies, too.
// CHECK-LABEL: func.func @named(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<8xf32, "hbm">, %[[O:[a-z0-9]+]]: memref<8xf32, "hbm">
// CHECK-NEXT:    linalg.generic {{.*}} iterator_types = ["parallel"]} ins(%[[A]] : {{.*}}) outs(%[[O]] :
// CHECK-NEXT:    (%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[E:.*]] = "scalar.activation"(%[[IN]]) {fn = "exp"} : (f32) -> f32
// CHECK-NEXT:      linalg.yield %[[E]] : f32
func.func @named(%a: memref<8xf32, "hbm">, %o: memref<8xf32, "hbm">) {
  linalg.exp ins(%a : memref<8xf32, "hbm">) outs(%o : memref<8xf32, "hbm">)
  return
}
