// RUN: nki-opt --arith-to-scalar %s | FileCheck %s

#id = affine_map<(i) -> (i)>

// bfloat16 is computed in float32 and rounded; a value is converted once.
// CHECK-LABEL: func.func @narrow
// CHECK:         %[[X:.*]] = "scalar.convert"(%in) : (bf16) -> f32
// CHECK:         %[[S:.*]] = "scalar.alu"(%[[X]], %[[X]]) {fn = "add"} : (f32, f32) -> f32
// CHECK:         %[[R:.*]] = "scalar.convert"(%[[S]]) : (f32) -> bf16
// CHECK:         linalg.yield %[[R]]
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
// CHECK-LABEL: func.func @chosen
// CHECK:         %[[L:.*]] = "scalar.alu"(%in, %[[IN2:.*]]) {fn = "greater_equal"} : (f32, f32) -> f32
// CHECK:         %[[N:.*]] = "scalar.alu"(%[[L]]) {fn = "logical_not"}
// CHECK:         %[[C:.*]] = "scalar.convert"(%[[N]]) : (f32) -> i1
// CHECK:         %[[F:.*]] = "scalar.convert"(%[[C]]) : (i1) -> f32
// CHECK:         "scalar.alu"(%[[F]], %in, %[[IN2]]) {fn = "select"}
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
// CHECK-LABEL: func.func @without_sign
// CHECK:         linalg.index 0
// CHECK:         arith.index_cast
// CHECK:         %[[A:.*]] = "scalar.wrap"(%in) : (i32) -> ui32
// CHECK:         %[[B:.*]] = "scalar.wrap"(%{{.*}}) : (i32) -> ui32
// CHECK:         %[[Q:.*]] = "scalar.math"(%[[A]], %[[B]]) {fn = "quotient"} : (ui32, ui32) -> ui32
// CHECK:         "scalar.wrap"(%[[Q]]) : (ui32) -> i32
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
// CHECK-LABEL: func.func @named
// CHECK:         linalg.generic
// CHECK:         "scalar.activation"(%in) {fn = "exp"} : (f32) -> f32
func.func @named(%a: memref<8xf32, "hbm">, %o: memref<8xf32, "hbm">) {
  linalg.exp ins(%a : memref<8xf32, "hbm">) outs(%o : memref<8xf32, "hbm">)
  return
}
