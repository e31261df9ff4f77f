// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --loop-over-programs --split-input-file %s | FileCheck %s

!x = memref<3x8x16xf32, "hbm">
!tile = memref<8x16xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 16]]>
#tile_i = #nki.access<f32, affine_map<()[i] -> (0, 0)>, [[1, 8], [1, 16]]>
#x_i = #nki.access<f32, affine_map<()[i] -> (i * 128)>, [[16, 8], [1, 16]]>

// CHECK-DAG: #[[PART:map[0-9]*]] = affine_map<()[s0] -> (0, s0 * 16)>
// CHECK-DAG: #[[ROWS:map[0-9]*]] = affine_map<()[s0] -> (s0 * 128)>
// CHECK-DAG: #[[SECOND:map[0-9]*]] = affine_map<() -> (0, 16)>
// CHECK-DAG: #[[THIRD:map[0-9]*]] = affine_map<() -> (0, 32)>

// The tile that the programs reduce has a part for each; one sum serves all of them.
// CHECK-LABEL: func.func @sums(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<3x8x16xf32, "hbm">
// CHECK-SAME:    %[[OUT:[a-z0-9]+]]: memref<3x8x16xf32, "hbm">
// CHECK-SAME:    nki.grid = [1]
// CHECK:         %[[PARTS:.*]] = memref.alloc() {nki.name = "part"} : memref<8x3x16xf32, "sbuf">
// CHECK:         %[[TOTAL:.*]] = memref.alloc() {nki.name = "total"} : memref<8x16xf32, "sbuf">
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK-NEXT:      "nki.load"(%[[PARTS]], %[[X]], %[[I]])
// CHECK-SAME:        access = [#nki.access<f32, #[[PART]], {{\[\[}}1, 8], [1, 16]]>, #nki.access<f32, #[[ROWS]],
// CHECK-NEXT:    } {nki.loop = "sequential", nki.program_axis = 0 : i64}
// CHECK-NEXT:    "nki.copy"(%[[TOTAL]], %[[PARTS]])
// CHECK-NEXT:    "nki.binary"(%[[TOTAL]], %[[TOTAL]], %[[PARTS]])
// CHECK-SAME:      #nki.access<f32, #[[SECOND]], {{.*}} op = "add"
// CHECK-NEXT:    "nki.binary"(%[[TOTAL]], %[[TOTAL]], %[[PARTS]])
// CHECK-SAME:      #nki.access<f32, #[[THIRD]], {{.*}} op = "add"
// CHECK:         scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK-NEXT:      "nki.store"(%[[OUT]], %[[TOTAL]], %[[J]])
// CHECK:         return
func.func @sums(%x: !x {nki.name = "x"}, %out: !x {nki.name = "out", nki.shared = 0 : i64},
                %i: index {nki.program_id = 0 : i64}) attributes {nki.grid = [3], nki.results = [1]} {
  %part = memref.alloc() {nki.name = "part"} : !tile
  "nki.load"(%part, %x, %i) {access = [#tile_i, #x_i], mask = #all} : (!tile, !x, index) -> ()
  %total = memref.alloc() {nki.name = "total"} : !tile
  "nisa.all_reduce"(%total, %part) {access = [#tile, #tile], engine = "unknown", groups = "[[0, 1, 2]]", mask = #all,
    op = "add", over = "programs"} : (!tile, !tile) -> ()
  "nki.store"(%out, %total, %i) {access = [#x_i, #tile_i], mask = #all} : (!x, !tile, index) -> ()
  return
}

// -----

// Programs that do not reduce over each other stay a grid.
!x = memref<3x8x16xf32, "hbm">
!tile = memref<8x16xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile_i = #nki.access<f32, affine_map<()[i] -> (0, 0)>, [[1, 8], [1, 16]]>
#x_i = #nki.access<f32, affine_map<()[i] -> (i * 128)>, [[16, 8], [1, 16]]>

// CHECK-LABEL: func.func @copied(
// CHECK-SAME:    %[[I:[a-z0-9]+]]: index {nki.program_id = 0 : i64}) attributes {nki.grid = [3]
// CHECK-NEXT:    %[[T:.*]] = memref.alloc()
// CHECK-NEXT:    "nki.load"(%[[T]], %{{.*}}, %[[I]])
func.func @copied(%x: !x {nki.name = "x"}, %out: !x {nki.name = "out", nki.shared = 0 : i64},
                  %i: index {nki.program_id = 0 : i64}) attributes {nki.grid = [3], nki.results = [1]} {
  %t = memref.alloc() {nki.name = "t"} : !tile
  "nki.load"(%t, %x, %i) {access = [#tile_i, #x_i], mask = #all} : (!tile, !x, index) -> ()
  "nki.store"(%out, %t, %i) {access = [#x_i, #tile_i], mask = #all} : (!x, !tile, index) -> ()
  return
}

// -----

// A number that all programs use is computed before the loop, although the loop begins before it.
!x = memref<3x8x16xf32, "hbm">
!tile = memref<8x16xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 16]]>
#tile_i = #nki.access<f32, affine_map<()[i] -> (0, 0)>, [[1, 8], [1, 16]]>
#x_i = #nki.access<f32, affine_map<()[i] -> (i * 128)>, [[16, 8], [1, 16]]>

// CHECK-LABEL: func.func @behind(
// CHECK:         %[[TWO:.*]] = arith.constant 2 : index
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK:           %[[IS_TWO:.*]] = arith.cmpi eq, %[[I]], %[[TWO]] : index
// CHECK:           "nki.load"(%{{.*}}, %{{.*}}, %[[I]])
// CHECK:           scf.if %[[IS_TWO]] {
// CHECK:         } {nki.loop = "sequential", nki.program_axis = 0 : i64}
func.func @behind(%x: !x {nki.name = "x"}, %out: !x {nki.name = "out", nki.shared = 0 : i64},
                  %i: index {nki.program_id = 0 : i64}) attributes {nki.grid = [3], nki.results = [1]} {
  %part = memref.alloc() {nki.name = "part"} : !tile
  "nki.load"(%part, %x, %i) {access = [#tile_i, #x_i], mask = #all} : (!tile, !x, index) -> ()
  %two = arith.constant 2 : index
  %is_two = arith.cmpi eq, %i, %two : index
  scf.if %is_two {
    "nki.unary"(%part, %part) {access = [#tile, #tile], fn = "negative", mask = #all} : (!tile, !tile) -> ()
  }
  %total = memref.alloc() {nki.name = "total"} : !tile
  "nisa.all_reduce"(%total, %part) {access = [#tile, #tile], engine = "unknown", groups = "[[0, 1, 2]]", mask = #all,
    op = "add", over = "programs"} : (!tile, !tile) -> ()
  "nki.store"(%out, %total, %i) {access = [#x_i, #tile_i], mask = #all} : (!x, !tile, index) -> ()
  return
}
