// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --verify-target %s | FileCheck %s

!tile = memref<128x64xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#rows_5 = #nki.access<f32, affine_map<() -> (5, 0)>, [[1, 20], [1, 64]]>
#rows_7 = #nki.access<f32, affine_map<() -> (7, 0)>, [[1, 20], [1, 64]]>
#rows_32 = #nki.access<f32, affine_map<() -> (32, 0)>, [[1, 20], [1, 64]]>
#rows_96 = #nki.access<f32, affine_map<() -> (96, 0)>, [[1, 20], [1, 64]]>

// CHECK-DAG: #[[ROWS_5:map[0-9]*]] = affine_map<() -> (5, 0)>
// CHECK-DAG: #[[ROWS_7:map[0-9]*]] = affine_map<() -> (7, 0)>
// CHECK-DAG: #[[ROWS_32:map[0-9]*]] = affine_map<() -> (32, 0)>
// CHECK-DAG: #[[ROWS_96:map[0-9]*]] = affine_map<() -> (96, 0)>

// Rows may move between the quadrants of the partitions, and a transfer starts anywhere.
// CHECK-LABEL: func.func @legal(
// CHECK-NEXT:    %[[X:.*]] = memref.alloc()
// CHECK-NEXT:    %[[Y:.*]] = memref.alloc()
// CHECK-NEXT:    "nisa.tensor_copy"(%[[Y]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ROWS_32]], {{\[\[}}1, 20], [1, 64]]>,
// CHECK-SAME:                #nki.access<f32, #[[ROWS_96]], {{\[\[}}1, 20], [1, 64]]>], engine = "vector"
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ROWS_7]], {{\[\[}}1, 20], [1, 64]]>,
// CHECK-SAME:                #nki.access<f32, #[[ROWS_5]], {{\[\[}}1, 20], [1, 64]]>], engine = "sync"
// CHECK-NEXT:    return
module attributes {nki.target = "trn2"} {
  func.func @legal() {
    %x = memref.alloc() : !tile
    %y = memref.alloc() : !tile
    "nisa.tensor_copy"(%y, %x) {access = [#rows_32, #rows_96], engine = "vector", mask = #all} : (!tile, !tile) -> ()
    "nisa.dma_copy"(%y, %x) {access = [#rows_7, #rows_5], engine = "sync", mask = #all} : (!tile, !tile) -> ()
    return
  }
}
