// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --forward-stores %s | FileCheck %s
// RUN: nki-opt --forward-stores=room=0 %s | FileCheck --check-prefix=NONE %s

!hbm = memref<128x512xf32, "hbm">
!tile = memref<128x512xf32, "sbuf">
!half = memref<128x256xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[512, 128], [1, 512]]>
#right = #nki.access<f32, affine_map<() -> (256)>, [[512, 128], [1, 256]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#half = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 256]]>

// The right half of s is that of a: the sum reads it there. Nothing reads s then, so it is not stored.
// CHECK-DAG:   #[[RIGHT:map[0-9]*]] = affine_map<() -> (0, 256)>
// CHECK-LABEL: func.func @between(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x512xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<128x512xf32, "hbm">
// CHECK:         "nisa.dma_copy"(%[[A:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T:[a-z0-9_]+]], %[[A]], %[[A]])
// CHECK-SAME:      access = [{{.*}}, #nki.access<f32, #[[RIGHT]], {{\[\[}}1, 128], [1, 256]]>, #nki.access<f32, #[[RIGHT]]
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[T]])
// CHECK-NEXT:    return
// NONE-LABEL: func.func @between(
// NONE:         "nisa.dma_copy"(%[[A:[a-z0-9_]+]], %{{.*}})
// NONE-NEXT:    "nisa.dma_copy"(%[[S:[a-z0-9_]+]], %[[A]])
// NONE-NEXT:    "nisa.dma_copy"(%[[B:[a-z0-9_]+]], %[[S]])
// NONE-NEXT:    "nisa.tensor_tensor"(%{{.*}}, %[[B]], %[[B]])
func.func @between(%x: !hbm, %y: !hbm) {
  %s = memref.alloc() : !hbm
  %a = memref.alloc() : !tile
  %b = memref.alloc() : !half
  %t = memref.alloc() : !half
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%s, %a) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  "nisa.dma_copy"(%b, %s) {access = [#half, #right], engine = "sync", mask = #all} : (!half, !hbm) -> ()
  "nisa.tensor_tensor"(%t, %b, %b) {access = [#half, #half, #half], engine = "vector", mask = #all, op = "add"}
    : (!half, !half, !half) -> ()
  "nisa.dma_copy"(%y, %t) {access = [#right, #half], engine = "sync", mask = #all} : (!hbm, !half) -> ()
  return
}

// Once the tile or the tensor is written again, the load stays. A tensor from outside is stored in any case.
// CHECK-LABEL: func.func @overwritten(
// CHECK:         "nisa.dma_copy"(%[[A:[a-z0-9_]+]], %[[X:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y:[a-z0-9_]+]], %[[A]])
// CHECK-NEXT:    "nisa.memset"(%[[A]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[B:[a-z0-9_]+]], %[[Y]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[X]], %[[B]])
// CHECK-NEXT:    return
func.func @overwritten(%x: !hbm, %y: !hbm) {
  %a = memref.alloc() : !tile
  %b = memref.alloc() : !tile
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%y, %a) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  "nisa.memset"(%a) {access = [#tile], engine = "vector", mask = #all, value = 1.0 : f64} : (!tile) -> ()
  "nisa.dma_copy"(%b, %y) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%x, %b) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  return
}
