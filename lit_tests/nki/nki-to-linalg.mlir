// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --nki-to-linalg %s | FileCheck %s

!f32_128x512 = memref<128x512xf32, "sbuf">
!bf16_128x512 = memref<128x512xbf16, "sbuf">
!bf16_128x64 = memref<128x64xbf16, "sbuf">
!bf16_column = memref<128x1xbf16, "sbuf">
!f32_psum = memref<64x512xf32, "psum">
!square = memref<64x64xf32, "sbuf">
!column = memref<64x1xf32, "sbuf">
!large_square = memref<128x128xf32, "sbuf">
!hbm = memref<6400xf32, "hbm">
!f32_128x64 = memref<128x64xf32, "sbuf">
!i32_128x64 = memref<128x64xi32, "sbuf">
!f32_128x16 = memref<128x16xf32, "sbuf">
!i32_128x16 = memref<128x16xi32, "sbuf">

// The whole of each.
#all = affine_set<() : (0 == 0)>
#f32_128x512 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#bf16_128x64 = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#bf16_column = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>
#f32_psum = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 512]]>
#square = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>
#column = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 1]]>
#f32_128x64 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#i32_128x64 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#f32_128x16 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>
#i32_128x16 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>

// CHECK-DAG: #[[ORIGIN:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-DAG: #[[AT:map[0-9]*]] = affine_map<()[s0] -> (0, s0 * 64)>
// CHECK-DAG: #[[ROW_1:map[0-9]*]] = affine_map<() -> (1, 0)>
// CHECK-DAG: #[[EIGHTH:map[0-9]*]] = affine_map<() -> (8)>
// CHECK-DAG: #[[COLUMN_8:map[0-9]*]] = affine_map<() -> (0, 8)>
// CHECK-DAG: #[[BYTE_3:map[0-9]*]] = affine_map<() -> (0, 3)>
// CHECK-DAG: #[[ID:map[0-9]*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[TURNED:map[0-9]*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[ROWS:map[0-9]*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: #[[NONE:map[0-9]*]] = affine_map<(d0, d1) -> ()>
// CHECK-DAG: #[[LINE:map[0-9]*]] = affine_map<(d0) -> (d0)>
// CHECK-DAG: #[[KM:map[0-9]*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG: #[[KN:map[0-9]*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[MN:map[0-9]*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[EXPRESSION:map[0-9]*]] = affine_map<(d0, d1)[s0] -> (d0 * 256 + s0 * 64 + d1)>
// CHECK-DAG: #[[TRIANGLE:set[0-9]*]] = affine_set<(d0, d1)[s0] : (d0 + s0 - d1 >= 0)>
// CHECK-DAG: #[[LOWER:set[0-9]*]] = affine_set<(d0, d1) : (d0 - d1 >= 0)>

// Operands become views of their buffers, sources are computed in float32 and the result converted to bfloat16, once.
// CHECK-LABEL: func.func @add(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<128x512xf32, "sbuf">, %[[C:[a-z0-9]+]]: memref<128x512xbf16, "sbuf">
// CHECK:         scf.for %[[I:[a-z0-9]+]] =
// CHECK-NEXT:      %[[X:.*]] = "nki.view"(%[[A]], %[[I]]) {access = #nki.access<f32, #[[AT]], {{\[\[}}1, 128], [1, 64]]>}
// CHECK-SAME:        -> memref<128x64xf32, strided<[512, 1], offset: ?>, "sbuf">
// CHECK-NEXT:      %[[B:.*]] = "nki.view"(%[[A]]) {access = #nki.access<f32, #[[ROW_1]], {{\[\[}}0, 128], [1, 64]]>}
// CHECK-SAME:        -> memref<128x64xf32, strided<[0, 1], offset: 512>, "sbuf">
// CHECK-NEXT:      %[[Y:.*]] = "nki.view"(%[[C]], %[[I]]) {access = #nki.access<bf16, #[[AT]], {{\[\[}}1, 128], [1, 64]]>}
// CHECK-SAME:        -> memref<128x64xbf16, strided<[512, 1], offset: ?>, "sbuf">
// CHECK-NEXT:      linalg.generic {indexing_maps = [#[[ID]], #[[ID]], #[[ID]]], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME:        ins(%[[X]], %[[B]] : {{.*}}) outs(%[[Y]] : {{.*}}) attrs = {nki.name = "sum"}
// CHECK-NEXT:      (%[[P:.*]]: f32, %[[Q:.*]]: f32, %{{.*}}: bf16):
// CHECK-NEXT:        %[[S:.*]] = "scalar.alu"(%[[P]], %[[Q]]) {fn = "add"} : (f32, f32) -> f32
// CHECK-NEXT:        %[[R:.*]] = "scalar.convert"(%[[S]]) : (f32) -> bf16
// CHECK-NEXT:        linalg.yield %[[R]] : bf16
// CHECK-NOT:       "nki.binary"
#bf16_at = #nki.access<bf16, affine_map<()[i] -> (0, i * 64)>, [[1, 128], [1, 64]]>
#f32_at = #nki.access<f32, affine_map<()[i] -> (0, i * 64)>, [[1, 128], [1, 64]]>
#f32_row_1 = #nki.access<f32, affine_map<()[i] -> (1, 0)>, [[0, 128], [1, 64]]>
func.func @add(%a: !f32_128x512, %c: !bf16_128x512) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    "nki.binary"(%c, %a, %a, %i) {access = [#bf16_at, #f32_at, #f32_row_1], mask = #all, op = "add", nki.name = "sum"}
      : (!bf16_128x512, !f32_128x512, !f32_128x512, index) -> ()
  }
  return
}

// A sum is accumulated in float32, whatever it is stored as. Its result has no axis 1.
// CHECK-LABEL: func.func @sum(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x64xbf16, "sbuf">, %[[Y:[a-z0-9]+]]: memref<128x1xbf16, "sbuf">
// CHECK:         %[[T:.*]] = memref.alloc() : memref<128x1xf32, "sbuf">
// CHECK:         %[[IN:.*]] = "nki.view"(%[[X]]) {access = #nki.access<bf16, #[[ORIGIN]], {{\[\[}}1, 128], [1, 64]]>}
// CHECK:         %[[S:.*]] = "nki.view"(%[[T]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 128], [1, 1]]>, dims = array<i64: 0>}
// CHECK-SAME:      -> memref<128xf32, strided<[1]>, "sbuf">
// CHECK:         %[[ZERO:.*]] = arith.constant 0.0
// CHECK-NEXT:    linalg.fill ins(%[[ZERO]] : f32) outs(%[[S]] :
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[IN]] : {{.*}}) outs(%[[S]] :
// CHECK-NEXT:    (%[[V:.*]]: bf16, %[[TOTAL:.*]]: f32):
// CHECK-NEXT:      %[[W:.*]] = "scalar.convert"(%[[V]]) : (bf16) -> f32
// CHECK-NEXT:      %[[R:.*]] = "scalar.alu"(%[[TOTAL]], %[[W]]) {fn = "add"}
// CHECK-NEXT:      linalg.yield %[[R]] : f32
// CHECK:         %[[OUT:.*]] = "nki.view"(%[[Y]]) {access = #nki.access<bf16, #[[ORIGIN]], {{\[\[}}1, 128], [1, 1]]>, dims = array<i64: 0>}
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[LINE]], #[[LINE]]], iterator_types = ["parallel"]}
// CHECK-SAME:      ins(%[[S]] : {{.*}}) outs(%[[OUT]] :
// CHECK-NEXT:    (%[[V:.*]]: f32, %{{.*}}: bf16):
// CHECK-NEXT:      %[[R:.*]] = "scalar.convert"(%[[V]]) : (f32) -> bf16
// CHECK-NEXT:      linalg.yield %[[R]] : bf16
func.func @sum(%x: !bf16_128x64, %y: !bf16_column) {
  "nki.reduce"(%y, %x) {access = [#bf16_column, #bf16_128x64], mask = #all, op = "add", axes = [1]}
    : (!bf16_column, !bf16_128x64) -> ()
  return
}

// The first product of a group starts from zero, the next ones add to it.
// CHECK-LABEL: func.func @products(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<128x64xbf16, "sbuf">, %[[B:[a-z0-9]+]]: memref<128x512xf32, "sbuf">,
// CHECK-SAME:    %[[C:[a-z0-9]+]]: memref<64x512xf32, "psum">
// CHECK:         %[[SUM:.*]] = "nki.view"(%[[C]]) {
// CHECK:         %[[ZERO:.*]] = arith.constant 0.0
// CHECK-NEXT:    linalg.fill ins(%[[ZERO]] : f32) outs(%[[SUM]] :
// CHECK:         %[[X:.*]] = "nki.view"(%[[A]]) {
// CHECK:         %[[Y:.*]] = "nki.view"(%[[B]]) {
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[KM]], #[[KN]], #[[MN]]], iterator_types = ["reduction", "parallel", "parallel"]}
// CHECK-SAME:      ins(%[[X]], %[[Y]] : {{.*}}) outs(%[[SUM]] :
// CHECK-NEXT:    (%[[P:.*]]: bf16, %[[Q:.*]]: f32, %[[TOTAL:.*]]: f32):
// CHECK-NEXT:      %[[R:.*]] = "scalar.convert"(%[[P]]) : (bf16) -> f32
// CHECK-NEXT:      %[[S:.*]] = "scalar.alu"(%[[R]], %[[Q]]) {fn = "multiply"}
// CHECK-NEXT:      %[[T:.*]] = "scalar.alu"(%[[TOTAL]], %[[S]]) {fn = "add"}
// CHECK-NEXT:      linalg.yield %[[T]] : f32
// CHECK-NOT:     linalg.fill
// CHECK:         linalg.generic {indexing_maps = [#[[KM]], #[[KN]], #[[MN]]], iterator_types = ["reduction", "parallel", "parallel"]}
func.func @products(%a: !bf16_128x64, %b: !f32_128x512, %c: !f32_psum) {
  "nki.matmul"(%c, %a, %b) {access = [#f32_psum, #bf16_128x64, #f32_128x512], mask = #all, accumulate = false}
    : (!f32_psum, !bf16_128x64, !f32_128x512) -> ()
  "nki.matmul"(%c, %a, %b) {access = [#f32_psum, #bf16_128x64, #f32_128x512], mask = #all, accumulate = true}
    : (!f32_psum, !bf16_128x64, !f32_128x512) -> ()
  return
}

// All reads come before any write: a transpose in place goes through a temporary.
// CHECK-LABEL: func.func @transpose(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<64x64xf32, "sbuf">
// CHECK:         %[[T:.*]] = memref.alloc() : memref<64x64xf32, "sbuf">
// CHECK:         %[[IN:.*]] = "nki.view"(%[[X]]) {
// CHECK:         %[[TV:.*]] = "nki.view"(%[[T]]) {
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[TURNED]]]{{.*}} ins(%[[IN]] :{{.*}} outs(%[[TV]] :
// CHECK:         linalg.generic {indexing_maps = [#[[TURNED]], #[[TURNED]]]{{.*}} ins(%[[TV]] :{{.*}} outs(%[[IN]] :
func.func @transpose(%x: !square) {
  "nki.transpose"(%x, %x) {access = [#square, #square], mask = #all} : (!square, !square) -> ()
  return
}

// An elementwise operation in place needs none.
// CHECK-LABEL: func.func @in_place(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<64x64xf32, "sbuf">
// CHECK-NEXT:    %[[V:.*]] = "nki.view"(%[[X]]) {
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ID]]]{{.*}} ins(%[[V]] :{{.*}} outs(%[[V]] :
// CHECK-NEXT:    (%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[R:.*]] = "scalar.activation"(%[[IN]]) {fn = "exp"} : (f32) -> f32
// CHECK-NEXT:      linalg.yield %[[R]] : f32
func.func @in_place(%x: !square) {
  "nki.unary"(%x, %x) {access = [#square, #square], mask = #all, fn = "exp"} : (!square, !square) -> ()
  return
}

// A mask that is a box here makes the loops smaller: rows 0 to 99, columns 8 to 63.
// CHECK-LABEL: func.func @box(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<6400xf32, "hbm"> {nki.name = "x"}, %[[Y:[a-z0-9]+]]: memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[IN:.*]] = "nki.view"(%[[X]]) {access = #nki.access<f32, #[[EIGHTH]], {{\[\[}}64, 100], [1, 56]]>, masked}
// CHECK-NEXT:    %[[OUT:.*]] = "nki.view"(%[[Y]]) {access = #nki.access<f32, #[[COLUMN_8]], {{\[\[}}1, 100], [1, 56]]>, masked}
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[IN]] :{{.*}} outs(%[[OUT]] :
// CHECK-NOT:     nki.mask
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[64, 128], [1, 64]]>
func.func @box(%x: !hbm, %y: !f32_128x64) {
  "nki.load"(%y, %x) {access = [#f32_128x64, #hbm], mask = affine_set<(p, f) : (99 - p >= 0, f - 8 >= 0)>}
    : (!f32_128x64, !hbm) -> ()
  return
}

// Any other mask stays. Its symbols are the last inputs.
// CHECK-LABEL: func.func @triangle(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x128xf32, "sbuf">, %[[Y:[a-z0-9]+]]: memref<128x128xf32, "sbuf">,
// CHECK-SAME:    %[[I:[a-z0-9]+]]: index {nki.program_id
// CHECK:         %[[IN:.*]] = "nki.view"(%[[X]]) {
// CHECK:         %[[OUT:.*]] = "nki.view"(%[[Y]]) {
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[NONE]], #[[ID]]]
// CHECK-SAME:      ins(%[[IN]], %[[I]] : memref<{{.*}}>, index) outs(%[[OUT]] : {{.*}}) attrs = {nki.mask = #[[TRIANGLE]]}
// CHECK-NEXT:    (%[[V:.*]]: f32, %{{.*}}: index, %{{.*}}: f32):
// CHECK-NEXT:      linalg.yield %[[V]] : f32
#large_square = #nki.access<f32, affine_map<()[i] -> (0, 0)>, [[1, 128], [1, 128]]>
func.func @triangle(%x: !large_square, %y: !large_square, %i: index {nki.program_id = 0 : i64})
    attributes {nki.grid = [4]} {
  "nki.copy"(%y, %x, %i) {access = [#large_square, #large_square], mask = affine_set<(p, f)[i] : (p + i - f >= 0)>}
    : (!large_square, !large_square, index) -> ()
  return
}

// A sum under such a mask starts from zero only where something will be added.
// CHECK-LABEL: func.func @triangle_sum(
// CHECK-NOT:     linalg.fill
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[X:.*]] : {{.*}}) outs(%[[Y:[^ ]*]] : {{.*}}) attrs = {nki.mask = #[[LOWER]]}
// CHECK:           %[[ZERO:.*]] = arith.constant 0.0
// CHECK-NEXT:      linalg.yield %[[ZERO]]
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[X]] : {{.*}}) outs(%[[Y]] : {{.*}}) attrs = {nki.mask = #[[LOWER]]}
// CHECK-NEXT:    (%[[V:.*]]: f32, %[[TOTAL:.*]]: f32):
// CHECK-NEXT:      %[[R:.*]] = "scalar.alu"(%[[TOTAL]], %[[V]]) {fn = "add"}
// CHECK-NEXT:      linalg.yield %[[R]] : f32
func.func @triangle_sum(%x: !square, %y: !column) {
  "nki.reduce"(%y, %x) {access = [#column, #square], mask = affine_set<(p, f) : (p - f >= 0)>, op = "add", axes = [1]}
    : (!column, !square) -> ()
  return
}

// An index expression is computed where it is used.
// CHECK-LABEL: func.func @iota(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x64xf32, "sbuf">, %[[I:[a-z0-9]+]]: index
// CHECK:         %[[OUT:.*]] = "nki.view"(%[[X]]) {
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[NONE]], #[[ID]]]{{.*}} ins(%[[I]] : index) outs(%[[OUT]] :
// CHECK-NEXT:    (%[[J:.*]]: index, %{{.*}}: f32):
// CHECK-NEXT:      %[[P:.*]] = linalg.index 0
// CHECK-NEXT:      %[[F:.*]] = linalg.index 1
// CHECK-NEXT:      %[[V:.*]] = affine.apply #[[EXPRESSION]](%[[P]], %[[F]])[%[[J]]]
// CHECK-NEXT:      %[[W:.*]] = arith.index_cast %[[V]] : index to i32
// CHECK-NEXT:      %[[R:.*]] = "scalar.convert"(%[[W]]) : (i32) -> f32
// CHECK-NEXT:      linalg.yield %[[R]] : f32
#of_program = #nki.access<f32, affine_map<()[i] -> (0, 0)>, [[1, 128], [1, 64]]>
func.func @iota(%x: !f32_128x64, %i: index {nki.program_id = 0 : i64}) attributes {nki.grid = [4]} {
  "nki.iota"(%x, %i) {access = [#of_program], mask = #all, expression = affine_map<(p, f)[i] -> (p * 256 + f + i * 64)>}
    : (!f32_128x64, index) -> ()
  return
}

// A constant has no inputs. It is held in the type that is exact for it, here a 32-bit integer.
// CHECK-LABEL: func.func @memset(
// CHECK:         linalg.generic {indexing_maps = [#[[ID]]], iterator_types = ["parallel", "parallel"]} outs(
// CHECK-NEXT:    (%{{.*}}: i32):
// CHECK-NEXT:      %[[C:.*]] = arith.constant 16777217 : i32
// CHECK-NEXT:      linalg.yield %[[C]] : i32
func.func @memset(%x: !i32_128x64) {
  "nki.memset"(%x) {access = [#i32_128x64], mask = #all, value = 16777217.0 : f64} : (!i32_128x64) -> ()
  return
}

// A pattern of another type than its buffer's looks at the same bytes. Integers keep their sign.
// CHECK-LABEL: func.func @bytes(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x16xf32, "sbuf">, %[[Y:[a-z0-9]+]]: memref<128x16xi32, "sbuf">
// CHECK-NEXT:    %[[IN:.*]] = "nki.view"(%[[X]]) {access = #nki.access<ui8, #[[BYTE_3]], {{\[\[}}1, 128], [4, 16]]>}
// CHECK-SAME:      : (memref<128x16xf32, "sbuf">) -> memref<128x16xui8, strided<[64, 4], offset: 3>, "sbuf">
// CHECK:         linalg.generic {{.*}} ins(%[[IN]] :
// CHECK-NEXT:    (%[[V:.*]]: ui8, %{{.*}}: i32):
// CHECK-NEXT:      %[[R:.*]] = "scalar.convert"(%[[V]]) : (ui8) -> i32
// CHECK-NEXT:      linalg.yield %[[R]] : i32
#fourth_bytes = #nki.access<ui8, affine_map<() -> (0, 3)>, [[1, 128], [4, 16]]>
func.func @bytes(%x: !f32_128x16, %y: !i32_128x16) {
  "nki.copy"(%y, %x) {access = [#i32_128x16, #fourth_bytes], mask = #all} : (!i32_128x16, !f32_128x16) -> ()
  return
}

// Instructions and prints stay as they are.
// CHECK-LABEL: func.func @stays(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x16xf32, "sbuf">
// CHECK-NEXT:    "nisa.reciprocal"(%[[X]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, {{.*}}>, #nki.access<f32, {{.*}}>], engine = "vector"
// CHECK-NEXT:    "nki.device_print"(%[[X]]) {access = [#nki.access<f32, {{.*}}>], {{.*}}prefix = "x"}
// CHECK-NEXT:    return
func.func @stays(%x: !f32_128x16) {
  "nisa.reciprocal"(%x, %x) {access = [#f32_128x16, #f32_128x16], mask = #all, engine = "vector"}
    : (!f32_128x16, !f32_128x16) -> ()
  "nki.device_print"(%x) {access = [#f32_128x16], mask = #all, prefix = "x"} : (!f32_128x16) -> ()
  return
}
