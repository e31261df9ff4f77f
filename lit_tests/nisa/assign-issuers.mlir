// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --assign-issuers %s | FileCheck %s

!hbm = memref<128x32xf32, "hbm">
!tile = memref<128x8xf32, "sbuf">
!rows = memref<128x16384xf32, "hbm">
!large = memref<128x16384xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 8]]>
#first = #nki.access<f32, affine_map<() -> (0)>, [[32, 128], [1, 8]]>
#second = #nki.access<f32, affine_map<() -> (8)>, [[32, 128], [1, 8]]>
#third = #nki.access<f32, affine_map<() -> (16)>, [[32, 128], [1, 8]]>
#fourth = #nki.access<f32, affine_map<() -> (24)>, [[32, 128], [1, 8]]>
#rows = #nki.access<f32, affine_map<() -> (0)>, [[16384, 128], [1, 16384]]>
#large = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16384]]>

// Small transfers move faster than one engine triggers them: two do so. A name stays, and counts.
// CHECK-LABEL: func.func @small(
// CHECK:         "nisa.dma_copy"(%[[A:.*]], %[[X:.*]]) {{{.*}}engine = "sync"
// CHECK-NEXT:    "nisa.dma_copy"(%[[B:.*]], %[[X]]) {{{.*}}engine = "sync"
// CHECK-NEXT:    "nisa.dma_copy"(%[[C:.*]], %[[X]]) {{{.*}}engine = "scalar"
// CHECK-NEXT:    "nisa.dma_copy"(%[[D:.*]], %[[X]]) {{{.*}}engine = "scalar"
// CHECK-NEXT:    }
func.func @small(%x: !hbm) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %a = memref.alloc() : !tile
    %b = memref.alloc() : !tile
    %c = memref.alloc() : !tile
    %d = memref.alloc() : !tile
    "nisa.dma_copy"(%a, %x) {access = [#tile, #first], engine = "unknown", mask = #all} : (!tile, !hbm) -> ()
    "nisa.dma_copy"(%b, %x) {access = [#tile, #second], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
    "nisa.dma_copy"(%c, %x) {access = [#tile, #third], engine = "unknown", mask = #all} : (!tile, !hbm) -> ()
    "nisa.dma_copy"(%d, %x) {access = [#tile, #fourth], engine = "unknown", mask = #all} : (!tile, !hbm) -> ()
  }
  return
}

// Large ones take the DMA engines longer than one engine triggers them, and a few of any size are not worth it.
// CHECK-LABEL: func.func @large(
// CHECK:         "nisa.dma_copy"(%[[T:.*]], %[[X:.*]]) {{{.*}}engine = "sync"
// CHECK-NEXT:    "nisa.dma_copy"(%[[X]], %[[T]]) {{{.*}}engine = "sync"
// CHECK-NEXT:    return
func.func @large(%x: !rows) {
  %t = memref.alloc() : !large
  "nisa.dma_copy"(%t, %x) {access = [#large, #rows], engine = "unknown", mask = #all} : (!large, !rows) -> ()
  "nisa.dma_copy"(%x, %t) {access = [#rows, #large], engine = "unknown", mask = #all} : (!rows, !large) -> ()
  return
}
