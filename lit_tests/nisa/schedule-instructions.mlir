// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --schedule-instructions %s | FileCheck %s

!hbm = memref<128x512xf32, "hbm">
!tile = memref<128x512xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[512, 128], [1, 512]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>

// The second load does not wait behind the work on the first tile.
// CHECK-LABEL: func.func @overlap(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x512xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<128x512xf32, "hbm">
// CHECK-NEXT:    %[[A:.*]] = memref.alloc() {nki.name = "a"}
// CHECK-NEXT:    %[[B:.*]] = memref.alloc() {nki.name = "b"}
// CHECK-NEXT:    "nisa.dma_copy"(%[[A]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[B]], %[[Y]])
// CHECK-NEXT:    "nisa.activation"(%[[A]], %[[A]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[X]], %[[A]])
// CHECK-NEXT:    "nisa.activation"(%[[B]], %[[B]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[B]])
// CHECK-NEXT:    return
func.func @overlap(%x: !hbm, %y: !hbm) {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.activation"(%a, %a) {access = [#tile, #tile], engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = #all,
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !tile) -> ()
  "nisa.dma_copy"(%x, %a) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  "nisa.dma_copy"(%b, %y) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.activation"(%b, %b) {access = [#tile, #tile], engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = #all,
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !tile) -> ()
  "nisa.dma_copy"(%y, %b) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  return
}
