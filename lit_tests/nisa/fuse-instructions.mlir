// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --fuse-instructions %s | FileCheck %s

!tile = memref<128x512xf32, "sbuf">
!half = memref<128x512xbf16, "sbuf">
!row = memref<128x1xf32, "sbuf">
!left = memref<128x128xf32, "sbuf">
!bank = memref<128x512xf32, "psum">
!banks = memref<128x2x512xf32, "psum">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#half = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#left = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>
#row = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>
#rows = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [0, 512]]>
#halves = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [256, 2], [1, 256]]>
#swapped = #nki.access<f32, affine_map<() -> (0, 256)>, [[1, 128], [-256, 2], [1, 256]]>
#second = #nki.access<f32, affine_map<() -> (0, 512)>, [[1, 128], [1, 512]]>

// exp(x - max) and its sum: the maximum is negated where it is computed, and is the bias of the exponential, which sums
// its result.
// CHECK-LABEL: func.func @softmax(
// CHECK:         %[[X:.*]] = memref.alloc() {nki.name = "x"}
// CHECK:         "nisa.tensor_reduce"(%[[MAX:[a-z0-9_]+]], %[[X]]) {{.*}}negate = true, op = "maximum"
// CHECK-NEXT:    "nisa.activation_reduce"(%[[E:[a-z0-9_]+]], %[[SUM:[a-z0-9_]+]], %[[X]], %[[MAX]]) {{.*}}fn = "exp", {{.*}}reduce_op = "add"
// CHECK-NEXT:    "nisa.tensor_scalar"(%[[X]], %[[E]], %[[SUM]]) {{.*}}op0 = "divide"
// CHECK-NEXT:    return
func.func @softmax() {
  %x = memref.alloc() {nki.name = "x"} : !tile
  %m = memref.alloc() : !row
  %t = memref.alloc() : !tile
  %e = memref.alloc() : !tile
  %s = memref.alloc() : !row
  "nisa.tensor_reduce"(%m, %x) {access = [#row, #tile], axes = [1], engine = "unknown", mask = #all, negate = false, op = "maximum"} : (!row, !tile) -> ()
  "nisa.tensor_scalar"(%t, %x, %m) {access = [#tile, #tile, #rows], engine = "unknown", imm0 = 0.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "subtract", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, reverse0 = false, reverse1 = false} : (!tile, !tile, !row) -> ()
  "nisa.activation"(%e, %t) {access = [#tile, #tile], engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = #all, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !tile) -> ()
  "nisa.tensor_reduce"(%s, %e) {access = [#row, #tile], axes = [1], engine = "unknown", mask = #all, negate = false, op = "add"} : (!row, !tile) -> ()
  "nisa.tensor_scalar"(%x, %e, %s) {access = [#tile, #tile, #rows], engine = "unknown", imm0 = 0.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "divide", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, reverse0 = false, reverse1 = false} : (!tile, !tile, !row) -> ()
  return
}

// A sum along two axes that are all of a tile's free elements is the sum of the activation's result, too.
// CHECK-LABEL: func.func @two_axes(
// CHECK:         "nisa.activation_reduce"(%{{.*}}) {{.*}}fn = "square", {{.*}}reduce_op = "add"
// CHECK-NOT:     nisa.tensor_reduce
// CHECK:         return
func.func @two_axes() {
  %x = memref.alloc() : !tile
  %t = memref.alloc() : !tile
  %s = memref.alloc() : memref<128x1x1xf32, "sbuf">
  "nisa.activation"(%t, %x) {access = [#tile, #tile], engine = "scalar", fn = "square", imm = 1.0 : f64, mask = #all, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !tile) -> ()
  "nisa.tensor_reduce"(%s, %t) {access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1], [1, 1]]>, #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [256, 2], [1, 256]]>], axes = [1, 2], engine = "unknown", mask = #all, negate = false, op = "add"} : (memref<128x1x1xf32, "sbuf">, !tile) -> ()
  return
}

// The axes of one element that a copy of a sum leaves out do not matter, nor those that it joins.
// CHECK-LABEL: func.func @axes_of_a_copy(
// CHECK:         %[[C:.*]] = memref.alloc() : memref<128x1xbf16, "sbuf">
// CHECK:         "nisa.tensor_reduce"(%[[C]], %{{.*}}) {access = [#nki.access<bf16, {{.*}}, {{\[\[}}1, 128], [1, 1], [1, 1]]>
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[H:.*]], %{{.*}}, %{{.*}}) {access = [#nki.access<bf16, {{.*}}, {{\[\[}}1, 128], [256, 2], [1, 256]]>
// CHECK-NEXT:    return
func.func @axes_of_a_copy() {
  %x = memref.alloc() : !tile
  %s = memref.alloc() : memref<128x1x1xf32, "sbuf">
  %c = memref.alloc() : memref<128x1xbf16, "sbuf">
  %t = memref.alloc() : !tile
  %h = memref.alloc() : !half
  "nisa.tensor_reduce"(%s, %x) {access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [0, 1], [0, 1]]>, #halves], axes = [1, 2], engine = "unknown", mask = #all, negate = false, op = "add"} : (memref<128x1x1xf32, "sbuf">, !tile) -> ()
  "nisa.tensor_copy"(%c, %s) {access = [#nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>, #row], engine = "unknown", mask = #all} : (memref<128x1xbf16, "sbuf">, memref<128x1x1xf32, "sbuf">) -> ()
  "nisa.tensor_tensor"(%t, %x, %x) {access = [#halves, #halves, #swapped], engine = "unknown", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  "nisa.tensor_copy"(%h, %t) {access = [#half, #tile], engine = "unknown", mask = #all} : (!half, !tile) -> ()
  return
}

// Masks of one form select other elements of other axes.
// CHECK-LABEL: func.func @masked_axes(
// CHECK:         "nisa.tensor_tensor"(%[[T:.*]], %{{.*}}, %{{.*}})
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[T]])
// CHECK-NEXT:    return
func.func @masked_axes() {
  %x = memref.alloc() : !tile
  %t = memref.alloc() : !tile
  %h = memref.alloc() : !half
  "nisa.tensor_tensor"(%t, %x, %x) {access = [#halves, #halves, #swapped], engine = "unknown", mask = affine_set<(d0, d1, d2) : (-d1 >= 0)>, op = "add"} : (!tile, !tile, !tile) -> ()
  "nisa.tensor_copy"(%h, %t) {access = [#half, #tile], engine = "unknown", mask = affine_set<(d0, d1) : (-d1 >= 0)>} : (!half, !tile) -> ()
  return
}

// A product is written where it was copied to; the copy to SBUF is of any engine.
// CHECK-LABEL: func.func @copied(
// CHECK:         %[[Q:.*]] = memref.alloc() : memref<128x2x512xf32, "psum">
// CHECK:         "nisa.nc_matmul"(%[[Q]], %[[L:.*]], %[[R:.*]]) {access = [#nki.access<f32, {{.*}}, {{\[\[}}1, 128], [1, 512]]>
// CHECK-NEXT:    "nisa.tensor_copy"(%[[R]], %[[Q]]) {{.*}}engine = "unknown"
// CHECK-NEXT:    return
func.func @copied() {
  %l = memref.alloc() : !left
  %r = memref.alloc() : !tile
  %p = memref.alloc() : !bank
  %q = memref.alloc() : !banks
  "nisa.nc_matmul"(%p, %l, %r) {access = [#tile, #left, #tile], accumulate = false, engine = "unknown", mask = #all} : (!bank, !left, !tile) -> ()
  "nisa.tensor_copy"(%q, %p) {access = [#second, #tile], engine = "unknown", mask = #all} : (!banks, !bank) -> ()
  "nisa.activation"(%r, %q) {access = [#tile, #second], engine = "unknown", fn = "copy", imm = 1.0 : f64, mask = #all, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !banks) -> ()
  return
}

// A copy between two loops is of any engine, too.
// CHECK-LABEL: func.func @alone(
// CHECK:         %[[P:.*]] = memref.alloc() : memref<128x512xf32, "psum">
// CHECK:         %[[R:.*]] = memref.alloc() : memref<128x512xf32, "sbuf">
// CHECK-NEXT:    "nisa.tensor_copy"(%[[R]], %[[P]]) {{.*}}engine = "unknown"
func.func @alone() {
  %p = memref.alloc() : !bank
  %r = memref.alloc() : !tile
  "nisa.activation"(%r, %p) {access = [#tile, #tile], engine = "unknown", fn = "copy", imm = 1.0 : f64, mask = #all, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !bank) -> ()
  return
}

// Two operations with numbers are one instruction, a third joins the product with a tile.
// CHECK-LABEL: func.func @scalars(
// CHECK:         "nisa.tensor_scalar"(%[[U:[a-z0-9_]+]], %[[X:[a-z0-9_]+]]) {{.*}}imm0 = 2.0{{.*}}, imm1 = 3.0{{.*}}, op0 = "multiply", op1 = "add"
// CHECK-NEXT:    "nisa.scalar_tensor_tensor"(%[[X]], %[[U]], %[[M:[a-z0-9_]+]], %[[W:[a-z0-9_]+]]) {{.*}}op0 = "subtract", op1 = "multiply"
// CHECK-NEXT:    return
func.func @scalars() {
  %x = memref.alloc() : !tile
  %m = memref.alloc() : !row
  %w = memref.alloc() : !tile
  %t = memref.alloc() : !tile
  %u = memref.alloc() : !tile
  %v = memref.alloc() : !tile
  "nisa.tensor_scalar"(%t, %x) {access = [#tile, #tile], engine = "unknown", imm0 = 2.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "multiply", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!tile, !tile) -> ()
  "nisa.tensor_scalar"(%u, %t) {access = [#tile, #tile], engine = "unknown", imm0 = 3.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "add", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!tile, !tile) -> ()
  "nisa.tensor_scalar"(%v, %u, %m) {access = [#tile, #tile, #rows], engine = "unknown", imm0 = 0.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "subtract", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, reverse0 = false, reverse1 = false} : (!tile, !tile, !row) -> ()
  "nisa.tensor_tensor"(%x, %v, %w) {access = [#tile, #tile, #tile], engine = "unknown", mask = #all, op = "multiply"} : (!tile, !tile, !tile) -> ()
  return
}

// A tile that rounds stays: the exponential of a bfloat16 is another one. So does a tile that two instructions read.
// CHECK-LABEL: func.func @rounded(
// CHECK:         "nisa.tensor_scalar"(%[[H:[a-z0-9_]+]], %[[X:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.activation"(%[[E:[a-z0-9_]+]], %[[H]])
// CHECK-NEXT:    "nisa.tensor_scalar"(%[[T:[a-z0-9_]+]], %[[E]])
// CHECK-NEXT:    "nisa.tensor_scalar"(%[[X]], %[[T]])
// CHECK-NEXT:    "nisa.tensor_scalar"(%[[E]], %[[T]])
// CHECK-NEXT:    return
func.func @rounded() {
  %x = memref.alloc() : !tile
  %h = memref.alloc() : !half
  %e = memref.alloc() : !tile
  %t = memref.alloc() : !tile
  "nisa.tensor_scalar"(%h, %x) {access = [#half, #tile], engine = "unknown", imm0 = 2.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "multiply", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!half, !tile) -> ()
  "nisa.activation"(%e, %h) {access = [#tile, #half], engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = #all, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !half) -> ()
  "nisa.tensor_scalar"(%t, %e) {access = [#tile, #tile], engine = "unknown", imm0 = 3.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "add", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!tile, !tile) -> ()
  "nisa.tensor_scalar"(%x, %t) {access = [#tile, #tile], engine = "unknown", imm0 = 3.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "add", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!tile, !tile) -> ()
  "nisa.tensor_scalar"(%e, %t) {access = [#tile, #tile], engine = "unknown", imm0 = 3.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "add", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!tile, !tile) -> ()
  return
}
