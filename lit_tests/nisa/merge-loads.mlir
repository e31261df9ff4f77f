// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --merge-loads %s | FileCheck %s

!x = memref<128x1024xf32, "hbm">
!tile = memref<128x64xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#first = #nki.access<f32, affine_map<() -> (0)>, [[1024, 128], [1, 64]]>
#second = #nki.access<f32, affine_map<() -> (64)>, [[1024, 128], [1, 64]]>
#apart = #nki.access<f32, affine_map<() -> (192)>, [[1024, 128], [1, 64]]>

// Neighboring tiles are loaded by one transfer, into one buffer.
// CHECK-LABEL: func.func @neighbors(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x1024xf32, "hbm">
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<128x2x64xf32, "sbuf">
// CHECK-NEXT:    "nisa.dma_copy"(%[[T]], %[[X]]) {{.*}}{{\[\[}}1, 128], [1, 128]]>, {{.*}}{{\[\[}}1024, 128], [1, 128]]>]
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[T]], %[[T]])
// CHECK-NEXT:    return
func.func @neighbors(%x: !x) {
  %t = memref.alloc() : !tile
  %u = memref.alloc() : !tile
  "nisa.dma_copy"(%t, %x) {access = [#tile, #first], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.dma_copy"(%u, %x) {access = [#tile, #second], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_tensor"(%t, %t, %u) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  return
}

// Tiles at a distance become a dimension of the transfer.
// CHECK-LABEL: func.func @apart(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x1024xf32, "hbm">
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<128x2x64xf32, "sbuf">
// CHECK-NEXT:    "nisa.dma_copy"(%[[T]], %[[X]]) {{.*}}{{\[\[}}1, 128], [64, 2], [1, 64]]>, {{.*}}{{\[\[}}1024, 128], [192, 2], [1, 64]]>]
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[T]], %[[T]])
// CHECK-NEXT:    return
func.func @apart(%x: !x) {
  %t = memref.alloc() : !tile
  %u = memref.alloc() : !tile
  "nisa.dma_copy"(%t, %x) {access = [#tile, #first], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.dma_copy"(%u, %x) {access = [#tile, #apart], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_tensor"(%t, %t, %u) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  return
}

// So do columns, whose axis of one element has any step.
!column = memref<128x1xf32, "sbuf">
#column = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [0, 1]]>
#x0 = #nki.access<f32, affine_map<() -> (0)>, [[1024, 128], [0, 1]]>
#x3 = #nki.access<f32, affine_map<() -> (3)>, [[1024, 128], [0, 1]]>
// CHECK-LABEL: func.func @columns(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x1024xf32, "hbm">
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<128x2x1xf32, "sbuf">
// CHECK-NEXT:    "nisa.dma_copy"(%[[T]], %[[X]]) {{.*}}{{\[\[}}1, 128], [1, 2]]>, {{.*}}{{\[\[}}1024, 128], [3, 2]]>]
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[T]], %[[T]])
// CHECK-NEXT:    return
func.func @columns(%x: !x) {
  %t = memref.alloc() : !column
  %u = memref.alloc() : !column
  "nisa.dma_copy"(%t, %x) {access = [#column, #x0], engine = "unknown", mask = #all} : (!column, !x) -> ()
  "nisa.dma_copy"(%u, %x) {access = [#column, #x3], engine = "unknown", mask = #all} : (!column, !x) -> ()
  "nisa.tensor_tensor"(%t, %t, %u) {access = [#column, #column, #column], engine = "vector", mask = #all, op = "add"} : (!column, !column, !column) -> ()
  return
}

// A load of elements that are before those of the last one, and loads whose trigger the kernel assigns to an engine,
// stay.
// CHECK-LABEL: func.func @stays(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x1024xf32, "hbm">
// CHECK:         "nisa.dma_copy"(%[[T:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[U:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[V:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[W:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    return
func.func @stays(%x: !x) {
  %t = memref.alloc() : !tile
  %u = memref.alloc() : !tile
  %v = memref.alloc() : !tile
  %w = memref.alloc() : !tile
  "nisa.dma_copy"(%t, %x) {access = [#tile, #apart], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.dma_copy"(%u, %x) {access = [#tile, #first], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.dma_copy"(%v, %x) {access = [#tile, #first], engine = "gpsimd", mask = #all} : (!tile, !x) -> ()
  "nisa.dma_copy"(%w, %x) {access = [#tile, #second], engine = "gpsimd", mask = #all} : (!tile, !x) -> ()
  return
}
