// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --unread-results %s | FileCheck %s

!hbm = memref<128x16xf32, "hbm">
!tile = memref<128x16xf32, "sbuf">
!index = memref<128x1xi32, "sbuf">
!state = memref<1x2xui32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[16, 128], [1, 16]]>
#index = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>
#state = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 1], [1, 2]]>

// The sum %c is in no output, so that neither it nor the load of %b, which only it reads, is needed. The address that the
// kernel chose for it does not matter.
// CHECK-LABEL: func.func @unread(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x16xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<128x16xf32, "hbm">
// CHECK:         "nisa.dma_copy"(%[[A:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[A]])
// CHECK-NEXT:    return
func.func @unread(%x: !hbm, %y: !hbm) {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  %c = memref.alloc() {nki.address = [0, 4096], nki.name = "c"} : !tile
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%b, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.tensor_tensor"(%c, %a, %b) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  "nisa.tensor_tensor"(%c, %c, %b) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  "nisa.dma_copy"(%y, %a) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  return
}

// A gather reports indices outside of its table, so it stays, and so does what writes its indices.
// CHECK-LABEL: func.func @checks(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x16xf32, "hbm">
// CHECK:         "nisa.memset"(%[[I:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.dma_gather"(%[[A:[a-z0-9_]+]], %[[X]], %[[I]])
// CHECK-NEXT:    return
func.func @checks(%x: !hbm) {
  %i = memref.alloc() {nki.name = "i"} : !index
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  "nisa.memset"(%i) {access = [#index], engine = "vector", mask = #all, value = 3.000000e+00 : f64} : (!index) -> ()
  "nisa.dma_gather"(%a, %x, %i) {access = [#tile, #hbm, #index], engine = "unknown", mask = #all, mode = "error"} : (!tile, !hbm, !index) -> ()
  "nisa.dma_gather"(%b, %x, %i) {access = [#tile, #hbm, #index], engine = "unknown", mask = #all, mode = "skip"} : (!tile, !hbm, !index) -> ()
  return
}

// Only the copies read %a and %b, each for the other, and nothing else needs them.
// CHECK-LABEL: func.func @circle(
// CHECK-NOT:     "nisa.tensor_copy"
// CHECK:         return
func.func @circle(%x: !hbm) {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.tensor_copy"(%b, %a) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  "nisa.tensor_copy"(%a, %b) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  return
}

// The first dropout keeps all elements whatever the generator's state is; the second one needs its state.
// CHECK-LABEL: func.func @dropout(
// CHECK-NEXT:    %[[A:[a-z0-9_]+]] = memref.alloc() {nki.name = "a"}
// CHECK-NOT:     "nisa.memset"(%{{[a-z0-9_]+}}) {{.*}} value = 1.0
// CHECK:         "nisa.memset"(%[[T:[a-z0-9_]+]]) {{.*}} value = 2.0
// CHECK-NOT:     "nisa.memset"
// CHECK:         "nisa.dropout"(%[[A]],
// CHECK-NEXT:    "nisa.dropout"(%[[A]], %[[T]], %[[A]])
func.func @dropout(%x: !hbm, %y: !hbm) {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %s = memref.alloc() {nki.name = "s"} : !state
  %t = memref.alloc() {nki.name = "t"} : !state
  "nisa.memset"(%s) {access = [#state], engine = "vector", mask = #all, value = 1.000000e+00 : f64} : (!state) -> ()
  "nisa.memset"(%t) {access = [#state], engine = "vector", mask = #all, value = 2.000000e+00 : f64} : (!state) -> ()
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dropout"(%a, %s, %a) {access = [#tile, #state, #tile], engine = "vector", imm = 0.000000e+00 : f64, mask = #all, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (!tile, !state, !tile) -> ()
  "nisa.dropout"(%a, %t, %a) {access = [#tile, #state, #tile], engine = "vector", imm = 5.000000e-01 : f64, mask = #all, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (!tile, !state, !tile) -> ()
  "nisa.dma_copy"(%y, %a) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  return
}
