// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --static-indices %s | FileCheck %s

!table = memref<16x6xf32, "hbm">
!tile = memref<8x6xf32, "sbuf">
!index = memref<8x1xi32, "sbuf">
#all = affine_set<() : (0 == 0)>
#index = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 8], [1, 1]]>
#one = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>
#rows = #nki.access<f32, affine_map<() -> (0)>, [[6, 16], [1, 6]]>
#flat = #nki.access<f32, affine_map<() -> (0)>, [[96, 1], [1, 96]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 6]]>

// Row 13 - p of the table goes to partition p, and back: the transfers step through the table, and the iota goes.
// CHECK-LABEL: func.func @counted(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<16x6xf32, "hbm">
// CHECK:         %[[T:.*]] = memref.alloc() {nki.name = "t"}
// CHECK-NOT:     nisa.iota
// CHECK:         "nisa.dma_copy"(%[[T]], %[[X]]) {access = [#nki.access<f32, {{#map[0-9]*}}, {{\[\[}}1, 8], [1, 6]]>, #nki.access<f32, [[START:#map[0-9]*]], {{\[\[}}-6, 8], [1, 6]]>]
// CHECK-NEXT:    "nisa.dma_copy"(%[[X]], %[[T]]) {access = [#nki.access<f32, [[START]], {{\[\[}}-6, 8], [1, 6]]>, #nki.access<f32, {{#map[0-9]*}}, {{\[\[}}1, 8], [1, 6]]>]
// CHECK-NEXT:    "nisa.dma_copy"(%[[T]], %[[X]]) {access = [#nki.access<f32, {{#map[0-9]*}}, {{\[\[}}1, 8], [1, 6]]>, #nki.access<f32, [[START]], {{\[\[}}-6, 8], [1, 6]]>]
// CHECK-NEXT:    return
func.func @counted(%x: !table) {
  %i = memref.alloc() {nki.name = "i"} : !index
  %t = memref.alloc() {nki.name = "t"} : !tile
  "nisa.iota"(%i) {access = [#index], engine = "unknown", expression = affine_map<(d0, d1) -> (-d0 + 13)>, mask = #all} : (!index) -> ()
  "nisa.dma_gather"(%t, %x, %i) {access = [#tile, #rows, #index], engine = "unknown", mask = #all, mode = "error"} : (!tile, !table, !index) -> ()
  "nisa.dma_scatter"(%x, %t, %i) {access = [#rows, #tile, #index], engine = "unknown", mask = #all, mode = "error", rmw = "bypass"} : (!table, !tile, !index) -> ()
  "nisa.dynamic_read"(%t, %x, %i) {access = [#tile, #flat, #index], engine = "unknown", extent = 16 : i64, mask = #all, mode = "error", scale = 6 : i64, start = 0 : i64, steps = [0, 1]} : (!tile, !table, !index) -> ()
  return
}

// The index of a transfer to one position that a single number moves: the transfer has a fixed position.
// CHECK-LABEL: func.func @one(
// CHECK-NOT:     nisa.iota
// CHECK:         "nisa.dma_copy"(%{{.*}}, %{{.*}}) {access = [#nki.access<f32, #{{map[0-9]*}}, {{\[\[}}0, 1], [1, 6]]>
// CHECK-NEXT:    return
func.func @one(%x: !table) {
  %i = memref.alloc() : memref<1x1xi32, "sbuf">
  %t = memref.alloc() : memref<1x6xf32, "sbuf">
  "nisa.iota"(%i) {access = [#one], engine = "unknown", expression = affine_map<(d0, d1) -> (5)>, mask = #all} : (memref<1x1xi32, "sbuf">) -> ()
  "nisa.dma_dynamic_write"(%x, %t, %i) {access = [#rows, #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 1], [1, 6]]>, #one], engine = "unknown", extents = [16], first = affine_map<(d0, d1, d2, d3, d4) -> (0)>, mask = #all, mode = "skip", position = affine_map<(d0, d1, d2, d3, d4) -> (d1)>, rmw = "bypass", scales = [6], second = affine_map<(d0, d1, d2, d3, d4) -> (0)>} : (!table, memref<1x6xf32, "sbuf">, memref<1x1xi32, "sbuf">) -> ()
  return
}

// An index that is no row of the table stays, for its error or for the rows that it leaves out; so does a write of all
// partitions to one row, and an index that something else writes, too.
// CHECK-LABEL: func.func @stays(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<16x6xf32, "hbm">
// CHECK:         "nisa.iota"(%[[I:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.dma_gather"(%[[T:[a-z0-9_]+]], %[[X]], %[[I]])
// CHECK-NEXT:    "nisa.iota"(%[[J:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.dma_scatter"(%[[X]], %[[T]], %[[J]])
// CHECK-NEXT:    "nisa.iota"(%[[K:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.memset"(%[[K]])
// CHECK-NEXT:    "nisa.dma_gather"(%[[T]], %[[X]], %[[K]])
func.func @stays(%x: !table) {
  %i = memref.alloc() : !index
  %j = memref.alloc() : !index
  %k = memref.alloc() : !index
  %t = memref.alloc() : !tile
  "nisa.iota"(%i) {access = [#index], engine = "unknown", expression = affine_map<(d0, d1) -> (d0 + 9)>, mask = #all} : (!index) -> ()
  "nisa.dma_gather"(%t, %x, %i) {access = [#tile, #rows, #index], engine = "unknown", mask = #all, mode = "skip"} : (!tile, !table, !index) -> ()
  "nisa.iota"(%j) {access = [#index], engine = "unknown", expression = affine_map<(d0, d1) -> (3)>, mask = #all} : (!index) -> ()
  "nisa.dma_scatter"(%x, %t, %j) {access = [#rows, #tile, #index], engine = "unknown", mask = #all, mode = "error", rmw = "bypass"} : (!table, !tile, !index) -> ()
  "nisa.iota"(%k) {access = [#index], engine = "unknown", expression = affine_map<(d0, d1) -> (d0)>, mask = #all} : (!index) -> ()
  "nisa.memset"(%k) {access = [#index], engine = "unknown", mask = #all, value = 1.000000e+00 : f64} : (!index) -> ()
  "nisa.dma_gather"(%t, %x, %k) {access = [#tile, #rows, #index], engine = "unknown", mask = #all, mode = "error"} : (!tile, !table, !index) -> ()
  return
}
