// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --split-blocks %s | FileCheck %s

// Blocks that are used one by one become buffers; a constant over all of them is written block by block. A copy of two
// blocks at once keeps its buffer whole.
// CHECK-LABEL: func.func @blocks
// CHECK:         %[[T0:.*]] = memref.alloc() {nki.name = "t_0"} : memref<128x300xf32, "sbuf">
// CHECK:         %[[T1:.*]] = memref.alloc() {nki.name = "t_1"} : memref<128x300xf32, "sbuf">
// CHECK:         %[[W:.*]] = memref.alloc() {nki.name = "whole"} : memref<128x2x16xf32, "sbuf">
// CHECK:         "nisa.memset"(%[[T0]])
// CHECK-NEXT:    "nisa.memset"(%[[T1]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T1]], %[[T0]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[W]], %[[T1]])
func.func @blocks() {
  %t = memref.alloc() {nki.name = "t"} : memref<128x2x300xf32, "sbuf">
  %whole = memref.alloc() {nki.name = "whole"} : memref<128x2x16xf32, "sbuf">
  "nisa.memset"(%t) {engine = "vector", mask = affine_set<() : (0 == 0)>, value = 0.0 : f64,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 600]]>]} : (memref<128x2x300xf32, "sbuf">) -> ()
  "nisa.tensor_copy"(%t, %t) {engine = "vector", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 300)>, [[1, 128], [1, 300]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 300]]>]}
    : (memref<128x2x300xf32, "sbuf">, memref<128x2x300xf32, "sbuf">) -> ()
  "nisa.tensor_copy"(%whole, %t) {engine = "vector", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 32]]>,
              #nki.access<f32, affine_map<() -> (0, 300)>, [[1, 128], [1, 32]]>]}
    : (memref<128x2x16xf32, "sbuf">, memref<128x2x300xf32, "sbuf">) -> ()
  return
}
