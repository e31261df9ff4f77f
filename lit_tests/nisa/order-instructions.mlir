// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --order-instructions %s | FileCheck %s
// RUN: nki-opt --pass-pipeline='order-instructions,schedule-instructions' %s | FileCheck %s

!tile = memref<128x16xf32, "sbuf">
!hbm = memref<128x16xf32, "hbm">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[16, 128], [1, 16]]>

// The load of %a comes after the store of %b, and what reads %a moves with it.
// CHECK-LABEL: func.func @ordered(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x16xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<128x16xf32, "hbm">, %[[Z:[a-z0-9]+]]: memref<128x16xf32, "hbm">
// CHECK:         %[[A:.*]] = memref.alloc() {nki.name = "a"}
// CHECK-NEXT:    %[[B:.*]] = memref.alloc() {nki.name = "b"}
// CHECK-NEXT:    "nisa.dma_copy"(%[[B]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[B]]) {{.*}} nki.label = "4"
// CHECK-NEXT:    "nisa.dma_copy"(%[[A]], %[[X]]) {{.*}} nki.after = ["4"]
// CHECK-NEXT:    "nisa.dma_copy"(%[[Z]], %[[A]])
// CHECK-NEXT:    return
func.func @ordered(%x: !hbm, %y: !hbm, %z: !hbm) {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all, nki.after = ["4"]} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%b, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%z, %a) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  "nisa.dma_copy"(%y, %b) {access = [#hbm, #tile], engine = "sync", mask = #all, nki.label = "4"} : (!hbm, !tile) -> ()
  return
}
