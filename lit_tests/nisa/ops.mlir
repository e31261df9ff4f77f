// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt %s | FileCheck %s
// RUN: nki-opt %s | nki-opt - | FileCheck %s
// RUN: nki-opt --print=pretty %s | nki-opt - | FileCheck %s

// One operation of each class of the engine instructions, read and printed. Patterns are named by memory, extents and
// dtype; each is the whole of its buffer.

#all = affine_set<() : (0 == 0)>
#chip_16x16_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 16], [1, 16]]>
#chip_16x1_ui16 = #nki.access<ui16, affine_map<() -> (0, 0)>, [[1, 16], [1, 1]]>
#chip_16x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 16], [1, 6]]>
#chip_1x1_i32 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>
#chip_1x1_ui32 = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>
#chip_1x2_i32 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 2]]>
#chip_1x2_ui32 = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 1], [1, 2]]>
#chip_1x2x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 1], [6, 2], [1, 6]]>
#chip_1x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 1], [1, 6]]>
#chip_1x6_i32 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 6]]>
#chip_32x12_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 32], [1, 12]]>
#chip_32x1_ui16 = #nki.access<ui16, affine_map<() -> (0, 0)>, [[1, 32], [1, 1]]>
#chip_32x2_ui32 = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 32], [1, 2]]>
#chip_32x2_ui8 = #nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 32], [1, 2]]>
#chip_32x3_bf16 = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 32], [1, 3]]>
#chip_32x3_ui32 = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 32], [1, 3]]>
#chip_32x4_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 32], [1, 4]]>
#chip_32x6_bf16 = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 32], [1, 6]]>
#chip_32x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 32], [1, 6]]>
#chip_32x8_bf16 = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 32], [1, 8]]>
#chip_3x4_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 3], [1, 4]]>
#chip_3x4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 3], [6, 4], [1, 6]]>
#chip_3x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 3], [1, 6]]>
#chip_4x1_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 1]]>
#chip_4x1_i32 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 4], [1, 1]]>
#chip_4x2x3_f8 = #nki.access<f8E4M3, affine_map<() -> (0, 0)>, [[1, 4], [3, 2], [1, 3]]>
#chip_4x2x6_f8 = #nki.access<f8E5M2, affine_map<() -> (0, 0)>, [[1, 4], [6, 2], [1, 6]]>
#chip_4x2_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 2]]>
#chip_4x3_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 3]]>
#chip_4x3_ui32 = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 4], [1, 3]]>
#chip_4x3x3_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [3, 3], [1, 3]]>
#chip_4x4_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 4]]>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#chip_4x6_i32 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#chip_4x6_ui32 = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#chip_4x6_ui8 = #nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#chip_4x7_i32 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 4], [1, 7]]>
#chip_4x8_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>
#chip_4x8_ui32 = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>
#chip_64x4_ui32 = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 64], [1, 4]]>
#chip_64x4_ui8 = #nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 64], [1, 4]]>
#chip_64x6_ui32 = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 64], [1, 6]]>
#chip_64x6_ui8 = #nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 64], [1, 6]]>
#chip_6x4_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 6], [1, 4]]>
#hbm_1x512_f32 = #nki.access<f32, affine_map<() -> (0)>, [[512, 1], [1, 512]]>
#hbm_3x1_ui32 = #nki.access<ui32, affine_map<() -> (0)>, [[1, 3], [1, 1]]>
#hbm_4x3x6_f32 = #nki.access<f32, affine_map<() -> (0)>, [[18, 4], [6, 3], [1, 6]]>
#hbm_4x6_f32 = #nki.access<f32, affine_map<() -> (0)>, [[6, 4], [1, 6]]>
#hbm_8_f32 = #nki.access<f32, affine_map<() -> (0)>, [[1, 8]]>
#hbm_3x8x9_f32 = #nki.access<f32, affine_map<() -> (0)>, [[72, 3], [9, 8], [1, 9]]>
#hbm_8x6_f32 = #nki.access<f32, affine_map<() -> (0)>, [[6, 8], [1, 6]]>

// Affine maps are printed before the functions.
// CHECK-DAG: #[[IN_HBM:map[0-9]*]] = affine_map<() -> (0)>
// CHECK-DAG: #[[ON_CHIP:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-DAG: #[[EXPRESSION:map[0-9]*]] = affine_map<(d0, d1) -> (d0 * 2 + d1)>
// CHECK-DAG: #[[PREDICATE:map[0-9]*]] = affine_map<(d0, d1) -> (d0 - d1 - 2)>
// CHECK-DAG: #[[START:map[0-9]*]] = affine_map<(d0, d1, d2, d3, d4) -> (0)>
// CHECK-DAG: #[[POSITION:map[0-9]*]] = affine_map<(d0, d1, d2, d3, d4) -> (d1 * 2)>
// CHECK-DAG: #[[FIRST:map[0-9]*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0)>
// CHECK-DAG: #[[PLACE:map[0-9]*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0 * 72 + d1 * 2)>
// CHECK-DAG: #[[SECOND:map[0-9]*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1 * 2)>
// CHECK-DAG: #[[ALL:set[0-9]*]] = affine_set<() : (0 == 0)>

// dst = fn((src op0 operand0) op1 operand1); fn may be prelu, whose slope is slope or the constant
// alpha.
// CHECK-LABEL: func.func @activate2(
// CHECK-NEXT:    "nisa.activate2"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      alpha = 0.000000e+00 : f64, engine = "unknown", fn = "exp", imm0 = 5.000000e-01 : f64,
// CHECK-SAME:      imm1 = 2.500000e-01 : f64, mask = #[[ALL]], op0 = "multiply", op1 = "add",
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 0, 1, 0, 0, 0, 0>, reduce_cmd = "idle", reduce_op = "add",
// CHECK-SAME:      reverse0 = false, reverse1 = false}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @activate2(%dst: memref<4x6xf32, "sbuf">, %accumulator: memref<4x1xf32, "sbuf">,
      %src: memref<4x6xf32, "sbuf">) {
  "nisa.activate2"(%dst, %accumulator, %src) {
    access = [#chip_4x6_f32, #chip_4x1_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", fn = "exp", op0 = "multiply", op1 = "add", imm0 = 5.000000e-01 : f64,
      imm1 = 2.500000e-01 : f64, alpha = 0.000000e+00 : f64, reverse0 = false, reverse1 = false,
      reduce_cmd = "idle", reduce_op = "add", operandSegmentSizes = array<i32: 1, 1, 0, 1, 0, 0, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = fn(src * scale + bias); scale is a [P, 1] tile or the constant imm, bias a [P, 1] tile or 0.
// CHECK-LABEL: func.func @activation(
// CHECK-NEXT:    "nisa.activation"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", fn = "exp", imm = 5.000000e-01 : f64, mask = #[[ALL]],
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @activation(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.activation"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", fn = "exp", imm = 5.000000e-01 : f64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = fn(src * scale + bias); the accumulators follow reduce_cmd and are read into reduce_res.
// CHECK-LABEL: func.func @activation_accumulate(
// CHECK-NEXT:    "nisa.activation_accumulate"(%arg0, %arg1, %arg2, %arg3)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", fn = "exp", imm = 1.000000e+00 : f64, mask = #[[ALL]],
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>, reduce_cmd = "reduce", reduce_op = "add"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">,
// CHECK-SAME:         memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @activation_accumulate(%dst: memref<4x6xf32, "sbuf">, %accumulator: memref<4x1xf32, "sbuf">,
      %reduce_res: memref<4x1xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.activation_accumulate"(%dst, %accumulator, %reduce_res, %src) {
    access = [#chip_4x6_f32, #chip_4x1_f32, #chip_4x1_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", fn = "exp", reduce_op = "add", reduce_cmd = "reduce", imm = 1.000000e+00 : f64,
      operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = fn(src * scale + bias) and reduce_res = dst's float32 values reduced over the free axes.
// CHECK-LABEL: func.func @activation_reduce(
// CHECK-NEXT:    "nisa.activation_reduce"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", fn = "exp", imm = 5.000000e-01 : f64, mask = #[[ALL]],
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, reduce_op = "add"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @activation_reduce(%dst: memref<4x6xf32, "sbuf">, %reduce_res: memref<4x1xf32, "sbuf">,
      %src: memref<4x6xf32, "sbuf">) {
  "nisa.activation_reduce"(%dst, %reduce_res, %src) {
    access = [#chip_4x6_f32, #chip_4x1_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", fn = "exp", reduce_op = "add", imm = 5.000000e-01 : f64,
      operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = src where predicate (an affine form over the axes) is >= 0 (equal: == 0), else value.
// CHECK-LABEL: func.func @affine_select(
// CHECK-NEXT:    "nisa.affine_select"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", equal = false, mask = #[[ALL]], predicate = #[[PREDICATE]],
// CHECK-SAME:      value = -1.000000e+00 : f64}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @affine_select(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.affine_select"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", predicate = affine_map<(d0, d1) -> (d0 - d1 - 2)>, equal = false,
      value = -1.000000e+00 : f64
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst[p] = (mean, variance) of groups given as (count, mean, variance * count) triples in src[p].
// CHECK-LABEL: func.func @bn_aggr(
// CHECK-NEXT:    "nisa.bn_aggr"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 2]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [3, 3], [1, 3]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x2xf32, "sbuf">, memref<4x3x3xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @bn_aggr(%dst: memref<4x2xf32, "sbuf">, %src: memref<4x3x3xf32, "sbuf">) {
  "nisa.bn_aggr"(%dst, %src) {
    access = [#chip_4x2_f32, #chip_4x3x3_f32], mask = #all,
    engine = "unknown"
  } : (memref<4x2xf32, "sbuf">, memref<4x3x3xf32, "sbuf">) -> ()
  return
}

// dst[p] = (count, mean, variance * count) of the even elements of src[p], then of the odd ones.
// CHECK-LABEL: func.func @bn_stats(
// CHECK-NEXT:    "nisa.bn_stats"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @bn_stats(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.bn_stats"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = lhs + rhs in float32, between HBM and SBUF either way.
// CHECK-LABEL: func.func @dma_compute(
// CHECK-NEXT:    "nisa.dma_compute"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "hbm">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @dma_compute(%dst: memref<4x6xf32, "sbuf">, %lhs: memref<4x6xf32, "hbm">, %rhs: memref<4x6xf32, "sbuf">) {
  "nisa.dma_compute"(%dst, %lhs, %rhs) {
    access = [#chip_4x6_f32, #hbm_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "hbm">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = src between HBM and SBUF, either way or within one, converted on the way. No partition rules.
// CHECK-LABEL: func.func @dma_copy(
// CHECK-NEXT:    "nisa.dma_copy"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "hbm">) -> ()
// CHECK-NEXT:    return
func.func @dma_copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "hbm">) {
  "nisa.dma_copy"(%dst, %src) {
    access = [#chip_4x6_f32, #hbm_4x6_f32], mask = #all,
    engine = "unknown"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "hbm">) -> ()
  return
}

// dst[e...] = src.flat[position(e...) + scales * offset].
// CHECK-LABEL: func.func @dma_dynamic_read(
// CHECK-NEXT:    "nisa.dma_dynamic_read"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 3], [1, 4]]>,
// CHECK-SAME:                #nki.access<f32, #[[IN_HBM]], {{\[\[}}72, 3], [9, 8], [1, 9]]>,
// CHECK-SAME:                #nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 2]]>]
// CHECK-SAME:      engine = "unknown", extents = [8, 9], first = #[[FIRST]], mask = #[[ALL]], mode = "skip",
// CHECK-SAME:      position = #[[PLACE]], scales = [9, 1], second = #[[SECOND]]}
// CHECK-SAME:      : (memref<3x4xf32, "sbuf">, memref<3x8x9xf32, "hbm">, memref<1x2xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @dma_dynamic_read(%dst: memref<3x4xf32, "sbuf">, %src: memref<3x8x9xf32, "hbm">,
      %offset: memref<1x2xi32, "sbuf">) {
  "nisa.dma_dynamic_read"(%dst, %src, %offset) {
    access = [#chip_3x4_f32, #hbm_3x8x9_f32, #chip_1x2_i32], mask = #all,
    engine = "unknown", position = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0 * 72 + d1 * 2)>,
    first = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0)>,
    second = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1 * 2)>, scales = [9, 1], extents = [8, 9], mode = "skip"
  } : (memref<3x4xf32, "sbuf">, memref<3x8x9xf32, "hbm">, memref<1x2xi32, "sbuf">) -> ()
  return
}

// dst.flat[position(e...) + scales * offset] = src[e...], or that added with rmw; equal places accumulate.
// CHECK-LABEL: func.func @dma_dynamic_write(
// CHECK-NEXT:    "nisa.dma_dynamic_write"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[IN_HBM]], {{\[\[}}72, 3], [9, 8], [1, 9]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 3], [1, 4]]>,
// CHECK-SAME:                #nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 2]]>]
// CHECK-SAME:      engine = "unknown", extents = [8, 9], first = #[[FIRST]], mask = #[[ALL]], mode = "error",
// CHECK-SAME:      position = #[[PLACE]], rmw = "add", scales = [9, 1], second = #[[SECOND]]}
// CHECK-SAME:      : (memref<3x8x9xf32, "hbm">, memref<3x4xf32, "sbuf">, memref<1x2xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @dma_dynamic_write(%dst: memref<3x8x9xf32, "hbm">, %src: memref<3x4xf32, "sbuf">,
      %offset: memref<1x2xi32, "sbuf">) {
  "nisa.dma_dynamic_write"(%dst, %src, %offset) {
    access = [#hbm_3x8x9_f32, #chip_3x4_f32, #chip_1x2_i32], mask = #all,
    engine = "unknown", position = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0 * 72 + d1 * 2)>,
    first = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0)>,
    second = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1 * 2)>, scales = [9, 1], extents = [8, 9], mode = "error",
    rmw = "add"
  } : (memref<3x8x9xf32, "hbm">, memref<3x4xf32, "sbuf">, memref<1x2xi32, "sbuf">) -> ()
  return
}

// dst[p] = src[index[p]]: rows of a table in HBM or SBUF; mode skip leaves rows with bad indices untouched.
// CHECK-LABEL: func.func @dma_gather(
// CHECK-NEXT:    "nisa.dma_gather"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 8], [1, 6]]>,
// CHECK-SAME:                #nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]], mode = "error"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<8x6xf32, "hbm">, memref<4x1xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @dma_gather(%dst: memref<4x6xf32, "sbuf">, %src: memref<8x6xf32, "hbm">,
      %index: memref<4x1xi32, "sbuf">) {
  "nisa.dma_gather"(%dst, %src, %index) {
    access = [#chip_4x6_f32, #hbm_8x6_f32, #chip_4x1_i32], mask = #all,
    engine = "unknown", mode = "error"
  } : (memref<4x6xf32, "sbuf">, memref<8x6xf32, "hbm">, memref<4x1xi32, "sbuf">) -> ()
  return
}

// dst[index[p]] = src[p], or with rmw dst[index[p]] = rmw(dst[index[p]], src[p]); equal indices accumulate.
// CHECK-LABEL: func.func @dma_scatter(
// CHECK-NEXT:    "nisa.dma_scatter"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 8], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]], mode = "error", rmw = "add"}
// CHECK-SAME:      : (memref<8x6xf32, "hbm">, memref<4x6xf32, "sbuf">, memref<4x1xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @dma_scatter(%dst: memref<8x6xf32, "hbm">, %src: memref<4x6xf32, "sbuf">,
      %index: memref<4x1xi32, "sbuf">) {
  "nisa.dma_scatter"(%dst, %src, %index) {
    access = [#hbm_8x6_f32, #chip_4x6_f32, #chip_4x1_i32], mask = #all,
    engine = "unknown", mode = "error", rmw = "add"
  } : (memref<8x6xf32, "hbm">, memref<4x6xf32, "sbuf">, memref<4x1xi32, "sbuf">) -> ()
  return
}

// dst = src with its axes permuted, through DMA.
// CHECK-LABEL: func.func @dma_transpose(
// CHECK-NEXT:    "nisa.dma_transpose"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 3], [6, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[IN_HBM]], {{\[\[}}18, 4], [6, 3], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]], permutation = [1, 0, 2]}
// CHECK-SAME:      : (memref<3x4x6xf32, "sbuf">, memref<4x3x6xf32, "hbm">) -> ()
// CHECK-NEXT:    return
func.func @dma_transpose(%dst: memref<3x4x6xf32, "sbuf">, %src: memref<4x3x6xf32, "hbm">) {
  "nisa.dma_transpose"(%dst, %src) {
    access = [#chip_3x4x6_f32, #hbm_4x3x6_f32], mask = #all,
    engine = "unknown", permutation = [1, 0, 2]
  } : (memref<3x4x6xf32, "sbuf">, memref<4x3x6xf32, "hbm">) -> ()
  return
}

// dst = src, set to zero with probability prob ([P, 1], or the constant imm); nothing is rescaled.
// CHECK-LABEL: func.func @dropout(
// CHECK-NEXT:    "nisa.dropout"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 2]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", imm = 5.000000e-01 : f64, mask = #[[ALL]],
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<1x2xui32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @dropout(%dst: memref<4x6xf32, "sbuf">, %state: memref<1x2xui32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.dropout"(%dst, %state, %src) {
    access = [#chip_4x6_f32, #chip_1x2_ui32, #chip_4x6_f32], mask = #all,
    engine = "unknown", imm = 5.000000e-01 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<1x2xui32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst[i...] = src.flat[start + steps * i + scale * index]; mode skip leaves what has no address untouched.
// CHECK-LABEL: func.func @dynamic_read(
// CHECK-NEXT:    "nisa.dynamic_read"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 3]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>,
// CHECK-SAME:                #nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", extent = 4 : i64, mask = #[[ALL]], mode = "error", scale = 1 : i64,
// CHECK-SAME:      start = 1 : i64, steps = [0, 1]}
// CHECK-SAME:      : (memref<4x3xf32, "sbuf">, memref<4x8xf32, "sbuf">, memref<1x1xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @dynamic_read(%dst: memref<4x3xf32, "sbuf">, %src: memref<4x8xf32, "sbuf">,
      %index: memref<1x1xi32, "sbuf">) {
  "nisa.dynamic_read"(%dst, %src, %index) {
    access = [#chip_4x3_f32, #chip_4x8_f32, #chip_1x1_i32], mask = #all,
    engine = "unknown", start = 1 : i64, steps = [0, 1], scale = 1 : i64, extent = 4 : i64, mode = "error"
  } : (memref<4x3xf32, "sbuf">, memref<4x8xf32, "sbuf">, memref<1x1xi32, "sbuf">) -> ()
  return
}

// dst.flat[start + steps * i + scale * index] = src[i...], or added to it with rmw add.
// CHECK-LABEL: func.func @dynamic_write(
// CHECK-NEXT:    "nisa.dynamic_write"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[IN_HBM]], {{\[\[}}512, 1], [1, 512]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 3]]>,
// CHECK-SAME:                #nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", extent = 4 : i64, mask = #[[ALL]], mode = "error", rmw = "add",
// CHECK-SAME:      scale = 16 : i64, start = 2 : i64, steps = [3, 1]}
// CHECK-SAME:      : (memref<1x512xf32, "hbm">, memref<4x3xf32, "sbuf">, memref<4x1xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @dynamic_write(%dst: memref<1x512xf32, "hbm">, %src: memref<4x3xf32, "sbuf">,
      %index: memref<4x1xi32, "sbuf">) {
  "nisa.dynamic_write"(%dst, %src, %index) {
    access = [#hbm_1x512_f32, #chip_4x3_f32, #chip_4x1_i32], mask = #all,
    engine = "unknown", start = 2 : i64, steps = [3, 1], scale = 16 : i64, extent = 4 : i64, mode = "error",
      rmw = "add"
  } : (memref<1x512xf32, "hbm">, memref<4x3xf32, "sbuf">, memref<4x1xi32, "sbuf">) -> ()
  return
}

// dst = exp(src - max); max is highest [P, 1] or the constant imm; the sum accumulates.
// CHECK-LABEL: func.func @exponential(
// CHECK-NEXT:    "nisa.exponential"(%arg0, %arg1, %arg2, %arg3)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", imm = 5.000000e-01 : f64, mask = #[[ALL]],
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, reduce_cmd = "reset_reduce", reduce_op = "add"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">,
// CHECK-SAME:         memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @exponential(%dst: memref<4x6xf32, "sbuf">, %accumulator: memref<4x1xf32, "sbuf">,
      %reduce_res: memref<4x1xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.exponential"(%dst, %accumulator, %reduce_res, %src) {
    access = [#chip_4x6_f32, #chip_4x1_f32, #chip_4x1_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", imm = 5.000000e-01 : f64, reduce_cmd = "reset_reduce", reduce_op = "add",
      operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst[p, j] = src.flat[p, offset(p, j)].
// CHECK-LABEL: func.func @gather_columns(
// CHECK-NEXT:    "nisa.gather_columns"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 12]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 6]]>,
// CHECK-SAME:                #nki.access<ui16, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", group = 16 : i64, mask = #[[ALL]]}
// CHECK-SAME:      : (memref<32x12xf32, "sbuf">, memref<32x6xf32, "sbuf">, memref<32x1xui16, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @gather_columns(%dst: memref<32x12xf32, "sbuf">, %src: memref<32x6xf32, "sbuf">,
      %index: memref<32x1xui16, "sbuf">) {
  "nisa.gather_columns"(%dst, %src, %index) {
    access = [#chip_32x12_f32, #chip_32x6_f32, #chip_32x1_ui16], mask = #all,
    engine = "unknown", group = 16 : i64
  } : (memref<32x12xf32, "sbuf">, memref<32x6xf32, "sbuf">, memref<32x1xui16, "sbuf">) -> ()
  return
}

// dst[p, j] = src[p] flattened, at index[p, j].
// CHECK-LABEL: func.func @gather_flattened(
// CHECK-NEXT:    "nisa.gather_flattened"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 3]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 3]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x3xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x3xui32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @gather_flattened(%dst: memref<4x3xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">,
      %index: memref<4x3xui32, "sbuf">) {
  "nisa.gather_flattened"(%dst, %src, %index) {
    access = [#chip_4x3_f32, #chip_4x6_f32, #chip_4x3_ui32], mask = #all,
    engine = "unknown"
  } : (memref<4x3xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x3xui32, "sbuf">) -> ()
  return
}

// dst[i] = expression(i), affine over dst's axes and the op's symbols, in int32.
// CHECK-LABEL: func.func @iota(
// CHECK-NEXT:    "nisa.iota"(%arg0)
// CHECK-SAME:      access = [#nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", expression = #[[EXPRESSION]], mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @iota(%dst: memref<4x6xi32, "sbuf">) {
  "nisa.iota"(%dst) {
    access = [#chip_4x6_i32], mask = #all,
    engine = "unknown", expression = affine_map<(d0, d1) -> (d0 * 2 + d1)>
  } : (memref<4x6xi32, "sbuf">) -> ()
  return
}

// dst[p, j, e] = src[p, idx[j] + e], where each 16 partitions share the indices of their 16 rows of index.
// CHECK-LABEL: func.func @local_gather(
// CHECK-NEXT:    "nisa.local_gather"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 16], [1, 16]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 16], [1, 6]]>,
// CHECK-SAME:                #nki.access<ui16, #[[ON_CHIP]], {{\[\[}}1, 16], [1, 1]]>]
// CHECK-SAME:      elements = 1 : i64, engine = "unknown", mask = #[[ALL]], valid = -1 : i64}
// CHECK-SAME:      : (memref<16x16xf32, "sbuf">, memref<16x6xf32, "sbuf">, memref<16x1xui16, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @local_gather(%dst: memref<16x16xf32, "sbuf">, %src: memref<16x6xf32, "sbuf">,
      %index: memref<16x1xui16, "sbuf">) {
  "nisa.local_gather"(%dst, %src, %index) {
    access = [#chip_16x16_f32, #chip_16x6_f32, #chip_16x1_ui16], mask = #all,
    engine = "unknown", elements = 1 : i64, valid = -1 : i64
  } : (memref<16x16xf32, "sbuf">, memref<16x6xf32, "sbuf">, memref<16x1xui16, "sbuf">) -> ()
  return
}

// dst[p] = the 8 largest values of src[p], largest first.
// CHECK-LABEL: func.func @max8(
// CHECK-NEXT:    "nisa.max8"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x8xf32, "sbuf">, memref<4x8xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @max8(%dst: memref<4x8xf32, "sbuf">, %src: memref<4x8xf32, "sbuf">) {
  "nisa.max8"(%dst, %src) {
    access = [#chip_4x8_f32, #chip_4x8_f32], mask = #all,
    engine = "unknown"
  } : (memref<4x8xf32, "sbuf">, memref<4x8xf32, "sbuf">) -> ()
  return
}

// dst = value, converted to dst's dtype.
// CHECK-LABEL: func.func @memset(
// CHECK-NEXT:    "nisa.memset"(%arg0)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]], value = 2.500000e+00 : f64}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @memset(%dst: memref<4x6xf32, "sbuf">) {
  "nisa.memset"(%dst) {
    access = [#chip_4x6_f32], mask = #all,
    engine = "unknown", value = 2.500000e+00 : f64
  } : (memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst[p, j] = where vals[p, j] first occurs in the flattened data[p]; equal values take successive occurrences.
// CHECK-LABEL: func.func @nc_find_index8(
// CHECK-NEXT:    "nisa.nc_find_index8"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x8xui32, "sbuf">, memref<4x8xf32, "sbuf">, memref<4x8xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @nc_find_index8(%dst: memref<4x8xui32, "sbuf">, %data: memref<4x8xf32, "sbuf">,
      %vals: memref<4x8xf32, "sbuf">) {
  "nisa.nc_find_index8"(%dst, %data, %vals) {
    access = [#chip_4x8_ui32, #chip_4x8_f32, #chip_4x8_f32], mask = #all,
    engine = "unknown"
  } : (memref<4x8xui32, "sbuf">, memref<4x8xf32, "sbuf">, memref<4x8xf32, "sbuf">) -> ()
  return
}

// dst = data with the first occurrence of each of the 8 values replaced by imm; dst_idx gets the places.
// CHECK-LABEL: func.func @nc_match_replace8(
// CHECK-NEXT:    "nisa.nc_match_replace8"(%arg0, %arg1, %arg2, %arg3)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>,
// CHECK-SAME:                #nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>]
// CHECK-SAME:      engine = "unknown", imm = -9.000000e+00 : f64, mask = #[[ALL]],
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>}
// CHECK-SAME:      : (memref<4x8xf32, "sbuf">, memref<4x8xui32, "sbuf">, memref<4x8xf32, "sbuf">,
// CHECK-SAME:         memref<4x8xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @nc_match_replace8(%dst: memref<4x8xf32, "sbuf">, %dst_idx: memref<4x8xui32, "sbuf">,
      %data: memref<4x8xf32, "sbuf">, %vals: memref<4x8xf32, "sbuf">) {
  "nisa.nc_match_replace8"(%dst, %dst_idx, %data, %vals) {
    access = [#chip_4x8_f32, #chip_4x8_ui32, #chip_4x8_f32, #chip_4x8_f32], mask = #all,
    engine = "unknown", imm = -9.000000e+00 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>
  } : (memref<4x8xf32, "sbuf">, memref<4x8xui32, "sbuf">, memref<4x8xf32, "sbuf">, memref<4x8xf32, "sbuf">) -> ()
  return
}

// dst[m, n] = sum over k of stationary[k, m] * moving[k, n] (PSUM, float32), added to dst with accumulate.
// CHECK-LABEL: func.func @nc_matmul(
// CHECK-NEXT:    "nisa.nc_matmul"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 3], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 3]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      accumulate = false, engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<3x6xf32, "psum">, memref<4x3xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @nc_matmul(%dst: memref<3x6xf32, "psum">, %stationary: memref<4x3xf32, "sbuf">,
      %moving: memref<4x6xf32, "sbuf">) {
  "nisa.nc_matmul"(%dst, %stationary, %moving) {
    access = [#chip_3x6_f32, #chip_4x3_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", accumulate = false
  } : (memref<3x6xf32, "psum">, memref<4x3xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst[m, n] = sum over k and the 2 rows r of stationary[k, r, m] * moving[k, r, n] of 8-bit floats (PSUM, float32),
// added to dst with accumulate.
// CHECK-LABEL: func.func @nc_matmul_double_row(
// CHECK-NEXT:    "nisa.nc_matmul_double_row"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 3], [1, 6]]>,
// CHECK-SAME:                #nki.access<f8E4M3, #[[ON_CHIP]], {{\[\[}}1, 4], [3, 2], [1, 3]]>,
// CHECK-SAME:                #nki.access<f8E5M2, #[[ON_CHIP]], {{\[\[}}1, 4], [6, 2], [1, 6]]>]
// CHECK-SAME:      accumulate = true, engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<3x6xf32, "psum">, memref<4x2x3xf8E4M3, "sbuf">, memref<4x2x6xf8E5M2, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @nc_matmul_double_row(%dst: memref<3x6xf32, "psum">, %stationary: memref<4x2x3xf8E4M3, "sbuf">,
      %moving: memref<4x2x6xf8E5M2, "sbuf">) {
  "nisa.nc_matmul_double_row"(%dst, %stationary, %moving) {
    access = [#chip_3x6_f32, #chip_4x2x3_f8, #chip_4x2x6_f8], mask = #all,
    engine = "unknown", accumulate = true
  } : (memref<3x6xf32, "psum">, memref<4x2x3xf8E4M3, "sbuf">, memref<4x2x6xf8E5M2, "sbuf">) -> ()
  return
}

// dst[m, n] = sum of stationary[k, m, q] * moving[k, n, q] over k and the 4 packed q, each times its group's
// scale.
// CHECK-LABEL: func.func @nc_matmul_mx(
// CHECK-NEXT:    "nisa.nc_matmul_mx"(%arg0, %arg1, %arg2, %arg3, %arg4)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 64], [1, 4]]>,
// CHECK-SAME:                #nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 64], [1, 6]]>,
// CHECK-SAME:                #nki.access<ui8, #[[ON_CHIP]], {{\[\[}}1, 64], [1, 4]]>,
// CHECK-SAME:                #nki.access<ui8, #[[ON_CHIP]], {{\[\[}}1, 64], [1, 6]]>]
// CHECK-SAME:      accumulate = false, engine = "unknown", mask = #[[ALL]], moving_element = "float8_e5m2",
// CHECK-SAME:      stationary_element = "float8_e4m3fn"}
// CHECK-SAME:      : (memref<4x6xf32, "psum">, memref<64x4xui32, "sbuf">, memref<64x6xui32, "sbuf">,
// CHECK-SAME:         memref<64x4xui8, "sbuf">, memref<64x6xui8, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @nc_matmul_mx(%dst: memref<4x6xf32, "psum">, %stationary: memref<64x4xui32, "sbuf">,
      %moving: memref<64x6xui32, "sbuf">, %stationary_scale: memref<64x4xui8, "sbuf">,
      %moving_scale: memref<64x6xui8, "sbuf">) {
  "nisa.nc_matmul_mx"(%dst, %stationary, %moving, %stationary_scale, %moving_scale) {
    access = [#chip_4x6_f32, #chip_64x4_ui32, #chip_64x6_ui32, #chip_64x4_ui8, #chip_64x6_ui8], mask = #all,
    engine = "unknown", stationary_element = "float8_e4m3fn", moving_element = "float8_e5m2", accumulate = false
  } : (memref<4x6xf32, "psum">, memref<64x4xui32, "sbuf">, memref<64x6xui32, "sbuf">, memref<64x4xui8, "sbuf">,
      memref<64x6xui8, "sbuf">) -> ()
  return
}

// dst[m, n] = stationary[k, m] for the k where moving[k, n] is 1: bits are moved, infinities and NaN too.
// CHECK-LABEL: func.func @nc_matmul_transpose(
// CHECK-NEXT:    "nisa.nc_matmul_transpose"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 3], [1, 4]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 3]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 4]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<3x4xf32, "psum">, memref<4x3xf32, "sbuf">, memref<4x4xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @nc_matmul_transpose(%dst: memref<3x4xf32, "psum">, %stationary: memref<4x3xf32, "sbuf">,
      %moving: memref<4x4xf32, "sbuf">) {
  "nisa.nc_matmul_transpose"(%dst, %stationary, %moving) {
    access = [#chip_3x4_f32, #chip_4x3_f32, #chip_4x4_f32], mask = #all,
    engine = "unknown"
  } : (memref<3x4xf32, "psum">, memref<4x3xf32, "sbuf">, memref<4x4xf32, "sbuf">) -> ()
  return
}

// In each group of 32 partitions dst[i] = src[shuffle[i]]; 255 does not change dst[i].
// CHECK-LABEL: func.func @nc_stream_shuffle(
// CHECK-NEXT:    "nisa.nc_stream_shuffle"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]],
// CHECK-SAME:      shuffle = [1, 0, 255, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
// CHECK-SAME:                 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @nc_stream_shuffle(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.nc_stream_shuffle"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown",
      shuffle = [1, 0, 255, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
        24, 25, 26, 27, 28, 29, 30, 31]
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst[f, p] = src[p, f]. On the tensor engine SBUF to PSUM, up to 128 x 128; on the vector engine up to 32 x 32.
// CHECK-LABEL: func.func @nc_transpose(
// CHECK-NEXT:    "nisa.nc_transpose"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 6], [1, 4]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "tensor", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<6x4xf32, "psum">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @nc_transpose(%dst: memref<6x4xf32, "psum">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.nc_transpose"(%dst, %src) {
    access = [#chip_6x4_f32, #chip_4x6_f32], mask = #all,
    engine = "tensor"
  } : (memref<6x4xf32, "psum">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// In partitions 0, 16, 32, ...: the places of what is not zero plus base, then padding, the count at the
// end.
// CHECK-LABEL: func.func @nonzero_with_count(
// CHECK-NEXT:    "nisa.nonzero_with_count"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 7]]>,
// CHECK-SAME:                #nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      base = 16 : i64, engine = "unknown", mask = #[[ALL]], padding = -1 : i64}
// CHECK-SAME:      : (memref<4x7xi32, "sbuf">, memref<4x6xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @nonzero_with_count(%dst: memref<4x7xi32, "sbuf">, %src: memref<4x6xi32, "sbuf">) {
  "nisa.nonzero_with_count"(%dst, %src) {
    access = [#chip_4x7_i32, #chip_4x6_i32], mask = #all,
    engine = "unknown", base = 16 : i64, padding = -1 : i64
  } : (memref<4x7xi32, "sbuf">, memref<4x6xi32, "sbuf">) -> ()
  return
}

// dst = src / scale as packed 8-bit floats; the scale of a group is 2 ** (exponent of its largest - (emax - 1)).
// CHECK-LABEL: func.func @quantize_mx(
// CHECK-NEXT:    "nisa.quantize_mx"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 2]]>,
// CHECK-SAME:                #nki.access<ui8, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 2]]>,
// CHECK-SAME:                #nki.access<bf16, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 8]]>]
// CHECK-SAME:      element = "float8_e4m3fn", engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<32x2xui32, "sbuf">, memref<32x2xui8, "sbuf">, memref<32x8xbf16, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @quantize_mx(%dst: memref<32x2xui32, "sbuf">, %dst_scale: memref<32x2xui8, "sbuf">,
      %src: memref<32x8xbf16, "sbuf">) {
  "nisa.quantize_mx"(%dst, %dst_scale, %src) {
    access = [#chip_32x2_ui32, #chip_32x2_ui8, #chip_32x8_bf16], mask = #all,
    engine = "unknown", element = "float8_e4m3fn"
  } : (memref<32x2xui32, "sbuf">, memref<32x2xui8, "sbuf">, memref<32x8xbf16, "sbuf">) -> ()
  return
}

// dst = uniform numbers in [0, 1).
// CHECK-LABEL: func.func @rand(
// CHECK-NEXT:    "nisa.rand"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 2]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<1x2xui32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @rand(%dst: memref<4x6xf32, "sbuf">, %state: memref<1x2xui32, "sbuf">) {
  "nisa.rand"(%dst, %state) {
    access = [#chip_4x6_f32, #chip_1x2_ui32], mask = #all,
    engine = "unknown"
  } : (memref<4x6xf32, "sbuf">, memref<1x2xui32, "sbuf">) -> ()
  return
}

// state = (seed, 0).
// CHECK-LABEL: func.func @random_seed(
// CHECK-NEXT:    "nisa.random_seed"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 2]]>,
// CHECK-SAME:                #nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<1x2xui32, "sbuf">, memref<1x1xui32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @random_seed(%state: memref<1x2xui32, "sbuf">, %seed: memref<1x1xui32, "sbuf">) {
  "nisa.random_seed"(%state, %seed) {
    access = [#chip_1x2_ui32, #chip_1x1_ui32], mask = #all,
    engine = "unknown"
  } : (memref<1x2xui32, "sbuf">, memref<1x1xui32, "sbuf">) -> ()
  return
}

// dst = src where comp0(i, bound0) & comp1(i, bound1) for i = base + free index, else fill; row maximum.
// CHECK-LABEL: func.func @range_select(
// CHECK-NEXT:    "nisa.range_select"(%arg0, %arg1, %arg2, %arg3, %arg4)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>]
// CHECK-SAME:      base = 0.000000e+00 : f64, comp0 = "greater_equal", comp1 = "less", engine = "unknown",
// CHECK-SAME:      fill = -5.000000e+00 : f64, mask = #[[ALL]], operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 1, 0>,
// CHECK-SAME:      reduce_cmd = "reset_reduce", reduce_op = "maximum"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">,
// CHECK-SAME:         memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @range_select(%dst: memref<4x6xf32, "sbuf">, %accumulator: memref<4x1xf32, "sbuf">,
      %src: memref<4x6xf32, "sbuf">, %bound0: memref<4x1xf32, "sbuf">, %bound1: memref<4x1xf32, "sbuf">) {
  "nisa.range_select"(%dst, %accumulator, %src, %bound0, %bound1) {
    access = [#chip_4x6_f32, #chip_4x1_f32, #chip_4x6_f32, #chip_4x1_f32, #chip_4x1_f32], mask = #all,
    engine = "unknown", comp0 = "greater_equal", comp1 = "less", base = 0.000000e+00 : f64,
      fill = -5.000000e+00 : f64, reduce_cmd = "reset_reduce", reduce_op = "maximum",
      operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 1, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">,
      memref<4x1xf32, "sbuf">) -> ()
  return
}

// dst = 1 / src.
// CHECK-LABEL: func.func @reciprocal(
// CHECK-NEXT:    "nisa.reciprocal"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @reciprocal(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.reciprocal"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = 32 random bits an element, cut to the integer type's.
// CHECK-LABEL: func.func @rng(
// CHECK-NEXT:    "nisa.rng"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 2]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xui32, "sbuf">, memref<1x2xui32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @rng(%dst: memref<4x6xui32, "sbuf">, %state: memref<1x2xui32, "sbuf">) {
  "nisa.rng"(%dst, %state) {
    access = [#chip_4x6_ui32, #chip_1x2_ui32], mask = #all,
    engine = "unknown"
  } : (memref<4x6xui32, "sbuf">, memref<1x2xui32, "sbuf">) -> ()
  return
}

// dst = (src op0 operand0) op1 rhs; operand0 is a [P, 1] tile or the constant imm0, rhs a tile.
// CHECK-LABEL: func.func @scalar_tensor_tensor(
// CHECK-NEXT:    "nisa.scalar_tensor_tensor"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", imm0 = 5.000000e-01 : f64, mask = #[[ALL]], op0 = "multiply", op1 = "subtract",
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 0, 1, 0>, reverse0 = false, reverse1 = false}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @scalar_tensor_tensor(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">,
      %rhs: memref<4x6xf32, "sbuf">) {
  "nisa.scalar_tensor_tensor"(%dst, %src, %rhs) {
    access = [#chip_4x6_f32, #chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", op0 = "multiply", op1 = "subtract", imm0 = 5.000000e-01 : f64, reverse0 = false,
      reverse1 = false, operandSegmentSizes = array<i32: 1, 1, 0, 1, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst.flat[p, offset(p, j)] = src[p, j]; other elements of dst stay.
// CHECK-LABEL: func.func @scatter_columns(
// CHECK-NEXT:    "nisa.scatter_columns"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 4]]>,
// CHECK-SAME:                #nki.access<ui16, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", group = 16 : i64, mask = #[[ALL]]}
// CHECK-SAME:      : (memref<32x6xf32, "sbuf">, memref<32x4xf32, "sbuf">, memref<32x1xui16, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @scatter_columns(%dst: memref<32x6xf32, "sbuf">, %src: memref<32x4xf32, "sbuf">,
      %index: memref<32x1xui16, "sbuf">) {
  "nisa.scatter_columns"(%dst, %src, %index) {
    access = [#chip_32x6_f32, #chip_32x4_f32, #chip_32x1_ui16], mask = #all,
    engine = "unknown", group = 16 : i64
  } : (memref<32x6xf32, "sbuf">, memref<32x4xf32, "sbuf">, memref<32x1xui16, "sbuf">) -> ()
  return
}

// dst = on_true where predicate (reversed: where not), else on_false ([P, 1] or imm); row maximum accumulates.
// CHECK-LABEL: func.func @select_reduce(
// CHECK-NEXT:    "nisa.select_reduce"(%arg0, %arg1, %arg2, %arg3)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<ui8, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", imm = -1.000000e+00 : f64, mask = #[[ALL]],
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 0, 0>, reduce_cmd = "reset_reduce",
// CHECK-SAME:      reduce_op = "maximum", reverse_pred = false}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xui8, "sbuf">,
// CHECK-SAME:         memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @select_reduce(%dst: memref<4x6xf32, "sbuf">, %accumulator: memref<4x1xf32, "sbuf">,
      %predicate: memref<4x6xui8, "sbuf">, %on_true: memref<4x6xf32, "sbuf">) {
  "nisa.select_reduce"(%dst, %accumulator, %predicate, %on_true) {
    access = [#chip_4x6_f32, #chip_4x1_f32, #chip_4x6_ui8, #chip_4x6_f32], mask = #all,
    engine = "unknown", imm = -1.000000e+00 : f64, reverse_pred = false, reduce_cmd = "reset_reduce",
      reduce_op = "maximum", operandSegmentSizes = array<i32: 1, 1, 0, 1, 1, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xui8, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst[0, 0, i] and dst[0, 1, i]: first and one past last place of the run of equal ids at i; (n, -1) for id 0.
// CHECK-LABEL: func.func @sequence_bounds(
// CHECK-NEXT:    "nisa.sequence_bounds"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 1], [6, 2], [1, 6]]>,
// CHECK-SAME:                #nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<1x2x6xf32, "sbuf">, memref<1x6xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @sequence_bounds(%dst: memref<1x2x6xf32, "sbuf">, %segment_ids: memref<1x6xi32, "sbuf">) {
  "nisa.sequence_bounds"(%dst, %segment_ids) {
    access = [#chip_1x2x6_f32, #chip_1x6_i32], mask = #all,
    engine = "unknown"
  } : (memref<1x2x6xf32, "sbuf">, memref<1x6xi32, "sbuf">) -> ()
  return
}

// dst = src on chip, converted on write. The scalar engine goes through float32, the others keep equal bits.
// CHECK-LABEL: func.func @tensor_copy(
// CHECK-NEXT:    "nisa.tensor_copy"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "psum">) -> ()
// CHECK-NEXT:    return
func.func @tensor_copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "psum">) {
  "nisa.tensor_copy"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "psum">) -> ()
  return
}

// dst[p].flat[position(p, f...) + scales * offset] = src[p, f...].
// CHECK-LABEL: func.func @tensor_copy_dynamic_dst(
// CHECK-NEXT:    "nisa.tensor_copy_dynamic_dst"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 3]]>,
// CHECK-SAME:                #nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", extents = [8], first = #[[POSITION]], mask = #[[ALL]], position = #[[POSITION]],
// CHECK-SAME:      scales = [1], second = #[[START]]}
// CHECK-SAME:      : (memref<4x8xf32, "sbuf">, memref<4x3xf32, "sbuf">, memref<1x1xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @tensor_copy_dynamic_dst(%dst: memref<4x8xf32, "sbuf">, %src: memref<4x3xf32, "sbuf">,
      %offset: memref<1x1xi32, "sbuf">) {
  "nisa.tensor_copy_dynamic_dst"(%dst, %src, %offset) {
    access = [#chip_4x8_f32, #chip_4x3_f32, #chip_1x1_i32], mask = #all,
    engine = "unknown", position = affine_map<(d0, d1, d2, d3, d4) -> (d1 * 2)>,
    first = affine_map<(d0, d1, d2, d3, d4) -> (d1 * 2)>, second = affine_map<(d0, d1, d2, d3, d4) -> (0)>,
    scales = [1], extents = [8]
  } : (memref<4x8xf32, "sbuf">, memref<4x3xf32, "sbuf">, memref<1x1xi32, "sbuf">) -> ()
  return
}

// dst[p, f...] = src[p].flat[position(p, f...) + scales * offset].
// CHECK-LABEL: func.func @tensor_copy_dynamic_src(
// CHECK-NEXT:    "nisa.tensor_copy_dynamic_src"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 3]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 8]]>,
// CHECK-SAME:                #nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", extents = [8], first = #[[POSITION]], mask = #[[ALL]], position = #[[POSITION]],
// CHECK-SAME:      scales = [1], second = #[[START]]}
// CHECK-SAME:      : (memref<4x3xf32, "sbuf">, memref<4x8xf32, "sbuf">, memref<1x1xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @tensor_copy_dynamic_src(%dst: memref<4x3xf32, "sbuf">, %src: memref<4x8xf32, "sbuf">,
      %offset: memref<1x1xi32, "sbuf">) {
  "nisa.tensor_copy_dynamic_src"(%dst, %src, %offset) {
    access = [#chip_4x3_f32, #chip_4x8_f32, #chip_1x1_i32], mask = #all,
    engine = "unknown", position = affine_map<(d0, d1, d2, d3, d4) -> (d1 * 2)>,
    first = affine_map<(d0, d1, d2, d3, d4) -> (d1 * 2)>, second = affine_map<(d0, d1, d2, d3, d4) -> (0)>,
    scales = [1], extents = [8]
  } : (memref<4x3xf32, "sbuf">, memref<4x8xf32, "sbuf">, memref<1x1xi32, "sbuf">) -> ()
  return
}

// dst = src where predicate is not 0 (is 0 with reverse_pred); other elements of dst keep their value.
// CHECK-LABEL: func.func @tensor_copy_predicated(
// CHECK-NEXT:    "nisa.tensor_copy_predicated"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<ui8, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]], reverse_pred = false}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xui8, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @tensor_copy_predicated(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">,
      %predicate: memref<4x6xui8, "sbuf">) {
  "nisa.tensor_copy_predicated"(%dst, %src, %predicate) {
    access = [#chip_4x6_f32, #chip_4x6_f32, #chip_4x6_ui8], mask = #all,
    engine = "unknown", reverse_pred = false
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xui8, "sbuf">) -> ()
  return
}

// dst[0, f...] = src reduced over its partitions.
// CHECK-LABEL: func.func @tensor_partition_reduce(
// CHECK-NEXT:    "nisa.tensor_partition_reduce"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]], op = "add"}
// CHECK-SAME:      : (memref<1x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @tensor_partition_reduce(%dst: memref<1x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.tensor_partition_reduce"(%dst, %src) {
    access = [#chip_1x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", op = "add"
  } : (memref<1x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = src reduced by op over free axes (extent 1 in dst), times -1 with negate.
// CHECK-LABEL: func.func @tensor_reduce(
// CHECK-NEXT:    "nisa.tensor_reduce"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      axes = [1], engine = "unknown", mask = #[[ALL]], negate = true, op = "add"}
// CHECK-SAME:      : (memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @tensor_reduce(%dst: memref<4x1xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.tensor_reduce"(%dst, %src) {
    access = [#chip_4x1_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", op = "add", axes = [1], negate = true
  } : (memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = (src op0 operand0) op1 operand1; an operand is a [P, 1] tile or the constant imm; reverse swaps sides.
// CHECK-LABEL: func.func @tensor_scalar(
// CHECK-NEXT:    "nisa.tensor_scalar"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", imm0 = 5.000000e-01 : f64, imm1 = 3.000000e+00 : f64, mask = #[[ALL]],
// CHECK-SAME:      op0 = "subtract", op1 = "multiply", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>,
// CHECK-SAME:      reverse0 = false, reverse1 = false}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @tensor_scalar(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.tensor_scalar"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", op0 = "subtract", imm0 = 5.000000e-01 : f64, reverse0 = false, op1 = "multiply",
      imm1 = 3.000000e+00 : f64, reverse1 = false, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = src op0 operand0; its reduction accumulates and is read into reduce_res, times -1 with negate.
// CHECK-LABEL: func.func @tensor_scalar_accumulate(
// CHECK-NEXT:    "nisa.tensor_scalar_accumulate"(%arg0, %arg1, %arg2, %arg3)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", imm0 = 5.000000e-01 : f64, mask = #[[ALL]], negate = true, op0 = "multiply",
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, reduce_cmd = "reduce", reduce_op = "add",
// CHECK-SAME:      reverse0 = false}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">,
// CHECK-SAME:         memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @tensor_scalar_accumulate(%dst: memref<4x6xf32, "sbuf">, %accumulator: memref<4x1xf32, "sbuf">,
      %reduce_res: memref<4x1xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.tensor_scalar_accumulate"(%dst, %accumulator, %reduce_res, %src) {
    access = [#chip_4x6_f32, #chip_4x1_f32, #chip_4x1_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", op0 = "multiply", reduce_op = "add", reduce_cmd = "reduce", imm0 = 5.000000e-01 : f64,
      reverse0 = false, negate = true, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst[i] = op1(op0(src[i], operand0), dst[i-1]) along the free axis; dst[-1] and the last one are the registers.
// CHECK-LABEL: func.func @tensor_scalar_cumulative(
// CHECK-NEXT:    "nisa.tensor_scalar_cumulative"(%arg0, %arg1, %arg2, %arg3)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", imm0 = 5.000000e-01 : f64, mask = #[[ALL]], op0 = "multiply", op1 = "add",
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, reduce_cmd = "reset_reduce", reduce_op = "add"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">,
// CHECK-SAME:         memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @tensor_scalar_cumulative(%dst: memref<4x6xf32, "sbuf">, %accumulator: memref<4x1xf32, "sbuf">,
      %reduce_res: memref<4x1xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.tensor_scalar_cumulative"(%dst, %accumulator, %reduce_res, %src) {
    access = [#chip_4x6_f32, #chip_4x1_f32, #chip_4x1_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", op0 = "multiply", op1 = "add", imm0 = 5.000000e-01 : f64, reduce_cmd = "reset_reduce",
      reduce_op = "add", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = src op0 operand0 and reduce_res = dst's float32 values reduced over the free axes.
// CHECK-LABEL: func.func @tensor_scalar_reduce(
// CHECK-NEXT:    "nisa.tensor_scalar_reduce"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", imm0 = 5.000000e-01 : f64, mask = #[[ALL]], op0 = "multiply",
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, reduce_op = "maximum", reverse0 = false}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @tensor_scalar_reduce(%dst: memref<4x6xf32, "sbuf">, %reduce_res: memref<4x1xf32, "sbuf">,
      %src: memref<4x6xf32, "sbuf">) {
  "nisa.tensor_scalar_reduce"(%dst, %reduce_res, %src) {
    access = [#chip_4x6_f32, #chip_4x1_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", op0 = "multiply", reduce_op = "maximum", imm0 = 5.000000e-01 : f64, reverse0 = false,
      operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = lhs (op) rhs. float32 inside; bit operations keep bits; 32-bit integer arithmetic is exact on GpSimd.
// CHECK-LABEL: func.func @tensor_tensor(
// CHECK-NEXT:    "nisa.tensor_tensor"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]], op = "multiply"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xf32, "psum">) -> ()
// CHECK-NEXT:    return
func.func @tensor_tensor(%dst: memref<4x6xf32, "sbuf">, %lhs: memref<4x6xf32, "sbuf">,
      %rhs: memref<4x6xf32, "psum">) {
  "nisa.tensor_tensor"(%dst, %lhs, %rhs) {
    access = [#chip_4x6_f32, #chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", op = "multiply"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xf32, "psum">) -> ()
  return
}

// dst[i] = op1(op0(data0[i], dst[i-1]), data1[i]) along the flattened free axis; dst[-1] is initial, the carry float32.
// CHECK-LABEL: func.func @tensor_tensor_scan(
// CHECK-NEXT:    "nisa.tensor_tensor_scan"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", imm = 5.000000e-01 : f64, mask = #[[ALL]], op0 = "multiply", op1 = "add",
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, reverse0 = false, reverse1 = false}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @tensor_tensor_scan(%dst: memref<4x6xf32, "sbuf">, %data0: memref<4x6xf32, "sbuf">,
      %data1: memref<4x6xf32, "sbuf">) {
  "nisa.tensor_tensor_scan"(%dst, %data0, %data1) {
    access = [#chip_4x6_f32, #chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", op0 = "multiply", op1 = "add", imm = 5.000000e-01 : f64, reverse0 = false, reverse1 = false,
      operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// The largest values of n-element lists, ascending, and their places.
// CHECK-LABEL: func.func @topk(
// CHECK-NEXT:    "nisa.topk"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<bf16, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 3]]>,
// CHECK-SAME:                #nki.access<ui32, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 3]]>,
// CHECK-SAME:                #nki.access<bf16, #[[ON_CHIP]], {{\[\[}}1, 32], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]], n = 20 : i64}
// CHECK-SAME:      : (memref<32x3xbf16, "sbuf">, memref<32x3xui32, "sbuf">, memref<32x6xbf16, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @topk(%values: memref<32x3xbf16, "sbuf">, %places: memref<32x3xui32, "sbuf">,
      %src: memref<32x6xbf16, "sbuf">) {
  "nisa.topk"(%values, %places, %src) {
    access = [#chip_32x3_bf16, #chip_32x3_ui32, #chip_32x6_bf16], mask = #all,
    engine = "unknown", n = 20 : i64
  } : (memref<32x3xbf16, "sbuf">, memref<32x3xui32, "sbuf">, memref<32x6xbf16, "sbuf">) -> ()
  return
}

// -- meetings ---------------------------------------------------------------------------------------------------------
// dst = everyone's src, one after the other along dim.
// CHECK-LABEL: func.func @all_gather(
// CHECK-NEXT:    "nisa.all_gather"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>]
// CHECK-SAME:      dim = 0 : i64, engine = "unknown", groups = "{{\[\[}}0]]", mask = #[[ALL]], over = "ranks"}
// CHECK-SAME:      : (memref<4x6xf32, "hbm">, memref<4x6xf32, "hbm">) -> ()
// CHECK-NEXT:    return
func.func @all_gather(%dst: memref<4x6xf32, "hbm">, %src: memref<4x6xf32, "hbm">) {
  "nisa.all_gather"(%dst, %src) {
    access = [#hbm_4x6_f32, #hbm_4x6_f32], mask = #all,
    dim = 0 : i64, engine = "unknown", groups = "[[0]]", over = "ranks"
  } : (memref<4x6xf32, "hbm">, memref<4x6xf32, "hbm">) -> ()
  return
}

// dst = the fold of everyone's src; over the programs of a launch, or over ranks.
// CHECK-LABEL: func.func @all_reduce(
// CHECK-NEXT:    "nisa.all_reduce"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", groups = "{{\[\[}}0, 2], [1, 3]]", mask = #[[ALL]], op = "maximum",
// CHECK-SAME:      over = "programs"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @all_reduce(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.all_reduce"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", groups = "[[0, 2], [1, 3]]", op = "maximum", over = "programs"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// dst = this member's part of everyone's src.
// CHECK-LABEL: func.func @all_to_all(
// CHECK-NEXT:    "nisa.all_to_all"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", groups = "{{\[\[}}0, 1]]", mask = #[[ALL]], over = "ranks"}
// CHECK-SAME:      : (memref<4x6xf32, "hbm">, memref<4x6xf32, "hbm">) -> ()
// CHECK-NEXT:    return
func.func @all_to_all(%dst: memref<4x6xf32, "hbm">, %src: memref<4x6xf32, "hbm">) {
  "nisa.all_to_all"(%dst, %src) {
    access = [#hbm_4x6_f32, #hbm_4x6_f32], mask = #all,
    engine = "unknown", groups = "[[0, 1]]", over = "ranks"
  } : (memref<4x6xf32, "hbm">, memref<4x6xf32, "hbm">) -> ()
  return
}

// Wait for the other cores; data is what they share.
// CHECK-LABEL: func.func @core_barrier(
// CHECK-NEXT:    "nisa.core_barrier"(%arg0)
// CHECK-SAME:      access = [#nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>]
// CHECK-SAME:      cores = [0, 1], engine = "vector", mask = #[[ALL]]}
// CHECK-SAME:      : (memref<4x6xf32, "hbm">) -> ()
// CHECK-NEXT:    return
func.func @core_barrier(%data: memref<4x6xf32, "hbm">) {
  "nisa.core_barrier"(%data) {
    access = [#hbm_4x6_f32], mask = #all,
    cores = [0, 1], engine = "vector"
  } : (memref<4x6xf32, "hbm">) -> ()
  return
}

// dst of rank 1 = src of rank 0, dst of rank 2 = src of rank 1.
// CHECK-LABEL: func.func @permute(
// CHECK-NEXT:    "nisa.permute"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[IN_HBM]], {{\[\[}}6, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]], pairs = [0, 1, 1, 2]}
// CHECK-SAME:      : (memref<4x6xf32, "hbm">, memref<4x6xf32, "hbm">) -> ()
// CHECK-NEXT:    return
func.func @permute(%dst: memref<4x6xf32, "hbm">, %src: memref<4x6xf32, "hbm">) {
  "nisa.permute"(%dst, %src) {
    access = [#hbm_4x6_f32, #hbm_4x6_f32], mask = #all,
    engine = "unknown", pairs = [0, 1, 1, 2]
  } : (memref<4x6xf32, "hbm">, memref<4x6xf32, "hbm">) -> ()
  return
}

// This rank's number, or that of one before it in a ring.
// CHECK-LABEL: func.func @rank_id(
// CHECK-NEXT:    "nisa.rank_id"(%arg0)
// CHECK-SAME:      access = [#nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", groups = "{{\[\[}}0, 1]]", mask = #[[ALL]], steps = 1 : i64}
// CHECK-SAME:      : (memref<1x1xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @rank_id(%dst: memref<1x1xi32, "sbuf">) {
  "nisa.rank_id"(%dst) {
    access = [#chip_1x1_i32], mask = #all,
    engine = "unknown", groups = "[[0, 1]]", steps = 1 : i64
  } : (memref<1x1xi32, "sbuf">) -> ()
  return
}

// An error where the flag is 0: nothing wrote the output.
// CHECK-LABEL: func.func @require_written(
// CHECK-NEXT:    "nisa.require_written"(%arg0)
// CHECK-SAME:      access = [#nki.access<i32, #[[ON_CHIP]], {{\[\[}}1, 1], [1, 1]]>]
// CHECK-SAME:      engine = "unknown", mask = #[[ALL]], output = "out", reason = "its loop did not run"}
// CHECK-SAME:      : (memref<1x1xi32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @require_written(%flag: memref<1x1xi32, "sbuf">) {
  "nisa.require_written"(%flag) {
    access = [#chip_1x1_i32], mask = #all,
    engine = "unknown", output = "out", reason = "its loop did not run"
  } : (memref<1x1xi32, "sbuf">) -> ()
  return
}

// dst = this member's part of the fold of everyone's src.
// CHECK-LABEL: func.func @reduce_scatter(
// CHECK-NEXT:    "nisa.reduce_scatter"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", groups = "{{\[\[}}0]]", mask = #[[ALL]], op = "add", over = "ranks"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @reduce_scatter(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.reduce_scatter"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "unknown", groups = "[[0]]", op = "add", over = "ranks"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// Send src to a core, receive dst from one.
// CHECK-LABEL: func.func @sendrecv(
// CHECK-NEXT:    "nisa.sendrecv"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "gpsimd", mask = #[[ALL]], pipe = 3 : i64, receive_from = 1 : i64, send_to = 1 : i64}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @sendrecv(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.sendrecv"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all,
    engine = "gpsimd", pipe = 3 : i64, receive_from = 1 : i64, send_to = 1 : i64
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// Parts of src to each member its own, of a size that the metadata has.
// CHECK-LABEL: func.func @varying_exchange(
// CHECK-NEXT:    "nisa.varying_exchange"(%arg0, %arg1, %arg2)
// CHECK-SAME:      access = [#nki.access<f32, #[[IN_HBM]], {{\[\[}}1, 8]]>,
// CHECK-SAME:                #nki.access<f32, #[[IN_HBM]], {{\[\[}}1, 8]]>,
// CHECK-SAME:                #nki.access<ui32, #[[IN_HBM]], {{\[\[}}1, 3], [1, 1]]>]
// CHECK-SAME:      counts_known = false, displaced = false, engine = "unknown", groups = "{{\[\[}}0]]",
// CHECK-SAME:      mask = #[[ALL]], over = "ranks", to_all = false}
// CHECK-SAME:      : (memref<8xf32, "hbm">, memref<8xf32, "hbm">, memref<3x1xui32, "hbm">) -> ()
// CHECK-NEXT:    return
func.func @varying_exchange(%dst: memref<8xf32, "hbm">, %src: memref<8xf32, "hbm">,
      %metadata: memref<3x1xui32, "hbm">) {
  "nisa.varying_exchange"(%dst, %src, %metadata) {
    access = [#hbm_8_f32, #hbm_8_f32, #hbm_3x1_ui32], mask = #all,
    counts_known = false, displaced = false, engine = "unknown", groups = "[[0]]", over = "ranks", to_all = false
  } : (memref<8xf32, "hbm">, memref<8xf32, "hbm">, memref<3x1xui32, "hbm">) -> ()
  return
}

// dst = src of the member before this one, or src folded with other there.
// CHECK-LABEL: func.func @ring_permute(
// CHECK-NEXT:    "nisa.ring_permute"(%arg0, %arg1)
// CHECK-SAME:      access = [#nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>,
// CHECK-SAME:                #nki.access<f32, #[[ON_CHIP]], {{\[\[}}1, 4], [1, 6]]>]
// CHECK-SAME:      engine = "unknown", groups = "{{\[\[}}0, 1, 2]]", mask = #[[ALL]], op = "add",
// CHECK-SAME:      operandSegmentSizes = array<i32: 1, 1, 0, 0>, over = "ranks"}
// CHECK-SAME:      : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
// CHECK-NEXT:    return
func.func @ring_permute(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  "nisa.ring_permute"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all, operandSegmentSizes = array<i32: 1, 1, 0, 0>,
    engine = "unknown", groups = "[[0, 1, 2]]", op = "add", over = "ranks"
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}
