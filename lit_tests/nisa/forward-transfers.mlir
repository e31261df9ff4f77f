// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --forward-transfers %s | FileCheck %s

!hbm = memref<16x6xf32, "hbm">
!tile = memref<16x6xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#some = affine_set<(d0, d1) : (9 - d0 >= 0)>
#rows = #nki.access<f32, affine_map<() -> (0)>, [[6, 16], [1, 6]]>
#last_row_first = #nki.access<f32, affine_map<() -> (90)>, [[-6, 16], [1, 6]]>
#last_column_first = #nki.access<f32, affine_map<() -> (5)>, [[6, 16], [-1, 6]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 16], [1, 6]]>
#reversed = #nki.access<f32, affine_map<() -> (0, 5)>, [[1, 16], [-1, 6]]>

// The tile in HBM steps forwards where both are walked from the other end; an engine then reverses the tile on chip.
// CHECK-LABEL: func.func @load(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<16x6xf32, "hbm">
// CHECK:         %[[T:.*]] = memref.alloc() {nki.name = "t"}
// CHECK-NEXT:    %[[S:.*]] = memref.alloc() {nki.name = "t"}
// CHECK-NEXT:    "nisa.dma_copy"(%[[S]], %[[X]]) {access = [#nki.access<f32, [[TILE:#map[0-9]*]], {{\[\[}}1, 16], [1, 6]]>, #nki.access<f32, [[FLAT:#map[0-9]*]], {{\[\[}}6, 16], [1, 6]]>]
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T]], %[[S]]) {access = [#nki.access<f32, {{#map[0-9]*}}, {{\[\[}}1, 16], [-1, 6]]>, #nki.access<f32, [[TILE]], {{\[\[}}1, 16], [1, 6]]>]
// CHECK-NEXT:    return
func.func @load(%x: !hbm) {
  %t = memref.alloc() {nki.name = "t"} : !tile
  "nisa.dma_copy"(%t, %x) {access = [#tile, #last_column_first], engine = "unknown", mask = #all} : (!tile, !hbm) -> ()
  return
}

// CHECK-LABEL: func.func @store(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<16x6xf32, "hbm">
// CHECK:         %[[T:.*]] = memref.alloc() {nki.name = "t"}
// CHECK-NEXT:    %[[S:.*]] = memref.alloc() {nki.name = "t"}
// CHECK-NEXT:    "nisa.tensor_copy"(%[[S]], %[[T]]) {access = [#nki.access<f32, {{#map[0-9]*}}, {{\[\[}}1, 16], [1, 6]]>, #nki.access<f32, {{#map[0-9]*}}, {{\[\[}}1, 16], [-1, 6]]>]
// CHECK-NEXT:    "nisa.dma_copy"(%[[X]], %[[S]])
// CHECK-NEXT:    return
func.func @store(%x: !hbm) {
  %t = memref.alloc() {nki.name = "t"} : !tile
  "nisa.dma_copy"(%x, %t) {access = [#rows, #reversed], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  return
}

// Two tiles that both step backwards need no copy; rows that go to partitions from the last to the first stay, as does
// a transfer under a mask.
// CHECK-LABEL: func.func @stays(
// CHECK:         memref.alloc()
// CHECK-NEXT:    "nisa.dma_copy"{{.*}} {access = [#nki.access<f32, {{#map[0-9]*}}, {{\[\[}}1, 16], [1, 6]]>, #nki.access<f32, {{#map[0-9]*}}, {{\[\[}}6, 16], [1, 6]]>]
// CHECK-NEXT:    "nisa.dma_copy"{{.*}} {access = [#nki.access<f32, {{#map[0-9]*}}, {{\[\[}}1, 16], [1, 6]]>, #nki.access<f32, {{#map[0-9]*}}, {{\[\[}}-6, 16], [1, 6]]>]
// CHECK-NEXT:    "nisa.dma_copy"{{.*}} {access = [#nki.access<f32, {{#map[0-9]*}}, {{\[\[}}1, 16], [-1, 6]]>, #nki.access<f32, {{#map[0-9]*}}, {{\[\[}}6, 16], [1, 6]]>]
// CHECK-NEXT:    return
func.func @stays(%x: !hbm) {
  %t = memref.alloc() : !tile
  "nisa.dma_copy"(%t, %x) {access = [#reversed, #last_column_first], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%t, %x) {access = [#tile, #last_row_first], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%t, %x) {access = [#reversed, #rows], engine = "sync", mask = #some} : (!tile, !hbm) -> ()
  return
}
