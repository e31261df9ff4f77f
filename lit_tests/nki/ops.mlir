// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt %s | FileCheck %s
// RUN: nki-opt %s | nki-opt - | FileCheck %s
// RUN: nki-opt --print=pretty %s | nki-opt - | FileCheck %s

// One operation of each class of the tile language, read and printed. Patterns are named by memory, extents and
// dtype; each is the whole of its buffer.

#all = affine_set<() : (0 == 0)>
#chip_3x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 3], [1, 6]]>
#chip_4x1_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 1]]>
#chip_4x3_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 3]]>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#chip_4x6_i32 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#chip_4x6_ui8 = #nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#chip_6x4_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 6], [1, 4]]>
#hbm_4x6_f32 = #nki.access<f32, affine_map<() -> (0)>, [[6, 4], [1, 6]]>
// Where a view begins: from a symbol, with an element of another type, with one element in each partition, before the buffer.
#columns = #nki.access<f32, affine_map<()[s0] -> (1, s0 * 2)>, [[1, 3], [1, 2]]>
#bytes = #nki.access<ui8, affine_map<() -> (0, 3)>, [[1, 4], [4, 6]]>
#first = #nki.access<f32, affine_map<() -> (0, 5)>, [[1, 4], [1, 1]]>
#before = #nki.access<f32, affine_map<() -> (0, -2)>, [[1, 4], [1, 6]]>

// Affine maps are printed before the functions.
// CHECK-DAG: #[[IN_HBM:map[0-9]*]] = affine_map<() -> (0)>
// CHECK-DAG: #[[ON_CHIP:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-DAG: #[[COLUMN:map[0-9]*]] = affine_map<()[s0] -> (1, s0 * 2)>
// CHECK-DAG: #[[BYTE_3:map[0-9]*]] = affine_map<() -> (0, 3)>
// CHECK-DAG: #[[COLUMN_5:map[0-9]*]] = affine_map<() -> (0, 5)>
// CHECK-DAG: #[[BEFORE:map[0-9]*]] = affine_map<() -> (0, -2)>
// CHECK-DAG: #[[EXPRESSION:map[0-9]*]] = affine_map<(d0, d1) -> (d0 * 2 + d1)>
// CHECK-DAG: #[[ALL:set[0-9]*]] = affine_set<() : (0 == 0)>

// dst = lhs (op) rhs, computed in float32 (bit operations and 32-bit integer arithmetic: in the integer type).
// CHECK-LABEL: func.func @binary(
// CHECK-NEXT:    "nki.binary"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      mask = #[[ALL]], op = "subtract"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @binary(%dst: memref<4x6xf32, "sbuf">, %lhs: memref<4x6xf32, "sbuf">, %rhs: memref<4x6xf32, "sbuf">) {
  "nki.binary"(%dst, %lhs, %rhs) {
    access = [#chip_4x6_f32, #chip_4x6_f32, #chip_4x6_f32], mask = #all,
    op = "subtract"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = src (op) scalar, or scalar (op) src with reverse.
// CHECK-LABEL: func.func @binary_scalar(
// CHECK-NEXT:    "nki.binary_scalar"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      mask = #[[ALL]], op = "subtract", reverse = true, scalar = 1.500000e+00 : f64}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @binary_scalar(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nki.binary_scalar"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    op = "subtract", scalar = 1.500000e+00 : f64, reverse = true
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = src, both on chip; they may overlap, all reads come first.
// CHECK-LABEL: func.func @copy(
// CHECK-NEXT:    "nki.copy"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nki.copy"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// Hand the tile to the print sink of the running program. Does nothing on the device.
// CHECK-LABEL: func.func @device_print(
// CHECK-NEXT:    "nki.device_print"(%arg0)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      mask = #[[ALL]], prefix = "tile"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @device_print(%src: memref<4x6xf32, "sbuf">) {
  "nki.device_print"(%src) {
    access = [#chip_4x6_f32], mask = #all,
    prefix = "tile"
  } : (memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst[i] = expression(i), an affine expression over dst's axes and the op's symbols, in int32.
// CHECK-LABEL: func.func @iota(
// CHECK-NEXT:    "nki.iota"(%arg0)
// CHECK-SAME:      access = [#nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      expression = #[[EXPRESSION]], mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @iota(%dst: memref<4x6xi32, "sbuf">) {
  "nki.iota"(%dst) {
    access = [#chip_4x6_i32], mask = #all,
    expression = affine_map<(d0, d1) -> (d0 * 2 + d1)>
  } : (memref<4x6xi32, "sbuf">) -> ()
  return
}

// dst (on chip) = src (HBM).
// CHECK-LABEL: func.func @load(
// CHECK-NEXT:    "nki.load"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>]
// CHECK-SAME:      mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "hbm">) -> ()
// CHECK-NEXT:    return
func.func @load(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "hbm">) {
  "nki.load"(%dst, %src) {
    access = [#chip_4x6_f32, #hbm_4x6_f32], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "hbm">) -> ()
  return
}

// dst[m, n] = sum over k of stationary[k, m] * moving[k, n], added to dst with accumulate.
// CHECK-LABEL: func.func @matmul(
// CHECK-NEXT:    "nki.matmul"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 3], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 3]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      accumulate = false, mask = #[[ALL]]}
// CHECK-SAME:      : (memref<3x6xf32, "psum">, memref<4x3xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @matmul(%dst: memref<3x6xf32, "psum">, %stationary: memref<4x3xf32, "sbuf">,
      %moving: memref<4x6xf32, "sbuf">) {
  "nki.matmul"(%dst, %stationary, %moving) {
    access = [#chip_3x6_f32, #chip_4x3_f32, #chip_4x6_f32], mask = #all,
    accumulate = false
  } : (memref<3x6xf32, "psum">, memref<4x3xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = value, converted to dst's dtype.
// CHECK-LABEL: func.func @memset(
// CHECK-NEXT:    "nki.memset"(%arg0)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      mask = #[[ALL]], value = 2.500000e+00 : f64}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @memset(%dst: memref<4x6xf32, "sbuf">) {
  "nki.memset"(%dst) {
    access = [#chip_4x6_f32], mask = #all,
    value = 2.500000e+00 : f64
  } : (memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = src reduced by op over free axes, accumulated in float32; dst has extent 1 on those axes.
// CHECK-LABEL: func.func @reduce(
// CHECK-NEXT:    "nki.reduce"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      axes = [1], mask = #[[ALL]], op = "add"}
// CHECK-SAME:      : (memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @reduce(%dst: memref<4x1xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nki.reduce"(%dst, %src) {
    access = [#chip_4x1_f32, #chip_4x6_f32], mask = #all,
    op = "add", axes = [1]
  } : (memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = on_true where condition is not 0, else on_false.
// CHECK-LABEL: func.func @select(
// CHECK-NEXT:    "nki.select"(%arg0, %arg1, %arg2, %arg3)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<ui8, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xui8, "sbuf">, memref<4x6xf32, "sbuf">,
// CHECK-SAME:         memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @select(%dst: memref<4x6xf32, "sbuf">, %condition: memref<4x6xui8, "sbuf">,
      %on_true: memref<4x6xf32, "sbuf">, %on_false: memref<4x6xf32, "sbuf">) {
  "nki.select"(%dst, %condition, %on_true, %on_false) {
    access = [#chip_4x6_f32, #chip_4x6_ui8, #chip_4x6_f32, #chip_4x6_f32], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xui8, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst (HBM) = src (on chip).
// CHECK-LABEL: func.func @store(
// CHECK-NEXT:    "nki.store"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "hbm">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @store(%dst: memref<4x6xf32, "hbm">, %src: memref<4x6xf32, "sbuf">) {
  "nki.store"(%dst, %src) {
    access = [#hbm_4x6_f32, #chip_4x6_f32], mask = #all
  } : (memref<4x6xf32, "hbm">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst[f, p] = src[p, f]: partitions become the free axis.
// CHECK-LABEL: func.func @transpose(
// CHECK-NEXT:    "nki.transpose"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 6], [1, 4]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      mask = #[[ALL]]}
// CHECK-SAME:      : (memref<6x4xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @transpose(%dst: memref<6x4xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nki.transpose"(%dst, %src) {
    access = [#chip_6x4_f32, #chip_4x6_f32], mask = #all
  } : (memref<6x4xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = fn(src), an activation function or a one-operand ALU operation, in float32.
// CHECK-LABEL: func.func @unary(
// CHECK-NEXT:    "nki.unary"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      fn = "exp", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @unary(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nki.unary"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    fn = "exp"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// A tile as a memref: from a symbol on; as elements of another type; without a dim of one element. One that a mask cuts may
// leave its buffer.
// CHECK-LABEL: func.func @view(
// CHECK:           "nki.view"(%arg0, %{{.*}}) {access = #nki.access<f32, #[[COLUMN]], {{\[\[}}1, 3], [1, 2]]>}
// CHECK-SAME:        : (memref<4x6xf32, "sbuf">, index) -> memref<3x2xf32, strided<[6, 1], offset: ?>, "sbuf">
// CHECK:         "nki.view"(%arg0) {access = #nki.access<ui8, #[[BYTE_3]], {{\[\[}}1, 4], [4, 6]]>}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">) -> memref<4x6xui8, strided<[24, 4], offset: 3>, "sbuf">
// CHECK-NEXT:    "nki.view"(%arg0) {access = #nki.access<f32, #[[COLUMN_5]], {{\[\[}}1, 4], [1, 1]]>, dims = array<i64: 0>}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">) -> memref<4xf32, strided<[6], offset: 5>, "sbuf">
// CHECK-NEXT:    "nki.view"(%arg0) {access = #nki.access<f32, #[[BEFORE]], {{\[\[}}1, 4], [1, 6]]>, masked}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">) -> memref<4x6xf32, strided<[6, 1], offset: ?>, "sbuf">
// CHECK-NEXT:    "nki.view"(%arg1) {access = #nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>}
// CHECK-SAME:      : (memref<4x6xf32, "hbm">) -> memref<4x6xf32, strided<[6, 1]>, "hbm">
func.func @view(%x: memref<4x6xf32, "sbuf">, %h: memref<4x6xf32, "hbm">) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  scf.for %i = %c0 to %c3 step %c1 {
    %a = "nki.view"(%x, %i) {access = #columns}
      : (memref<4x6xf32, "sbuf">, index) -> memref<3x2xf32, strided<[6, 1], offset: ?>, "sbuf">
  }
  %b = "nki.view"(%x) {access = #bytes} : (memref<4x6xf32, "sbuf">) -> memref<4x6xui8, strided<[24, 4], offset: 3>, "sbuf">
  %c = "nki.view"(%x) {access = #first, dims = array<i64: 0>}
    : (memref<4x6xf32, "sbuf">) -> memref<4xf32, strided<[6], offset: 5>, "sbuf">
  %d = "nki.view"(%x) {access = #before, masked}
    : (memref<4x6xf32, "sbuf">) -> memref<4x6xf32, strided<[6, 1], offset: ?>, "sbuf">
  %e = "nki.view"(%h) {access = #hbm_4x6_f32} : (memref<4x6xf32, "hbm">) -> memref<4x6xf32, strided<[6, 1]>, "hbm">
  return
}
