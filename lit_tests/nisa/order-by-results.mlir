// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --order-by-results %s | FileCheck %s

!tile = memref<128x512xf32, "sbuf">
!x = memref<128x1024xf32, "hbm">
#all = affine_set<() : (0 == 0)>
#whole = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#left = #nki.access<f32, affine_map<() -> (0)>, [[1024, 128], [1, 512]]>
#right = #nki.access<f32, affine_map<() -> (512)>, [[1024, 128], [1, 512]]>

// The left half is stored before the right one is loaded.
// CHECK-LABEL: func.func @steps(
// CHECK-SAME:      %[[X:.*]]: memref<128x1024xf32, "hbm">, %[[Y:.*]]: memref<128x1024xf32, "hbm">
// CHECK:         "nisa.dma_copy"(%[[A:.*]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[C:.*]], %[[A]], %[[A]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[C]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[B:.*]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[D:.*]], %[[B]], %[[B]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[D]])
// CHECK-NEXT:    return
func.func @steps(%x: !x, %y: !x) {
  %a = memref.alloc() : !tile
  %b = memref.alloc() : !tile
  %c = memref.alloc() : !tile
  %d = memref.alloc() : !tile
  "nisa.dma_copy"(%a, %x) {access = [#whole, #left], engine = "sync", mask = #all} : (!tile, !x) -> ()
  "nisa.dma_copy"(%b, %x) {access = [#whole, #right], engine = "sync", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_tensor"(%c, %a, %a) {access = [#whole, #whole, #whole], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  "nisa.tensor_tensor"(%d, %b, %b) {access = [#whole, #whole, #whole], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  "nisa.dma_copy"(%y, %c) {access = [#left, #whole], engine = "sync", mask = #all} : (!x, !tile) -> ()
  "nisa.dma_copy"(%y, %d) {access = [#right, #whole], engine = "sync", mask = #all} : (!x, !tile) -> ()
  return
}

// One tile serves both halves: its second load comes after all that read the first one.
// CHECK-LABEL: func.func @reused(
// CHECK:         "nisa.dma_copy"(%[[A:.*]], %{{.*}})
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y:.*]], %[[A]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[A]], %{{.*}})
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[A]])
func.func @reused(%x: !x, %y: !x) {
  %a = memref.alloc() : !tile
  "nisa.dma_copy"(%a, %x) {access = [#whole, #left], engine = "sync", mask = #all} : (!tile, !x) -> ()
  "nisa.dma_copy"(%y, %a) {access = [#left, #whole], engine = "sync", mask = #all} : (!x, !tile) -> ()
  "nisa.dma_copy"(%a, %x) {access = [#whole, #right], engine = "sync", mask = #all} : (!tile, !x) -> ()
  "nisa.dma_copy"(%y, %a) {access = [#right, #whole], engine = "sync", mask = #all} : (!x, !tile) -> ()
  return
}
