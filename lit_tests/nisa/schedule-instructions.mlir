// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --schedule-instructions %s | FileCheck %s
// RUN: nki-opt --schedule-instructions="engines=false issuers=false" %s | FileCheck --check-prefix=FIRST %s

!hbm = memref<128x512xf32, "hbm">
!tile = memref<128x512xf32, "sbuf">
!bank = memref<128x512xf32, "psum">
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

// A copy whose engine is open goes to the one that has it done first; the scalar engine is the faster one. A name stays.
// CHECK-LABEL: func.func @copies(
// CHECK:         "nisa.tensor_copy"(%[[T0:.*]], %{{.*}}) {{{.*}}engine = "vector"
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T1:.*]], %{{.*}}) {{{.*}}engine = "scalar"
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T2:.*]], %{{.*}}) {{{.*}}engine = "scalar"
// CHECK-NEXT:    return
// FIRST-LABEL: func.func @copies(
// FIRST:         "nisa.tensor_copy"(%[[T0:.*]], %{{.*}}) {{{.*}}engine = "vector"
// FIRST-NEXT:    "nisa.tensor_copy"(%[[T1:.*]], %{{.*}}) {{{.*}}engine = "vector"
// FIRST-NEXT:    "nisa.tensor_copy"(%[[T2:.*]], %{{.*}}) {{{.*}}engine = "vector"
// FIRST-NEXT:    return
func.func @copies() {
  %p0 = memref.alloc() : !bank
  %p1 = memref.alloc() : !bank
  %p2 = memref.alloc() : !bank
  %t0 = memref.alloc() : !tile
  %t1 = memref.alloc() : !tile
  %t2 = memref.alloc() : !tile
  "nisa.tensor_copy"(%t0, %p0) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !bank) -> ()
  "nisa.tensor_copy"(%t1, %p1) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !bank) -> ()
  "nisa.tensor_copy"(%t2, %p2) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !bank) -> ()
  return
}

// Transfers whose engine is open are triggered by each engine that can in turn.
// CHECK-LABEL: func.func @loads(
// CHECK:         "nisa.dma_copy"(%[[T0:.*]], %[[X:.*]]) {{{.*}}engine = "sync"
// CHECK-NEXT:    "nisa.dma_copy"(%[[T1:.*]], %[[X]]) {{{.*}}engine = "gpsimd"
// CHECK-NEXT:    "nisa.dma_copy"(%[[T2:.*]], %[[X]]) {{{.*}}engine = "scalar"
// CHECK-NEXT:    return
// FIRST-LABEL: func.func @loads(
// FIRST:         "nisa.dma_copy"(%[[T0:.*]], %[[X:.*]]) {{{.*}}engine = "sync"
// FIRST-NEXT:    "nisa.dma_copy"(%[[T1:.*]], %[[X]]) {{{.*}}engine = "sync"
// FIRST-NEXT:    "nisa.dma_copy"(%[[T2:.*]], %[[X]]) {{{.*}}engine = "sync"
// FIRST-NEXT:    return
func.func @loads(%x: !hbm) {
  %t0 = memref.alloc() : !tile
  %t1 = memref.alloc() : !tile
  %t2 = memref.alloc() : !tile
  "nisa.dma_copy"(%t0, %x) {access = [#tile, #hbm], engine = "unknown", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%t1, %x) {access = [#tile, #hbm], engine = "unknown", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%t2, %x) {access = [#tile, #hbm], engine = "unknown", mask = #all} : (!tile, !hbm) -> ()
  return
}
