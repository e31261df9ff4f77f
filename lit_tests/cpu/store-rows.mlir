// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of a table that are only to be stored are written where they are stored.
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --pass-pipeline="store-rows" --mlir-print-ir-before=store-rows --mlir-print-ir-after=store-rows %s -o %t 2>&1 | FileCheck %s

#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#table = #nki.access<f32, affine_map<() -> (0)>, [[6, 8], [1, 6]]>
#index = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 4], [1, 1]]>
#all = affine_set<() : (0 == 0)>
!tile = memref<4x6xf32, "sbuf">
!table = memref<8x6xf32, "hbm">
!index = memref<4x1xi32, "sbuf">
!numbers = memref<4x1xi32, "hbm">
!rows = memref<4x6xf32, "hbm">

// CHECK-LABEL: kernel @stored(x, n, y) {
// CHECK:         gather_4_copy_6_float32({{buffer[0-9]+}}, x, [[TILE:buffer[0-9]+]],
// CHECK-NEXT:    copy_24_float32([[TILE]], y)
// CHECK-NEXT:  }
// CHECK-LABEL: kernel @stored(x, n, y) {
// CHECK:         gather_4_copy_6_float32({{buffer[0-9]+}}, x, y,
// CHECK-NEXT:  }
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

// The tile is read once more.
// CHECK-LABEL: kernel @used_again(x, n, y, z) {
// CHECK-LABEL: kernel @used_again(x, n, y, z) {
// CHECK:         gather_4_copy_6_float32({{buffer[0-9]+}}, x, [[TILE:buffer[0-9]+]],
// CHECK-NEXT:    copy_24_float32([[TILE]], y)
// CHECK-NEXT:    copy_24_float32([[TILE]], z)
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
