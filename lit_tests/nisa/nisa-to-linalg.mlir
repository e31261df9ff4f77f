// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --nisa-to-linalg %s | FileCheck %s

!f32 = memref<128x64xf32, "sbuf">
!bf16 = memref<128x64xbf16, "sbuf">
!bf16_psum = memref<128x64xbf16, "psum">
!ui8 = memref<128x64xui8, "sbuf">
!column = memref<128x1xf32, "sbuf">
!row = memref<1x64xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#bf16 = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#ui8 = #nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#column = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>
#row = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 1], [1, 64]]>
// A column, each element for a whole row.
#spread = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [0, 64]]>

// CHECK-DAG: #[[ORIGIN:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-DAG: #[[ID:map[0-9]*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[LINE:map[0-9]*]] = affine_map<(d0) -> (d0)>
// CHECK-DAG: #[[ROWS:map[0-9]*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: #[[COLUMNS:map[0-9]*]] = affine_map<(d0, d1) -> (d1)>

// Both steps of an instruction, each with its operand; a [P, 1] operand is read with a stride of 0.
// CHECK-LABEL: func.func @tensor_scalar(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x64xf32, "sbuf">, %[[S:[a-z0-9]+]]: memref<128x1xf32, "sbuf">
// CHECK-NEXT:    %[[XV:.*]] = "nki.view"(%[[X]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 128], [1, 64]]>}
// CHECK-NEXT:    %[[SV:.*]] = "nki.view"(%[[S]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 128], [0, 64]]>}
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ID]], #[[ID]]], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME:      ins(%[[XV]], %[[SV]] : {{.*}}) outs(%[[XV]] :
// CHECK-NEXT:    (%[[E:.*]]: f32, %[[T:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[A:.*]] = "scalar.alu"(%[[E]], %[[T]]) {fn = "subtract"}
// CHECK-NEXT:      %[[C:.*]] = arith.constant 5.0
// CHECK-NEXT:      %[[B:.*]] = "scalar.alu"(%[[C]], %[[A]]) {fn = "divide"}
// CHECK-NEXT:      linalg.yield %[[B]] : f32
// CHECK-NOT:     nisa.
func.func @tensor_scalar(%x: !f32, %s: !column) {
  "nisa.tensor_scalar"(%x, %x, %s) {access = [#f32, #f32, #spread], engine = "vector", mask = #all,
    op0 = "subtract", imm0 = 0.0 : f64, reverse0 = false, op1 = "divide", imm1 = 5.0 : f64, reverse1 = true,
    operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (!f32, !f32, !column) -> ()
  return
}

// Scale and bias in float32, then the function; the result is converted once.
// CHECK-LABEL: func.func @activation(
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<128x64xbf16, "sbuf">, %[[X:[a-z0-9]+]]: memref<128x64xbf16, "psum">,
// CHECK-SAME:    %[[B:[a-z0-9]+]]: memref<128x1xf32, "sbuf">
// CHECK-NEXT:    %[[XV:.*]] = "nki.view"(%[[X]]) {access = #nki.access<bf16, #[[ORIGIN]], {{\[\[}}1, 128], [1, 64]]>}
// CHECK-NEXT:    %[[BV:.*]] = "nki.view"(%[[B]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 128], [0, 64]]>}
// CHECK-NEXT:    %[[YV:.*]] = "nki.view"(%[[Y]]) {access = #nki.access<bf16, #[[ORIGIN]], {{\[\[}}1, 128], [1, 64]]>}
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[XV]], %[[BV]] : {{.*}}) outs(%[[YV]] :
// CHECK-NEXT:    (%[[E:.*]]: bf16, %[[BIAS:.*]]: f32, %{{.*}}: bf16):
// CHECK-NEXT:      %[[F:.*]] = "scalar.convert"(%[[E]]) : (bf16) -> f32
// CHECK-NEXT:      %[[TWO:.*]] = arith.constant 2.0
// CHECK-NEXT:      %[[M:.*]] = "scalar.alu"(%[[F]], %[[TWO]]) {fn = "multiply"}
// CHECK-NEXT:      %[[S:.*]] = "scalar.alu"(%[[M]], %[[BIAS]]) {fn = "add"}
// CHECK-NEXT:      %[[T:.*]] = "scalar.activation"(%[[S]]) {fn = "tanh"}
// CHECK-NEXT:      %[[R:.*]] = "scalar.convert"(%[[T]]) : (f32) -> bf16
// CHECK-NEXT:      linalg.yield %[[R]] : bf16
func.func @activation(%y: !bf16, %x: !bf16_psum, %b: !column) {
  "nisa.activation"(%y, %x, %b) {access = [#bf16, #bf16, #spread], engine = "scalar", mask = #all, fn = "tanh",
    imm = 2.0 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (!bf16, !bf16_psum, !column) -> ()
  return
}

// The values and their sum along the rows in one pass.
// CHECK-LABEL: func.func @activation_reduce(
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<128x64xbf16, "sbuf">, %[[S:[a-z0-9]+]]: memref<128x1xf32, "sbuf">,
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[SV:.*]] = "nki.view"(%[[S]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 128], [1, 1]]>, dims = array<i64: 0>}
// CHECK-NEXT:    %[[ZERO:.*]] = arith.constant 0.0
// CHECK-NEXT:    linalg.fill ins(%[[ZERO]] : f32) outs(%[[SV]] :
// CHECK-NEXT:    %[[XV:.*]] = "nki.view"(%[[X]]) {
// CHECK-NEXT:    %[[YV:.*]] = "nki.view"(%[[Y]]) {
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ID]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[XV]] : {{.*}}) outs(%[[YV]], %[[SV]] :
// CHECK-NEXT:    (%[[V:.*]]: f32, %{{.*}}: bf16, %[[SUM:.*]]: f32):
// CHECK-NEXT:      %[[E:.*]] = "scalar.activation"(%[[V]]) {fn = "exp"}
// CHECK-NEXT:      %[[R:.*]] = "scalar.convert"(%[[E]]) : (f32) -> bf16
// CHECK-NEXT:      %[[T:.*]] = "scalar.alu"(%[[SUM]], %[[E]]) {fn = "add"}
// CHECK-NEXT:      linalg.yield %[[R]], %[[T]] : bf16, f32
func.func @activation_reduce(%y: !bf16, %s: !column, %x: !f32) {
  "nisa.activation_reduce"(%y, %s, %x) {access = [#bf16, #column, #f32], engine = "scalar", mask = #all, fn = "exp",
    reduce_op = "add", imm = 1.0 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>} : (!bf16, !column, !f32) -> ()
  return
}

// A maximum starts from minus infinity. What becomes of it at the end is its own step: negated here.
// CHECK-LABEL: func.func @negated_maximum(
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<128x1xf32, "sbuf">, %[[X:[a-z0-9]+]]: memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[XV:.*]] = "nki.view"(%[[X]]) {
// CHECK-NEXT:    %[[YV:.*]] = "nki.view"(%[[Y]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 128], [1, 1]]>, dims = array<i64: 0>}
// CHECK-NEXT:    %[[LOWEST:.*]] = arith.constant 0xFF800000 : f32
// CHECK-NEXT:    linalg.fill ins(%[[LOWEST]] : f32) outs(%[[YV]] :
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[XV]] : {{.*}}) outs(%[[YV]] :
// CHECK-NEXT:    (%[[V:.*]]: f32, %[[BEST:.*]]: f32):
// CHECK-NEXT:      %[[M:.*]] = "scalar.alu"(%[[BEST]], %[[V]]) {fn = "maximum"}
// CHECK-NEXT:      linalg.yield %[[M]] : f32
// CHECK:         linalg.generic {indexing_maps = [#[[LINE]], #[[LINE]]], iterator_types = ["parallel"]}
// CHECK-SAME:      ins(%[[YV]] : {{.*}}) outs(%[[YV]] :
// CHECK-NEXT:    (%[[V:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[N:.*]] = "scalar.alu"(%[[V]]) {fn = "negative"}
// CHECK-NEXT:      linalg.yield %[[N]] : f32
func.func @negated_maximum(%y: !column, %x: !f32) {
  "nisa.tensor_reduce"(%y, %x) {access = [#column, #f32], engine = "vector", mask = #all, op = "maximum", axes = [1],
    negate = true} : (!column, !f32) -> ()
  return
}

// CHECK-LABEL: func.func @across_partitions(
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<1x64xf32, "sbuf">, %[[X:[a-z0-9]+]]: memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[XV:.*]] = "nki.view"(%[[X]]) {
// CHECK-NEXT:    %[[YV:.*]] = "nki.view"(%[[Y]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 1], [1, 64]]>, dims = array<i64: 1>}
// CHECK-NEXT:    %[[ZERO:.*]] = arith.constant 0.0
// CHECK-NEXT:    linalg.fill ins(%[[ZERO]] : f32) outs(%[[YV]] :
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[COLUMNS]]], iterator_types = ["reduction", "parallel"]}
// CHECK-SAME:      ins(%[[XV]] : {{.*}}) outs(%[[YV]] :
// CHECK-NEXT:    (%[[V:.*]]: f32, %[[SUM:.*]]: f32):
// CHECK-NEXT:      %[[R:.*]] = "scalar.alu"(%[[SUM]], %[[V]]) {fn = "add"}
// CHECK-NEXT:      linalg.yield %[[R]] : f32
func.func @across_partitions(%y: !row, %x: !f32) {
  "nisa.tensor_partition_reduce"(%y, %x) {access = [#row, #f32], engine = "gpsimd", mask = #all, op = "add"}
    : (!row, !f32) -> ()
  return
}

// Elements that the predicate does not pick keep what the output holds.
// CHECK-LABEL: func.func @predicated(
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[ID]], #[[ID]]]
// CHECK-NEXT:    (%[[S:.*]]: f32, %[[P:.*]]: ui8, %[[OLD:.*]]: f32):
// CHECK-NEXT:      %[[C:.*]] = "scalar.convert"(%[[P]]) : (ui8) -> f32
// CHECK-NEXT:      %[[R:.*]] = "scalar.alu"(%[[C]], %[[S]], %[[OLD]]) {fn = "select"}
// CHECK-NEXT:      linalg.yield %[[R]] : f32
func.func @predicated(%y: !f32, %x: !f32, %p: !ui8) {
  "nisa.tensor_copy_predicated"(%y, %x, %p) {access = [#f32, #f32, #ui8], engine = "vector", mask = #all,
    reverse_pred = false} : (!f32, !f32, !ui8) -> ()
  return
}

// Bits are combined in the integers' own type.
// CHECK-LABEL: func.func @bits(
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[ID]], #[[ID]]]
// CHECK-NEXT:    (%[[A:.*]]: ui8, %[[B:.*]]: ui8, %{{.*}}: ui8):
// CHECK-NEXT:      %[[R:.*]] = "scalar.alu"(%[[A]], %[[B]]) {fn = "bitwise_xor"} : (ui8, ui8) -> ui8
// CHECK-NEXT:      linalg.yield %[[R]] : ui8
func.func @bits(%y: !ui8, %a: !ui8, %b: !ui8) {
  "nisa.tensor_tensor"(%y, %a, %b) {access = [#ui8, #ui8, #ui8], engine = "vector", mask = #all, op = "bitwise_xor"}
    : (!ui8, !ui8, !ui8) -> ()
  return
}

// A recurrence: the value that each partition carries is an output that the free axis does not move.
// CHECK-LABEL: func.func @scan(
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: {{.*}}, %[[A:[a-z0-9]+]]: {{.*}}, %[[B:[a-z0-9]+]]: memref
// CHECK-NEXT:    %[[CARRY:.*]] = memref.alloc() : memref<128x1xf32, "sbuf">
// CHECK-NEXT:    %[[CV:.*]] = "nki.view"(%[[CARRY]]) {{.*}} dims = array<i64: 0>}
// CHECK-NEXT:    %[[START:.*]] = arith.constant 0.0
// CHECK-NEXT:    linalg.fill ins(%[[START]] : f32) outs(%[[CV]] :
// CHECK-NEXT:    %[[AV:.*]] = "nki.view"(%[[A]])
// CHECK-NEXT:    %[[BV:.*]] = "nki.view"(%[[B]])
// CHECK-NEXT:    %[[YV:.*]] = "nki.view"(%[[Y]])
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ID]], #[[ID]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[AV]], %[[BV]] : {{.*}}) outs(%[[YV]], %[[CV]] :
// CHECK-NEXT:    (%[[E:.*]]: f32, %[[F:.*]]: f32, %{{.*}}: f32, %[[LAST:.*]]: f32):
// CHECK-NEXT:      %[[M:.*]] = "scalar.alu"(%[[E]], %[[LAST]]) {fn = "multiply"}
// CHECK-NEXT:      %[[R:.*]] = "scalar.alu"(%[[M]], %[[F]]) {fn = "add"}
// CHECK-NEXT:      linalg.yield %[[R]], %[[R]] : f32, f32
// CHECK-NOT:     nisa.
func.func @scan(%y: !f32, %a: !f32, %b: !f32) {
  "nisa.tensor_tensor_scan"(%y, %a, %b) {access = [#f32, #f32, #f32], engine = "vector", mask = #all,
    op0 = "multiply", op1 = "add", imm = 0.0 : f64, reverse0 = false, reverse1 = false,
    operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (!f32, !f32, !f32) -> ()
  return
}

// Values of whole rows: counts, folds, what follows from them, folds that read that; each of the even and the odd elements.
// CHECK-LABEL: func.func @statistics(
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<128x6xf32, "sbuf">, %[[X:[a-z0-9]+]]: memref<128x64xf32, "sbuf">
// CHECK:         %[[COUNT:.*]] = arith.constant 3.200000e+01 : f32
// CHECK-NEXT:    linalg.fill ins(%[[COUNT]] : f32) outs(%[[NV:.*]] :
// CHECK:         %[[EVEN:.*]] = "nki.view"(%[[X]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 128], [2, 32]]>}
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[EVEN]] : {{.*}}) outs(%[[TOTAL:.*]] :
// CHECK:           "scalar.alu"({{.*}}) {fn = "add"}
// CHECK:         %[[ODD:.*]] = "nki.view"(%[[X]]) {access = #nki.access<f32, #{{.*}}, {{\[\[}}1, 128], [2, 32]]>}
// CHECK-NEXT:    linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[ODD]] : {{.*}}) outs(%[[OTHER:.*]] :
// CHECK:         linalg.generic {indexing_maps = [#[[LINE]], #[[LINE]]], iterator_types = ["parallel"]}
// CHECK-SAME:      ins(%[[TOTAL]] : {{.*}}) outs(%[[MEAN:.*]] :
// CHECK:           "scalar.alu"({{.*}}) {fn = "divide"}
// CHECK:         linalg.generic {{.*}} ins(%[[OTHER]] : {{.*}}) outs(%[[ODD_MEAN:.*]] :
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[ROWS]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[EVEN]], %[[MEAN]] : {{.*}}) outs(%[[SPREAD:.*]] :
// CHECK:           "scalar.alu"({{.*}}) {fn = "subtract"}
// CHECK:         linalg.generic {{.*}} ins(%[[ODD]], %[[ODD_MEAN]] : {{.*}}) outs(%[[ODD_SPREAD:.*]] :
// CHECK-NOT:     nisa.
#six = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 6]]>
func.func @statistics(%y: memref<128x6xf32, "sbuf">, %x: !f32) {
  "nisa.bn_stats"(%y, %x) {access = [#six, #f32], engine = "vector", mask = #all}
    : (memref<128x6xf32, "sbuf">, !f32) -> ()
  return
}

// What has no form stays: its class is its meaning.
// CHECK-LABEL: func.func @search(
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<128x8xf32, "sbuf">, %[[X:[a-z0-9]+]]: memref
// CHECK-NEXT:    "nisa.max8"(%[[Y]], %[[X]])
// CHECK-NEXT:    return
#eight = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 8]]>
func.func @search(%y: memref<128x8xf32, "sbuf">, %x: !f32) {
  "nisa.max8"(%y, %x) {access = [#eight, #f32], engine = "vector", mask = #all}
    : (memref<128x8xf32, "sbuf">, !f32) -> ()
  return
}

// What lies in another input is not what is written, unless inputs may overlap: then all of it is read first.
// CHECK-LABEL: func.func @no_alias(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<8x4xf32, "hbm">
// CHECK-NEXT:    %[[XV:.*]] = "nki.view"(%[[X]])
// CHECK-NEXT:    %[[YV:.*]] = "nki.view"(%[[Y]])
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[XV]] : {{.*}}) outs(%[[YV]] :
// CHECK-NOT:     linalg.generic
!hbm = memref<8x4xf32, "hbm">
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[4, 8], [1, 4]]>
func.func @no_alias(%x: !hbm, %y: !hbm) {
  "nisa.dma_copy"(%y, %x) {access = [#hbm, #hbm], mask = #all, engine = "unknown"} : (!hbm, !hbm) -> ()
  return
}

// CHECK-LABEL: func.func @may_alias(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<8x4xf32, "hbm">
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<8x4xf32, "hbm">
// CHECK:         linalg.generic {{.*}} ins(%[[XV:.*]] : {{.*}}) outs(%[[TV:.*]] : {{.*}})
// CHECK:         linalg.generic {{.*}} ins(%[[FROM:.*]] : {{.*}}) outs(%[[YV:.*]] : {{.*}})
func.func @may_alias(%x: !hbm, %y: !hbm) attributes {nki.may_alias} {
  "nisa.dma_copy"(%y, %x) {access = [#hbm, #hbm], mask = #all, engine = "unknown"} : (!hbm, !hbm) -> ()
  return
}

// Registers of an engine get the fold of the elements that an instruction writes, in float32.
// CHECK-LABEL: func.func @registers(
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<128x64xf32, "sbuf">, %[[R:[a-z0-9]+]]: memref<128x1xf32, "sbuf">, %[[X:[a-z0-9]+]]: memref
// CHECK-NEXT:    %[[TOTAL:.*]] = memref.alloc() : memref<128x1xf32, "sbuf">
// CHECK:         linalg.fill ins(%[[ZERO:.*]] : f32) outs(%[[TOTALS:.*]] :
// CHECK:         linalg.generic {{.*}} ins(%[[XV:.*]] : {{.*}}) outs(%[[YV:.*]], %[[SUM:.*]] :
// CHECK-NEXT:    ^bb0(%[[IN:.*]]: f32, %{{.*}}: f32, %[[BEFORE:.*]]: f32):
// CHECK:           %[[VALUE:.*]] = "scalar.activation"(%{{.*}}) {fn = "exp"} : (f32) -> f32
// CHECK-NEXT:      %[[AFTER:.*]] = "scalar.alu"(%[[BEFORE]], %[[VALUE]]) {fn = "add"} : (f32, f32) -> f32
// CHECK-NEXT:      linalg.yield %[[VALUE]], %[[AFTER]]
// CHECK:         linalg.generic {{.*}} ins(%[[RV:.*]], %[[TV:.*]] : {{.*}}) outs(%[[RV2:.*]] :
// CHECK-NEXT:    ^bb0(%[[OLD:.*]]: f32, %[[PART:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      "scalar.alu"(%[[OLD]], %[[PART]]) {fn = "add"}
#registers = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>
func.func @registers(%y: !f32, %r: memref<128x1xf32, "sbuf">, %x: !f32) {
  "nisa.exponential"(%y, %r, %x) {operandSegmentSizes = array<i32: 1, 1, 0, 1, 0, 0>, access = [#f32, #registers, #f32],
    engine = "vector", imm = 0.0 : f64, mask = #all, reduce_cmd = "reduce", reduce_op = "add"}
    : (!f32, memref<128x1xf32, "sbuf">, !f32) -> ()
  return
}

// A cumulative instruction keeps its registers from element to element, in order.
// CHECK-LABEL: func.func @cumulative(
// CHECK:         linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]{{.*}} ins(%[[XV:.*]] : {{.*}}) outs(%[[YV:.*]], %[[CARRY:.*]] :
// CHECK-NEXT:    ^bb0(%[[IN:.*]]: f32, %{{.*}}: f32, %[[BEFORE:.*]]: f32):
// CHECK:           %[[NEXT:.*]] = "scalar.alu"(%{{.*}}, %[[BEFORE]]) {fn = "add"} : (f32, f32) -> f32
// CHECK-NEXT:      linalg.yield %[[NEXT]], %[[NEXT]]
func.func @cumulative(%y: !f32, %r: memref<128x1xf32, "sbuf">, %x: !f32) {
  "nisa.tensor_scalar_cumulative"(%y, %r, %x) {operandSegmentSizes = array<i32: 1, 1, 0, 1, 0, 0>,
    access = [#f32, #registers, #f32], engine = "vector", imm0 = 2.0 : f64, mask = #all, op0 = "multiply", op1 = "add",
    reduce_cmd = "reduce", reduce_op = "add"} : (!f32, memref<128x1xf32, "sbuf">, !f32) -> ()
  return
}

// Two rows a partition are two sums of products, one after the other.
// CHECK-LABEL: func.func @double_row(
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<3x6xf32, "psum">, %[[A:[a-z0-9]+]]: memref<4x2x3xf8E4M3, "sbuf">,
// CHECK-SAME:    %[[B:[a-z0-9]+]]: memref<4x2x6xf8E5M2, "sbuf">
// CHECK:         %[[YV:.*]] = "nki.view"(%[[Y]])
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[YV]] :
// CHECK:         %[[A0:.*]] = "nki.view"(%[[A]]) {{.*}} -> memref<4x3xf8E4M3, strided<[6, 1]>, "sbuf">
// CHECK-NEXT:    %[[B0:.*]] = "nki.view"(%[[B]]) {{.*}} -> memref<4x6xf8E5M2, strided<[12, 1]>, "sbuf">
// CHECK-NEXT:    linalg.generic {{.*}}iterator_types = ["reduction", "parallel", "parallel"]} ins(%[[A0]], %[[B0]]
// CHECK:         %[[A1:.*]] = "nki.view"(%[[A]]) {{.*}} -> memref<4x3xf8E4M3, strided<[6, 1], offset: 3>, "sbuf">
// CHECK-NEXT:    %[[B1:.*]] = "nki.view"(%[[B]]) {{.*}} -> memref<4x6xf8E5M2, strided<[12, 1], offset: 6>, "sbuf">
// CHECK-NEXT:    linalg.generic {{.*}}iterator_types = ["reduction", "parallel", "parallel"]} ins(%[[A1]], %[[B1]]
#chip_3x6 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 3], [1, 6]]>
#chip_4x2x3 = #nki.access<f8E4M3, affine_map<() -> (0, 0)>, [[1, 4], [3, 2], [1, 3]]>
#chip_4x2x6 = #nki.access<f8E5M2, affine_map<() -> (0, 0)>, [[1, 4], [6, 2], [1, 6]]>
func.func @double_row(%dst: memref<3x6xf32, "psum">, %stationary: memref<4x2x3xf8E4M3, "sbuf">,
      %moving: memref<4x2x6xf8E5M2, "sbuf">) {
  "nisa.nc_matmul_double_row"(%dst, %stationary, %moving) {
    access = [#chip_3x6, #chip_4x2x3, #chip_4x2x6], mask = #all, engine = "unknown", accumulate = false
  } : (memref<3x6xf32, "psum">, memref<4x2x3xf8E4M3, "sbuf">, memref<4x2x6xf8E5M2, "sbuf">) -> ()
  return
}
