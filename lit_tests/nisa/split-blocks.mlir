// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --split-blocks %s | FileCheck %s

!blocks = memref<128x2x300xf32, "sbuf">
!whole = memref<128x2x16xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#blocks = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 600]]>
#block_0 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 300]]>
#block_1 = #nki.access<f32, affine_map<() -> (0, 300)>, [[1, 128], [1, 300]]>
#part_of_block_1 = #nki.access<f32, affine_map<() -> (0, 300)>, [[1, 128], [1, 32]]>
#whole = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 32]]>

// CHECK: #[[ZERO:map[0-9]*]] = affine_map<() -> (0, 0)>

// Blocks that are used one by one become buffers; a constant over all of them is written block by block. A copy of two
// blocks at once keeps its buffer whole.
// CHECK-LABEL: func.func @blocks(
// CHECK-NEXT:    %[[T0:.*]] = memref.alloc() {nki.name = "t_0"} : memref<128x300xf32, "sbuf">
// CHECK-NEXT:    %[[T1:.*]] = memref.alloc() {nki.name = "t_1"} : memref<128x300xf32, "sbuf">
// CHECK-NEXT:    %[[W:.*]] = memref.alloc() {nki.name = "whole"} : memref<128x2x16xf32, "sbuf">
// CHECK-NEXT:    "nisa.memset"(%[[T0]]) {access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 300]]>]
// CHECK-NEXT:    "nisa.memset"(%[[T1]]) {access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 300]]>]
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T1]], %[[T0]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 300]]>,
// CHECK-SAME:                #nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 300]]>]
// CHECK-NEXT:    "nisa.tensor_copy"(%[[W]], %[[T1]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 32]]>,
// CHECK-SAME:                #nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 32]]>]
// CHECK-NEXT:    return
func.func @blocks() {
  %t = memref.alloc() {nki.name = "t"} : !blocks
  %whole = memref.alloc() {nki.name = "whole"} : !whole
  "nisa.memset"(%t) {access = [#blocks], engine = "vector", mask = #all, value = 0.0 : f64} : (!blocks) -> ()
  "nisa.tensor_copy"(%t, %t) {access = [#block_1, #block_0], engine = "vector", mask = #all} : (!blocks, !blocks) -> ()
  "nisa.tensor_copy"(%whole, %t) {access = [#whole, #part_of_block_1], engine = "vector", mask = #all}
    : (!whole, !blocks) -> ()
  return
}
