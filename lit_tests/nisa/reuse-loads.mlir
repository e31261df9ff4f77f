// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --reuse-loads %s | FileCheck %s
// RUN: nki-opt --reuse-loads=room=0 %s | FileCheck --check-prefix=NONE %s

!hbm = memref<128x512xf32, "hbm">
!tile = memref<128x512xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[512, 128], [1, 512]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>

// The second load of x brings what a has: the store reads a. Without room to keep a until then, the load stays.
// CHECK-LABEL: func.func @twice(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x512xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<128x512xf32, "hbm">
// CHECK:         "nisa.dma_copy"(%[[A:.*]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[A]])
// CHECK-NEXT:    "nisa.memset"(%[[T:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[T]], %[[A]])
// CHECK-NEXT:    return
// NONE-LABEL: func.func @twice(
// NONE:         "nisa.memset"(%[[T:[a-z0-9_]+]])
// NONE-NEXT:    "nisa.dma_copy"(%[[B:.*]], %{{.*}})
// NONE-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[T]], %[[B]])
func.func @twice(%x: !hbm, %y: !hbm) {
  %a = memref.alloc() : !tile
  %b = memref.alloc() : !tile
  %t = memref.alloc() : !tile
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%y, %a) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  "nisa.memset"(%t) {access = [#tile], engine = "vector", mask = #all, value = 1.0 : f64} : (!tile) -> ()
  "nisa.dma_copy"(%b, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.tensor_tensor"(%t, %t, %b) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"}
    : (!tile, !tile, !tile) -> ()
  return
}

// What is written in between, in HBM or in a tile, is loaded again.
// CHECK-LABEL: func.func @changed(
// CHECK:         "nisa.dma_copy"(%[[A:[a-z0-9_]+]], %[[X:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[X]], %[[A]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[B:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[B]], %[[B]], %[[B]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[C:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%{{.*}}, %[[C]])
// CHECK-NEXT:    return
func.func @changed(%x: !hbm, %y: !hbm) {
  %a = memref.alloc() : !tile
  %b = memref.alloc() : !tile
  %c = memref.alloc() : !tile
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%x, %a) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  "nisa.dma_copy"(%b, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.tensor_tensor"(%b, %b, %b) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"}
    : (!tile, !tile, !tile) -> ()
  "nisa.dma_copy"(%c, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%y, %c) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  return
}

// A row is copied to all partitions once, and again where it was written in between.
// CHECK-LABEL: func.func @spread(
// CHECK:         "nisa.dma_copy"(%[[A:[a-z0-9_]+]], %[[R:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T:[a-z0-9_]+]], %[[A]], %[[A]])
// CHECK-NEXT:    "nisa.memset"(%[[R]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[C:[a-z0-9_]+]], %[[R]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[C]], %[[T]])
// CHECK-NEXT:    return
!row = memref<1x512xf32, "sbuf">
#first = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 1], [1, 512]]>
#row = #nki.access<f32, affine_map<() -> (0, 0)>, [[0, 128], [1, 512]]>
func.func @spread() {
  %r = memref.alloc() : !row
  %a = memref.alloc() : !tile
  %b = memref.alloc() : !tile
  %c = memref.alloc() : !tile
  %t = memref.alloc() : !tile
  "nisa.memset"(%r) {access = [#first], engine = "vector", mask = #all, value = 1.0 : f64} : (!row) -> ()
  "nisa.dma_copy"(%a, %r) {access = [#tile, #row], engine = "sync", mask = #all} : (!tile, !row) -> ()
  "nisa.dma_copy"(%b, %r) {access = [#tile, #row], engine = "sync", mask = #all} : (!tile, !row) -> ()
  "nisa.tensor_tensor"(%t, %a, %b) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"}
    : (!tile, !tile, !tile) -> ()
  "nisa.memset"(%r) {access = [#first], engine = "vector", mask = #all, value = 2.0 : f64} : (!row) -> ()
  "nisa.dma_copy"(%c, %r) {access = [#tile, #row], engine = "sync", mask = #all} : (!tile, !row) -> ()
  "nisa.tensor_tensor"(%t, %c, %t) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"}
    : (!tile, !tile, !tile) -> ()
  return
}
