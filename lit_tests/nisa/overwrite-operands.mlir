// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --overwrite-operands %s | FileCheck %s

!tile = memref<128x512xf32, "sbuf">
!x = memref<128x512xf32, "hbm">
#all = affine_set<() : (0 == 0)>
#whole = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#back = #nki.access<f32, affine_map<() -> (0, 511)>, [[1, 128], [-1, 512]]>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[512, 128], [1, 512]]>

// Each result is written over the operand that nothing reads any more; the first operand is read again.
// CHECK-LABEL: func.func @chain(
// CHECK:         %[[A:.*]] = memref.alloc() {nki.name = "a"}
// CHECK-NEXT:    %[[B:.*]] = memref.alloc() {nki.name = "b"}
// CHECK-NOT:     memref.alloc
// CHECK:         "nisa.tensor_tensor"(%[[B]], %[[A]], %[[A]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[A]], %[[A]], %[[B]])
// CHECK-NEXT:    "nisa.dma_copy"(%{{.*}}, %[[A]])
func.func @chain(%x: !x, %y: !x) {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  %c = memref.alloc() {nki.name = "c"} : !tile
  "nisa.dma_copy"(%a, %x) {access = [#whole, #hbm], engine = "sync", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_tensor"(%b, %a, %a) {access = [#whole, #whole, #whole], engine = "vector", mask = #all, op = "multiply"} : (!tile, !tile, !tile) -> ()
  "nisa.tensor_tensor"(%c, %a, %b) {access = [#whole, #whole, #whole], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  "nisa.dma_copy"(%y, %c) {access = [#hbm, #whole], engine = "sync", mask = #all} : (!x, !tile) -> ()
  return
}

// An element would be overwritten before it is read.
// CHECK-LABEL: func.func @reversed(
// CHECK:         "nisa.tensor_copy"(%[[B:.*]], %[[A:.*]])
// CHECK-NEXT:    "nisa.dma_copy"(%{{.*}}, %[[B]])
func.func @reversed(%x: !x, %y: !x) {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  "nisa.dma_copy"(%a, %x) {access = [#whole, #hbm], engine = "sync", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_copy"(%b, %a) {access = [#whole, #back], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  "nisa.dma_copy"(%y, %b) {access = [#hbm, #whole], engine = "sync", mask = #all} : (!x, !tile) -> ()
  return
}
