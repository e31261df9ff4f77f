// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A buffer is zeroed where something of it may be read before it is written.
// RUN: nki-opt --zero-unwritten %s | FileCheck %s

#id = affine_map<(d0) -> (d0)>
#eight = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>
#sixteen = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 16]]>
#all = affine_set<() : (0 == 0)>
!row = memref<64xf32, "hbm">
!tile = memref<64xf32, "sbuf">
!rows = memref<4x64xf32, "hbm">
!tiles = memref<4x64xf32, "sbuf">
!at = memref<64xf32, strided<[1], offset: ?>, "hbm">
!at_tile = memref<64xf32, strided<[1], offset: ?>, "sbuf">
!half = memref<32xf32, strided<[1]>, "sbuf">
!box = memref<2x16xf32, strided<[64, 1]>, "hbm">
!tile_box = memref<2x16xf32, strided<[64, 1], offset: 64>, "sbuf">
!tile_row = memref<1x16xf32, strided<[64, 1], offset: 128>, "sbuf">
!row_of_y = memref<1x16xf32, strided<[64, 1]>, "hbm">
!shifted = memref<2x16xf32, strided<[64, 1], offset: 65>, "sbuf">
!box_of_y = memref<2x16xf32, strided<[64, 1], offset: 64>, "hbm">

// The first operation writes all of it.
// CHECK-LABEL: func.func @written(
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() : memref<64xf32, "sbuf">
// CHECK-NEXT:    linalg.copy ins(%{{.*}} : {{.*}}) outs(%[[TILE]] : {{.*}})
func.func @written(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : !tile
  linalg.copy ins(%x : !row) outs(%t : !tile)
  linalg.copy ins(%t : !tile) outs(%y : !row)
  return
}

// It is added to at once.
// CHECK-LABEL: func.func @added_to(
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() {native.zeroed} : memref<64xf32, "sbuf">
// CHECK-NEXT:    linalg.generic {{.*}} outs(%[[TILE]] : {{.*}})
func.func @added_to(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !row) outs(%t : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  }
  linalg.copy ins(%t : !tile) outs(%y : !row)
  return
}

// A loop writes all of it, row by row, before all of it is read.
// CHECK-LABEL: func.func @by_rows(
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() : memref<256xf32, "sbuf">
// CHECK:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
// CHECK:           %[[ROW:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [%{{.*}}], sizes: [64], strides: [1]
// CHECK:           linalg.copy ins(%{{.*}} : {{.*}}) outs(%[[ROW]] : {{.*}})
// CHECK:         linalg.copy ins(%[[TILE]] : {{.*}}) outs(%{{.*}} : {{.*}})
func.func @by_rows(%x: !rows {nki.name = "x"}, %y: !rows {nki.name = "y", nki.shared = 0 : i64}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %t = memref.alloc() : !tiles
  scf.for %i = %c0 to %c4 step %c1 {
    %at = affine.apply affine_map<()[s] -> (s * 64)>()[%i]
    %from = memref.reinterpret_cast %x to offset: [%at], sizes: [64], strides: [1] : !rows to !at
    %to = memref.reinterpret_cast %t to offset: [%at], sizes: [64], strides: [1] : !tiles to !at_tile
    linalg.copy ins(%from : !at) outs(%to : !at_tile)
  }
  linalg.copy ins(%t : !tiles) outs(%y : !rows)
  return
}

// The loop counts from 2, and its offsets from there.
// CHECK-LABEL: func.func @by_rows_from_two(
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() : memref<256xf32, "sbuf">
// CHECK:         scf.for %{{.*}} = %c2 to %c6 step %c1 {
// CHECK:         linalg.copy ins(%[[TILE]] : {{.*}}) outs(%{{.*}} : {{.*}})
func.func @by_rows_from_two(%x: !rows {nki.name = "x"}, %y: !rows {nki.name = "y", nki.shared = 0 : i64}) {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c6 = arith.constant 6 : index
  %t = memref.alloc() : !tiles
  scf.for %i = %c2 to %c6 step %c1 {
    %at = affine.apply affine_map<()[s] -> (s * 64 - 128)>()[%i]
    %from = memref.reinterpret_cast %x to offset: [%at], sizes: [64], strides: [1] : !rows to !at
    %to = memref.reinterpret_cast %t to offset: [%at], sizes: [64], strides: [1] : !tiles to !at_tile
    linalg.copy ins(%from : !at) outs(%to : !at_tile)
  }
  linalg.copy ins(%t : !tiles) outs(%y : !rows)
  return
}

// Half of it is written before all of it is read.
// CHECK-LABEL: func.func @half(
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() {native.zeroed} : memref<64xf32, "sbuf">
// CHECK-NEXT:    %[[HALF:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [0], sizes: [32], strides: [1]
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[HALF]] : {{.*}}) outs(%[[HALF]] : {{.*}})
func.func @half(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : !tile
  %h = memref.reinterpret_cast %t to offset: [0], sizes: [32], strides: [1] : !tile to !half
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%h : !half) outs(%h : !half) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.negf %in : f32
    linalg.yield %0 : f32
  }
  linalg.copy ins(%t : !tile) outs(%y : !row)
  return
}

// It is allocated before a loop and written after it.
// CHECK-LABEL: func.func @behind_a_loop(
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() : memref<64xf32, "sbuf">
// CHECK:         linalg.copy ins(%{{.*}} : {{.*}}) outs(%[[TILE]] : {{.*}})
func.func @behind_a_loop(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y", nki.shared = 0 : i64}, %n: index {nki.program_id = 0 : i64}) attributes {nki.grid = [2]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %t = memref.alloc() : !tile
  scf.for %i = %c0 to %n step %c1 {
    linalg.copy ins(%x : !row) outs(%y : !row)
  }
  linalg.copy ins(%x : !row) outs(%t : !tile)
  linalg.copy ins(%t : !tile) outs(%y : !row)
  return
}

// Of four rows, two of 16 columns are written. The first copy reads these; the second one reads a column more.
// CHECK-LABEL: func.func @in_a_box(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[Y:[a-z0-9]+]]: {{.*}}"y"
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() : memref<256xf32, "sbuf">
// CHECK:         %[[BOX:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [64], sizes: [2, 16], strides: [64, 1]
// CHECK-NEXT:    linalg.copy ins(%{{.*}} : {{.*}}) outs(%[[BOX]] : {{.*}})
// CHECK-NEXT:    %[[OTHER:.*]] = memref.alloc() {native.zeroed} : memref<256xf32, "sbuf">
// CHECK:         %[[SECOND:.*]] = memref.reinterpret_cast %[[OTHER]] to offset: [64], sizes: [2, 16], strides: [64, 1]
// CHECK-NEXT:    linalg.copy ins(%{{.*}} : {{.*}}) outs(%[[SECOND]] : {{.*}})
func.func @in_a_box(%x: !rows {nki.name = "x"}, %y: !rows {nki.name = "y", nki.shared = 0 : i64}) {
  %from = memref.reinterpret_cast %x to offset: [0], sizes: [2, 16], strides: [64, 1] : !rows to !box
  %t = memref.alloc() : !tiles
  %box = memref.reinterpret_cast %t to offset: [64], sizes: [2, 16], strides: [64, 1] : !tiles to !tile_box
  linalg.copy ins(%from : !box) outs(%box : !tile_box)
  %other = memref.alloc() : !tiles
  %second = memref.reinterpret_cast %other to offset: [64], sizes: [2, 16], strides: [64, 1] : !tiles to !tile_box
  linalg.copy ins(%from : !box) outs(%second : !tile_box)
  %part = memref.reinterpret_cast %t to offset: [128], sizes: [1, 16], strides: [64, 1] : !tiles to !tile_row
  %to = memref.reinterpret_cast %y to offset: [0], sizes: [1, 16], strides: [64, 1] : !rows to !row_of_y
  linalg.copy ins(%part : !tile_row) outs(%to : !row_of_y)
  %more = memref.reinterpret_cast %other to offset: [65], sizes: [2, 16], strides: [64, 1] : !tiles to !shifted
  %below = memref.reinterpret_cast %y to offset: [64], sizes: [2, 16], strides: [64, 1] : !rows to !box_of_y
  linalg.copy ins(%more : !shifted) outs(%below : !box_of_y)
  return
}

// A tile operation writes all of it.
// CHECK-LABEL: func.func @written_by_a_tile_operation(
// CHECK-NEXT:    memref.alloc() : memref<4x8xf32, "sbuf">
func.func @written_by_a_tile_operation(%x: memref<4x16xf32, "hbm"> {nki.name = "x"},
                                       %y: memref<4x8xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : memref<4x8xf32, "sbuf">
  %a = memref.alloc() : memref<4x16xf32, "sbuf">
  linalg.copy ins(%x : memref<4x16xf32, "hbm">) outs(%a : memref<4x16xf32, "sbuf">)
  "nisa.max8"(%t, %a) {access = [#eight, #sixteen], engine = "unknown", mask = #all}
    : (memref<4x8xf32, "sbuf">, memref<4x16xf32, "sbuf">) -> ()
  linalg.copy ins(%t : memref<4x8xf32, "sbuf">) outs(%y : memref<4x8xf32, "hbm">)
  return
}

// It writes four of eight rows.
// CHECK-LABEL: func.func @half_written_by_a_tile_operation(
// CHECK-NEXT:    memref.alloc() {native.zeroed} : memref<8x8xf32, "sbuf">
func.func @half_written_by_a_tile_operation(%x: memref<4x16xf32, "hbm"> {nki.name = "x"},
                                            %y: memref<8x8xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : memref<8x8xf32, "sbuf">
  %a = memref.alloc() : memref<4x16xf32, "sbuf">
  linalg.copy ins(%x : memref<4x16xf32, "hbm">) outs(%a : memref<4x16xf32, "sbuf">)
  "nisa.max8"(%t, %a) {access = [#eight, #sixteen], engine = "unknown", mask = #all}
    : (memref<8x8xf32, "sbuf">, memref<4x16xf32, "sbuf">) -> ()
  linalg.copy ins(%t : memref<8x8xf32, "sbuf">) outs(%y : memref<8x8xf32, "hbm">)
  return
}
