// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A buffer is zeroed where something of it may be read before it is written.
// RUN: nki-opt --zero-unwritten %s | FileCheck %s

#id = affine_map<(d0) -> (d0)>
!row = memref<64xf32, "hbm">
!tile = memref<64xf32, "sbuf">
!rows = memref<4x64xf32, "hbm">
!tiles = memref<4x64xf32, "sbuf">
!at = memref<64xf32, strided<[1], offset: ?>, "hbm">
!at_tile = memref<64xf32, strided<[1], offset: ?>, "sbuf">
!half = memref<32xf32, strided<[1]>, "sbuf">

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

// It is allocated in front of a loop and written behind it.
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
