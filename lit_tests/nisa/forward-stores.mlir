// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --forward-stores %s | FileCheck %s
// RUN: nki-opt --forward-stores="room=0 join=false" %s | FileCheck --check-prefix=NONE %s
// RUN: nki-opt --forward-stores=join=false %s | FileCheck --check-prefix=APART %s

!hbm = memref<128x512xf32, "hbm">
!tile = memref<128x512xf32, "sbuf">
!half = memref<128x256xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[512, 128], [1, 512]]>
#right = #nki.access<f32, affine_map<() -> (256)>, [[512, 128], [1, 256]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#half = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 256]]>
#part = #nki.access<f32, affine_map<() -> (0, 256)>, [[1, 128], [1, 256]]>
#left = #nki.access<f32, affine_map<() -> (0)>, [[512, 128], [1, 256]]>

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

// In each iteration of a loop the load reads what the store of the same iteration wrote: its address has the same
// register. In @previous it reads what the previous iteration stored, so that it stays.
!rows = memref<512x512xf32, "hbm">
#at = #nki.access<f32, affine_map<()[i] -> (i * 65536)>, [[512, 128], [1, 512]]>
#before = #nki.access<f32, affine_map<()[i] -> (i * 65536 - 65536)>, [[512, 128], [1, 512]]>
// CHECK-LABEL: func.func @rolled(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<512x512xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<512x512xf32, "hbm">
// CHECK:         scf.for %[[I:.*]] = %c0 to %c4 step %c1 {
// CHECK:           "nisa.dma_copy"(%[[A:[a-z0-9_]+]], %[[X]], %[[I]])
// CHECK-NEXT:      "nisa.tensor_tensor"(%[[T:[a-z0-9_]+]], %[[A]], %[[A]])
// CHECK-NEXT:      "nisa.dma_copy"(%[[Y]], %[[T]], %[[I]])
// CHECK-NEXT:    }
// NONE-LABEL: func.func @rolled(
// NONE:         "nisa.dma_copy"(%[[A:[a-z0-9_]+]], %{{[a-z0-9_]+}}, %[[I:[a-z0-9_]+]])
// NONE-NEXT:    "nisa.dma_copy"(%[[S:[a-z0-9_]+]], %[[A]], %[[I]])
// NONE-NEXT:    "nisa.dma_copy"(%[[B:[a-z0-9_]+]], %[[S]], %[[I]])
func.func @rolled(%x: !rows, %y: !rows) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %s = memref.alloc() : !rows
  scf.for %i = %c0 to %c4 step %c1 {
    %a = memref.alloc() : !tile
    %b = memref.alloc() : !tile
    %t = memref.alloc() : !tile
    "nisa.dma_copy"(%a, %x, %i) {access = [#tile, #at], engine = "sync", mask = #all} : (!tile, !rows, index) -> ()
    "nisa.dma_copy"(%s, %a, %i) {access = [#at, #tile], engine = "sync", mask = #all} : (!rows, !tile, index) -> ()
    "nisa.dma_copy"(%b, %s, %i) {access = [#tile, #at], engine = "sync", mask = #all} : (!tile, !rows, index) -> ()
    "nisa.tensor_tensor"(%t, %b, %b) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"}
      : (!tile, !tile, !tile) -> ()
    "nisa.dma_copy"(%y, %t, %i) {access = [#at, #tile], engine = "sync", mask = #all} : (!rows, !tile, index) -> ()
  }
  return
}

// CHECK-LABEL: func.func @previous(
// CHECK:         scf.for %[[I:.*]] = %c1 to %c4 step %c1 {
// CHECK:           "nisa.dma_copy"(%[[S:[a-z0-9_]+]], %{{.*}}, %[[I]])
// CHECK-NEXT:      "nisa.dma_copy"(%[[B:[a-z0-9_]+]], %[[S]], %[[I]])
// CHECK-NEXT:      "nisa.dma_copy"(%{{.*}}, %[[B]], %[[I]])
func.func @previous(%x: !rows, %y: !rows) {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %s = memref.alloc() : !rows
  scf.for %i = %c1 to %c4 step %c1 {
    %a = memref.alloc() : !tile
    %b = memref.alloc() : !tile
    "nisa.dma_copy"(%a, %x, %i) {access = [#tile, #at], engine = "sync", mask = #all} : (!tile, !rows, index) -> ()
    "nisa.dma_copy"(%s, %a, %i) {access = [#at, #tile], engine = "sync", mask = #all} : (!rows, !tile, index) -> ()
    "nisa.dma_copy"(%b, %s, %i) {access = [#tile, #before], engine = "sync", mask = #all} : (!tile, !rows, index) -> ()
    "nisa.dma_copy"(%y, %b, %i) {access = [#at, #tile], engine = "sync", mask = #all} : (!rows, !tile, index) -> ()
  }
  return
}

// Two halves of s are stored, and loaded as one tile: the sums write its halves, and nothing is stored. With join=false
// the load stays.
// CHECK-LABEL: func.func @joined(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x512xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<128x512xf32, "hbm">
// CHECK:         "nisa.dma_copy"(%[[A:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[B:[a-z0-9_]+]], %[[A]], %[[A]])
// CHECK-SAME:      access = [#nki.access<f32, #[[START:map[0-9]*]], {{\[\[}}1, 128], [1, 256]]>,
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[B]], %[[A]], %[[A]])
// CHECK-SAME:      access = [#nki.access<f32, #[[RIGHT]], {{\[\[}}1, 128], [1, 256]]>,
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[B]])
// CHECK-NEXT:    return
// APART-LABEL: func.func @joined(
// APART:         "nisa.tensor_tensor"(%[[T:[a-z0-9_]+]], %{{.*}}
// APART:         "nisa.tensor_tensor"(%[[U:[a-z0-9_]+]], %{{.*}}
// APART-NEXT:    "nisa.dma_copy"(%[[S:[a-z0-9_]+]], %[[T]])
// APART-NEXT:    "nisa.dma_copy"(%[[S]], %[[U]])
// APART-NEXT:    "nisa.dma_copy"(%[[B:[a-z0-9_]+]], %[[S]])
// APART-NEXT:    "nisa.dma_copy"(%{{[a-z0-9_]+}}, %[[B]])
func.func @joined(%x: !hbm, %y: !hbm) {
  %s = memref.alloc() : !hbm
  %a = memref.alloc() : !tile
  %t = memref.alloc() : !half
  %u = memref.alloc() : !half
  %b = memref.alloc() : !tile
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.tensor_tensor"(%t, %a, %a) {access = [#half, #part, #half], engine = "vector", mask = #all, op = "add"}
    : (!half, !tile, !tile) -> ()
  "nisa.tensor_tensor"(%u, %a, %a) {access = [#half, #part, #part], engine = "vector", mask = #all, op = "add"}
    : (!half, !tile, !tile) -> ()
  "nisa.dma_copy"(%s, %t) {access = [#left, #half], engine = "sync", mask = #all} : (!hbm, !half) -> ()
  "nisa.dma_copy"(%s, %u) {access = [#right, #half], engine = "sync", mask = #all} : (!hbm, !half) -> ()
  "nisa.dma_copy"(%b, %s) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%y, %b) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  return
}
