// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --split-masked-loops %s | FileCheck %s
// RUN: nki-opt --split-masked-loops=branches=true %s | FileCheck %s --check-prefix=BRANCHES

!x = memref<300x64xf32, "hbm">
!square = memref<128x128xf32, "sbuf">
!tile = memref<128x64xf32, "sbuf">
!y = memref<128x64xf32, "hbm">
#all = affine_set<() : (0 == 0)>
#square = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#y = #nki.access<f32, affine_map<() -> (0)>, [[64, 128], [1, 64]]>
// With a loop variable or program id as symbol: the tile, and rows 128 i to 128 i + 127, those that there are.
#tile_i = #nki.access<f32, affine_map<()[i] -> (0, 0)>, [[1, 128], [1, 64]]>
#rows_i = #nki.access<f32, affine_map<()[i] -> (i * 8192)>, [[64, 128], [1, 64]]>
#below_300 = affine_set<(p, f)[i] : (i * -128 - p + 299 >= 0)>

// CHECK-DAG: #[[TILE_I:map[0-9]*]] = affine_map<()[s0] -> (0, 0)>
// CHECK-DAG: #[[ROWS_I:map[0-9]*]] = affine_map<()[s0] -> (s0 * 8192)>
// CHECK-DAG: #[[TILE:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-DAG: #[[ROW_256:map[0-9]*]] = affine_map<() -> (16384)>
// CHECK-DAG: #[[ALL:set[0-9]*]] = affine_set<() : (0 == 0)>
// CHECK-DAG: #[[TRIANGLE:set[0-9]*]] = affine_set<(d0, d1) : (d0 - d1 >= 0)>

// Rows 128 i + p of 300, for i < 4: two full tiles, an edge of 44 rows, and nothing for i = 3.
// CHECK-LABEL: func.func @edge(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<300x64xf32, "hbm">
// CHECK-DAG:     %[[C0:.*]] = arith.constant 0
// CHECK-DAG:     %[[C1:.*]] = arith.constant 1
// CHECK-DAG:     %[[C2:.*]] = arith.constant 2
// CHECK:         scf.for %[[I:[a-z0-9]+]] = %[[C0]] to %[[C2]] step %[[C1]] {
// CHECK-NEXT:      %[[T:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:      "nki.load"(%[[T]], %[[X]], %[[I]])
// CHECK-SAME:        access = [#nki.access<f32, #[[TILE_I]], {{\[\[}}1, 128], [1, 64]]>,
// CHECK-SAME:                  #nki.access<f32, #[[ROWS_I]], {{\[\[}}64, 128], [1, 64]]>], mask = #[[ALL]]
// CHECK-NEXT:    } {nki.loop = "parallel"}
// CHECK-NEXT:    %[[EDGE:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    "nki.load"(%[[EDGE]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[TILE]], {{\[\[}}1, 44], [1, 64]]>,
// CHECK-SAME:                #nki.access<f32, #[[ROW_256]], {{\[\[}}64, 44], [1, 64]]>], mask = #[[ALL]]
// CHECK-NEXT:    return
func.func @edge(%x: !x) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() : !tile
    "nki.load"(%t, %x, %i) {access = [#tile_i, #rows_i], mask = #below_300} : (!tile, !x, index) -> ()
  } {nki.loop = "parallel"}
  return
}

// A mask that is not a box stays; the part of it that is one shrinks the patterns.
// CHECK-LABEL: func.func @triangle(
// CHECK-NEXT:    %[[X:.*]] = memref.alloc() : memref<128x128xf32, "sbuf">
// CHECK-NEXT:    %[[Y:.*]] = memref.alloc() : memref<128x128xf32, "sbuf">
// CHECK-NEXT:    "nki.copy"(%[[X]], %[[Y]])
// CHECK-SAME:      access = [#nki.access<f32, #[[TILE]], {{\[\[}}1, 100], [1, 100]]>,
// CHECK-SAME:                #nki.access<f32, #[[TILE]], {{\[\[}}1, 100], [1, 100]]>], mask = #[[TRIANGLE]]
// CHECK-NEXT:    return
func.func @triangle() {
  %x = memref.alloc() : !square
  %y = memref.alloc() : !square
  "nki.copy"(%x, %y) {access = [#square, #square], mask = affine_set<(p, f) : (p - f >= 0, 99 - p >= 0)>}
    : (!square, !square) -> ()
  return
}

// A program id is cut by conditions; where it has one value it is a number.
// CHECK-LABEL: func.func @program(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<300x64xf32, "hbm">, %[[ID:[a-z0-9]+]]: index {nki.program_id = 0 : i64},
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<128x64xf32, "hbm">
// CHECK-NEXT:    %[[C1:.*]] = arith.constant 1
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[BELOW:.*]] = arith.cmpi sge, %[[C1]], %[[ID]]
// CHECK-NEXT:    scf.if %[[BELOW]] {
// CHECK-NEXT:      "nki.load"(%[[T]], %[[X]], %[[ID]])
// CHECK-SAME:        access = [#nki.access<f32, #[[TILE_I]], {{\[\[}}1, 128], [1, 64]]>,
// CHECK-SAME:                  #nki.access<f32, #[[ROWS_I]], {{\[\[}}64, 128], [1, 64]]>], mask = #[[ALL]]
// CHECK-NEXT:    } else {
// CHECK-NEXT:      "nki.load"(%[[T]], %[[X]])
// CHECK-SAME:        access = [#nki.access<f32, #[[TILE]], {{\[\[}}1, 44], [1, 64]]>,
// CHECK-SAME:                  #nki.access<f32, #[[ROW_256]], {{\[\[}}64, 44], [1, 64]]>], mask = #[[ALL]]
// CHECK-NEXT:    }
// CHECK-NEXT:    "nki.store"(%[[Y]], %[[T]])
// CHECK-NEXT:    return
func.func @program(%x: !x, %id: index {nki.program_id = 0 : i64}, %y: !y) attributes {nki.grid = [3]} {
  %t = memref.alloc() : !tile
  "nki.load"(%t, %x, %id) {access = [#tile_i, #rows_i], mask = #below_300} : (!tile, !x, index) -> ()
  "nki.store"(%y, %t) {access = [#y, #tile], mask = #all} : (!y, !tile) -> ()
  return
}

// A loop in the body of a loop of the device is cut as any other.
// CHECK-LABEL: func.func @device_loop(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<300x64xf32, "hbm">
// CHECK:         scf.while : () -> () {
// CHECK:         } do {
// CHECK-NEXT:      scf.for %[[I:[a-z0-9]+]] = %{{.*}} to %{{.*}} step
// CHECK-NEXT:        %[[T:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:        "nki.load"(%[[T]], %[[X]], %[[I]])
// CHECK-SAME:          access = [#nki.access<f32, #[[TILE_I]], {{\[\[}}1, 128], [1, 64]]>,
// CHECK-SAME:                    #nki.access<f32, #[[ROWS_I]], {{\[\[}}64, 128], [1, 64]]>], mask = #[[ALL]]
// CHECK-NEXT:      }
// CHECK-NEXT:      %[[EDGE:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:      "nki.load"(%[[EDGE]], %[[X]])
// CHECK-SAME:        access = [#nki.access<f32, #[[TILE]], {{\[\[}}1, 44], [1, 64]]>,
// CHECK-SAME:                  #nki.access<f32, #[[ROW_256]], {{\[\[}}64, 44], [1, 64]]>], mask = #[[ALL]]
// CHECK-NEXT:      scf.yield
func.func @device_loop(%x: !x) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %left = memref.alloc() : memref<1x1xi32, "sbuf">
  scf.while : () -> () {
    %number = memref.load %left[%c0, %c0] : memref<1x1xi32, "sbuf">
    %more = arith.cmpi ne, %number, %zero : i32
    scf.condition(%more)
  } do {
    scf.for %i = %c0 to %c4 step %c1 {
      %t = memref.alloc() : !tile
      "nki.load"(%t, %x, %i) {access = [#tile_i, #rows_i], mask = #below_300} : (!tile, !x, index) -> ()
    }
    scf.yield
  }
  return
}

// With branches=true, a loop is also cut where its variable alone decides a branch.
// CHECK-LABEL:    func.func @branch(
// CHECK:            scf.for %[[I:[a-z0-9]+]] = %{{.*}} to %{{.*}} step
// CHECK:              %[[EARLY:.*]] = arith.cmpi sge, %{{.*}}, %[[I]]
// CHECK-NEXT:         scf.if %[[EARLY]] {
// BRANCHES-LABEL: func.func @branch(
// BRANCHES-SAME:    %[[J:[a-z0-9]+]]: index
// BRANCHES-DAG:     %[[C0:.*]] = arith.constant 0
// BRANCHES-DAG:     %[[C1:.*]] = arith.constant 1
// BRANCHES-DAG:     %[[C3:.*]] = arith.constant 3
// BRANCHES:         %[[T:.*]] = memref.alloc()
// BRANCHES:         scf.for %[[I:[a-z0-9]+]] = %[[C0]] to %[[C3]] step %[[C1]] {
// BRANCHES-NEXT:      "nki.memset"(%[[T]])
// BRANCHES-SAME:        value = 1.0
// BRANCHES-NEXT:      %[[BELOW:.*]] = arith.cmpi sge, %[[J]], %[[I]]
// BRANCHES-NEXT:      scf.if %[[BELOW]] {
// BRANCHES:             value = 3.0
// BRANCHES-NEXT:      }
// BRANCHES-NEXT:      "nki.store"(%{{.*}}, %[[T]])
// BRANCHES-NEXT:    }
// BRANCHES-NEXT:    "nki.memset"(%[[T]])
// BRANCHES-SAME:      value = 2.0
// BRANCHES-NEXT:    %[[BELOW:.*]] = arith.cmpi sge, %[[J]], %[[C3]]
// BRANCHES-NEXT:    scf.if %[[BELOW]] {
func.func @branch(%j: index {nki.program_id = 0}, %y: !y) attributes {nki.grid = [4]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %t = memref.alloc() : !tile
  scf.for %i = %c0 to %c4 step %c1 {
    %early = arith.cmpi sge, %c2, %i : index
    scf.if %early {
      "nki.memset"(%t) {access = [#tile], mask = #all, value = 1.0 : f64} : (!tile) -> ()
    } else {
      "nki.memset"(%t) {access = [#tile], mask = #all, value = 2.0 : f64} : (!tile) -> ()
    }
    %below = arith.cmpi sge, %j, %i : index
    scf.if %below {
      "nki.memset"(%t) {access = [#tile], mask = #all, value = 3.0 : f64} : (!tile) -> ()
    }
    "nki.store"(%y, %t) {access = [#y, #tile], mask = #all} : (!y, !tile) -> ()
  }
  return
}
