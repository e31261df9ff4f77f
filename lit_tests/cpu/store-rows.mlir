// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of a table that are only to be stored are written where they are stored.
// RUN: nki-opt --store-rows %s | FileCheck %s

#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#table = #nki.access<f32, affine_map<() -> (0)>, [[6, 8], [1, 6]]>
#index = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 4], [1, 1]]>
#cubes = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [3, 2], [1, 3]]>
#table_of_cubes = #nki.access<f32, affine_map<() -> (0)>, [[6, 8], [3, 2], [1, 3]]>
#all = affine_set<() : (0 == 0)>
!tile = memref<4x6xf32, "sbuf">
!table = memref<8x6xf32, "hbm">
!index = memref<4x1xi32, "sbuf">
!numbers = memref<4x1xi32, "hbm">
!rows = memref<4x6xf32, "hbm">

// CHECK:       #[[START:map[0-9]*]] = affine_map<() -> (0)>
// CHECK-LABEL: func.func @stored(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[N:[a-z0-9]+]]: {{.*}}"n"}, %[[Y:[a-z0-9]+]]:
// CHECK-NEXT:    %[[INDEX:.*]] = memref.alloc() : memref<4x1xi32, "sbuf">
// CHECK:         "nisa.dma_gather"(%[[Y]], %[[X]], %[[INDEX]]) {access = [#nki.access<f32, #[[START]], {{\[\[}}6, 4], [1, 6]]>, #nki.access<f32, #[[START]], {{\[\[}}6, 8], [1, 6]]>,
// CHECK-NEXT:    return
func.func @stored(%x: !table {nki.name = "x"}, %n: !numbers {nki.name = "n"},
                  %y: !rows {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : !tile
  %i = memref.alloc() : !index
  linalg.copy ins(%n : !numbers) outs(%i : !index)
  "nisa.dma_gather"(%t, %x, %i) {access = [#tile, #table, #index], mask = #all, engine = "unknown", mode = "error"}
    : (!tile, !table, !index) -> ()
  linalg.copy ins(%t : !tile) outs(%y : !rows)
  return
}

// Rows of two axes, which lie without gaps.
// CHECK-LABEL: func.func @stored_cubes(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[N:[a-z0-9]+]]: {{.*}}"n"}, %[[Y:[a-z0-9]+]]:
// CHECK:         "nisa.dma_gather"(%[[Y]], %[[X]], %{{.*}}) {access = [#nki.access<f32, #[[START]], {{\[\[}}6, 4], [3, 2], [1, 3]]>,
func.func @stored_cubes(%x: !table {nki.name = "x"}, %n: !numbers {nki.name = "n"},
                        %y: !rows {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : !tile
  %i = memref.alloc() : !index
  linalg.copy ins(%n : !numbers) outs(%i : !index)
  "nisa.dma_gather"(%t, %x, %i) {access = [#cubes, #table_of_cubes, #index], mask = #all, engine = "unknown", mode = "error"}
    : (!tile, !table, !index) -> ()
  linalg.copy ins(%t : !tile) outs(%y : !rows)
  return
}

// The tile is read once more.
// CHECK-LABEL: func.func @used_again(
// CHECK:         %[[TILE:.*]] = memref.alloc() : memref<4x6xf32, "sbuf">
// CHECK:         "nisa.dma_gather"(%[[TILE]], %{{.*}}, %{{.*}})
// CHECK:         linalg.copy ins(%[[ROWS:.*]] : {{.*}}) outs(%{{.*}} : {{.*}})
// CHECK:         linalg.copy ins(%[[ROWS]] : {{.*}}) outs(%{{.*}} : {{.*}})
func.func @used_again(%x: !table {nki.name = "x"}, %n: !numbers {nki.name = "n"},
                      %y: !rows {nki.name = "y", nki.shared = 0 : i64},
                      %z: !rows {nki.name = "z", nki.shared = 1 : i64}) {
  %t = memref.alloc() : !tile
  %i = memref.alloc() : !index
  linalg.copy ins(%n : !numbers) outs(%i : !index)
  "nisa.dma_gather"(%t, %x, %i) {access = [#tile, #table, #index], mask = #all, engine = "unknown", mode = "error"}
    : (!tile, !table, !index) -> ()
  linalg.copy ins(%t : !tile) outs(%y : !rows)
  linalg.copy ins(%t : !tile) outs(%z : !rows)
  return
}
