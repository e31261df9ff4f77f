// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --split-columns=pieces=2 %s | FileCheck %s

!x = memref<128x1024xf32, "hbm">
!tile = memref<128x1024xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1024]]>
#rows = #nki.access<f32, affine_map<() -> (0)>, [[1024, 128], [1, 1024]]>
#left = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1023]]>
#right = #nki.access<f32, affine_map<() -> (0, 1)>, [[1, 128], [1, 1023]]>

// CHECK-DAG: #[[LOW:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-DAG: #[[HIGH:map[0-9]*]] = affine_map<() -> (0, 512)>
// CHECK-DAG: #[[FIRST:map[0-9]*]] = affine_map<() -> (0)>
// CHECK-DAG: #[[SECOND:map[0-9]*]] = affine_map<() -> (512)>

// The engine computes the first columns while the others are loaded.
// CHECK:         func.func @columns(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x1024xf32, "hbm">
// CHECK-NEXT:    %[[T:.*]] = memref.alloc()
// CHECK-NEXT:    %[[U:.*]] = memref.alloc()
// CHECK-NEXT:    "nisa.dma_copy"(%[[T]], %[[X]]) {access = [#nki.access<f32, #[[LOW]], {{\[\[}}1, 128], [1, 512]]>, #nki.access<f32, #[[FIRST]], {{\[\[}}1024, 128], [1, 512]]>]
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[U]], %[[T]], %[[T]]) {access = [#nki.access<f32, #[[LOW]], {{\[\[}}1, 128], [1, 512]]>, #nki.access<f32, #[[LOW]], {{.*}}, #nki.access<f32, #[[LOW]], {{.*}} op = "add"}
// CHECK-NEXT:    "nisa.dma_copy"(%[[T]], %[[X]]) {access = [#nki.access<f32, #[[HIGH]], {{\[\[}}1, 128], [1, 512]]>, #nki.access<f32, #[[SECOND]], {{\[\[}}1024, 128], [1, 512]]>]
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[U]], %[[T]], %[[T]]) {access = [#nki.access<f32, #[[HIGH]], {{\[\[}}1, 128], [1, 512]]>, #nki.access<f32, #[[HIGH]], {{.*}}, #nki.access<f32, #[[HIGH]], {{.*}} op = "add"}
// CHECK-NEXT:    return
func.func @columns(%x: !x) {
  %t = memref.alloc() : !tile
  %u = memref.alloc() : !tile
  "nisa.dma_copy"(%t, %x) {access = [#tile, #rows], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_tensor"(%u, %t, %t) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  return
}

// The greatest values of a row are those among the greatest of its pieces.
// CHECK:         func.func @greatest(
// CHECK:         %[[V:.*]] = memref.alloc() {{.*}}: memref<128x8xf32, "sbuf">
// CHECK:         %[[P:.*]] = memref.alloc() {{.*}}: memref<128x16xf32, "sbuf">
// CHECK-NEXT:    "nisa.dma_copy"(%[[T:[a-z0-9_]+]], %
// CHECK-NEXT:    "nisa.max8"(%[[P]], %[[T]]) {access = [#nki.access<f32, #[[LOW]], {{\[\[}}1, 128], [1, 8]]>, #nki.access<f32, #[[LOW]], {{\[\[}}1, 128], [1, 512]]>]
// CHECK-NEXT:    "nisa.dma_copy"(%[[T]], %
// CHECK-NEXT:    "nisa.max8"(%[[P]], %[[T]]) {access = [#nki.access<f32, #{{.*}}, {{\[\[}}1, 128], [1, 8]]>, #nki.access<f32, #[[HIGH]], {{\[\[}}1, 128], [1, 512]]>]
// CHECK-NEXT:    "nisa.max8"(%[[V]], %[[P]])
// CHECK-NEXT:    return
func.func @greatest(%x: !x) {
  %t = memref.alloc() : !tile
  %v = memref.alloc() : memref<128x8xf32, "sbuf">
  "nisa.dma_copy"(%t, %x) {access = [#tile, #rows], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.max8"(%v, %t) {access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 8]]>, #tile], engine = "vector", mask = #all} : (memref<128x8xf32, "sbuf">, !tile) -> ()
  return
}

// A maximum is that of the maxima of the pieces, negated once.
// CHECK:         func.func @maximum(
// CHECK:         %[[V:.*]] = memref.alloc() {{.*}}: memref<128x1xf32, "sbuf">
// CHECK:         %[[P:.*]] = memref.alloc() {{.*}}: memref<128x2xf32, "sbuf">
// CHECK:         "nisa.tensor_reduce"(%[[P]], %[[T:.*]]) {{.*}}[1, 512]]>]{{.*}} negate = false
// CHECK:         "nisa.tensor_reduce"(%[[P]], %[[T]]) {{.*}}[1, 512]]>]{{.*}} negate = false
// CHECK-NEXT:    "nisa.tensor_reduce"(%[[V]], %[[P]]) {{.*}} negate = true
// CHECK-NEXT:    return
func.func @maximum(%x: !x) {
  %t = memref.alloc() : !tile
  %v = memref.alloc() : memref<128x1xf32, "sbuf">
  "nisa.dma_copy"(%t, %x) {access = [#tile, #rows], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_reduce"(%v, %t) {access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>, #tile], axes = [1], engine = "vector", mask = #all, negate = true, op = "maximum"} : (memref<128x1xf32, "sbuf">, !tile) -> ()
  return
}

// A result that overlaps an operand in other columns stays whole: a piece would read what another has written.
// CHECK:         func.func @overlap(
// CHECK:         "nisa.dma_copy"(%[[T:[a-z0-9_]+]], %
// CHECK-NEXT:    "nisa.dma_copy"(%[[T]], %
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[T]], %[[T]]) {access = [{{.*}}[1, 1023]]>]
// CHECK-NEXT:    return
func.func @overlap(%x: !x) {
  %t = memref.alloc() : !tile
  "nisa.dma_copy"(%t, %x) {access = [#tile, #rows], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_tensor"(%t, %t, %t) {access = [#right, #left, #left], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  return
}
