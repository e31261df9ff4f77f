// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --pipeline-loops --print=pretty %s | FileCheck %s

!x = memref<1024x512xf32, "hbm">
!tile = memref<128x512xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
// With the loop variable: the tile, and rows 128 i to 128 i + 127.
#tile_i = #nki.access<f32, affine_map<()[i] -> (0, 0)>, [[1, 128], [1, 512]]>
#rows_i = #nki.access<f32, affine_map<()[i] -> (i * 65536)>, [[512, 128], [1, 512]]>

// A load starts two iterations ahead of the activation. Its tile has three copies, and a body three rounds; the tile that
// is stored is used in one stage. Loads of the first rounds are the prologue, what they leave is the epilogue.
// CHECK-LABEL: func.func @exponentials(
// CHECK-DAG:     %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG:     %[[C3:.*]] = arith.constant 3 : index
// CHECK-DAG:     %[[C6:.*]] = arith.constant 6 : index
// CHECK:         nisa.dma_copy %[[A:t.*]] = %x[0:128, 0:512]
// CHECK-NEXT:    nisa.dma_copy %[[B:t.*]] = %x[128:256, 0:512]
// CHECK-NEXT:    scf.for %[[I:.*]] = %[[C0]] to %[[C6]] step %[[C3]] {
// CHECK:           nisa.dma_copy %[[C:t.*]] = %x[%[[I]] * 128 + 256:384, 0:512]
// CHECK-NEXT:      nisa.activation exp %[[U:u.*]] = %[[A]] {
// CHECK-NEXT:      nisa.dma_copy %y[%[[I]] * 128 + 0:128, 0:512] = %[[U]]
// CHECK-NEXT:      nisa.dma_copy %[[A]] = %x[%[[I]] * 128 + 384:512, 0:512]
// CHECK-NEXT:      nisa.activation exp %[[V:u.*]] = %[[B]] {
// CHECK-NEXT:      nisa.dma_copy %y[%[[I]] * 128 + 128:256, 0:512] = %[[V]]
// CHECK-NEXT:      nisa.dma_copy %[[B]] = %x[%[[I]] * 128 + 512:640, 0:512]
// CHECK-NEXT:      nisa.activation exp %[[W:u.*]] = %[[C]] {
// CHECK-NEXT:      nisa.dma_copy %y[%[[I]] * 128 + 256:384, 0:512] = %[[W]]
// CHECK-NEXT:    }
// CHECK-NEXT:    nisa.activation exp %[[X:u.*]] = %[[A]] {
// CHECK-NEXT:    nisa.dma_copy %y[768:896, 0:512] = %[[X]]
// CHECK-NEXT:    nisa.activation exp %[[Y:u.*]] = %[[B]] {
// CHECK-NEXT:    nisa.dma_copy %y[896:1024, 0:512] = %[[Y]]
// CHECK-NEXT:    return
func.func @exponentials(%x: !x, %y: !x {nki.shared = 0 : i64}) attributes {nki.grid = [], nki.results = [1]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    %t = memref.alloc() {nki.name = "t"} : !tile
    %u = memref.alloc() {nki.name = "u"} : !tile
    "nisa.dma_copy"(%t, %x, %i) {access = [#tile_i, #rows_i], engine = "sync", mask = #all} : (!tile, !x, index) -> ()
    "nisa.activation"(%u, %t) {access = [#tile, #tile], engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = #all,
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !tile) -> ()
    "nisa.dma_copy"(%y, %u, %i) {access = [#rows_i, #tile_i], engine = "sync", mask = #all} : (!x, !tile, index) -> ()
  }
  return
}

// Three iterations are too few to see how they follow each other.
// CHECK-LABEL: func.func @short(
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK:           nisa.dma_copy %[[T:.*]] = %x[%[[I]] * 128 + 0:128, 0:512]
// CHECK-NEXT:      nisa.dma_copy %y[%[[I]] * 128 + 0:128, 0:512] = %[[T]]
// CHECK-NEXT:    }
func.func @short(%x: !x, %y: !x {nki.shared = 0 : i64}) attributes {nki.grid = [], nki.results = [1]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  scf.for %i = %c0 to %c3 step %c1 {
    %t = memref.alloc() {nki.name = "t"} : !tile
    "nisa.dma_copy"(%t, %x, %i) {access = [#tile_i, #rows_i], engine = "sync", mask = #all} : (!tile, !x, index) -> ()
    "nisa.dma_copy"(%y, %t, %i) {access = [#rows_i, #tile_i], engine = "sync", mask = #all} : (!x, !tile, index) -> ()
  }
  return
}
