// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --schedule-instructions %s | FileCheck %s
// RUN: nki-opt --schedule-instructions="engines=false issuers=false" %s | FileCheck --check-prefix=FIRST %s
// RUN: nki-opt --schedule-instructions="loads=60" %s | FileCheck --check-prefix=FEWER %s
// RUN: nki-opt --schedule-instructions="unread=1" %s | FileCheck --check-prefix=FEWER %s
// RUN: nki-opt --schedule-instructions="serial=3" %s | FileCheck --check-prefix=SERIAL %s

!hbm = memref<128x512xf32, "hbm">
!tile = memref<128x512xf32, "sbuf">
!bank = memref<128x512xf32, "psum">
#all = affine_set<() : (0 == 0)>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[512, 128], [1, 512]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
!large = memref<128x16384xf32, "sbuf">
!rows = memref<1024x16384xf32, "hbm">
#large = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16384]]>
#rows0 = #nki.access<f32, affine_map<() -> (0)>, [[16384, 128], [1, 16384]]>
#rows128 = #nki.access<f32, affine_map<() -> (2097152)>, [[16384, 128], [1, 16384]]>
#rows512 = #nki.access<f32, affine_map<() -> (8388608)>, [[16384, 128], [1, 16384]]>
#rows640 = #nki.access<f32, affine_map<() -> (10485760)>, [[16384, 128], [1, 16384]]>

// The second load does not wait for the work on the first tile.
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

// Two of three tiles fill two thirds of SBUF: with 60 percent for loads, or one unread tile, the second waits until the
// first is stored.
// FEWER-LABEL: func.func @large(
// FEWER:         "nisa.dma_copy"(%[[T0:.*]], %[[X:[^ ]*]])
// FEWER-NEXT:    "nisa.dma_copy"(%[[X]], %[[T0]])
// FEWER-NEXT:    "nisa.dma_copy"(%[[T1:.*]], %[[X]])
// FEWER-NEXT:    "nisa.dma_copy"(%[[X]], %[[T1]])
// FEWER-NEXT:    return
// CHECK-LABEL: func.func @large(
// CHECK:         "nisa.dma_copy"(%[[T0:.*]], %[[X:[^ ]*]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[T1:.*]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[X]], %[[T1]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[X]], %[[T0]])
// CHECK-NEXT:    return
func.func @large(%x: !rows) {
  %t0 = memref.alloc() : !large
  %t1 = memref.alloc() : !large
  "nisa.dma_copy"(%t0, %x) {access = [#large, #rows0], engine = "unknown", mask = #all} : (!large, !rows) -> ()
  "nisa.dma_copy"(%x, %t0) {access = [#rows512, #large], engine = "unknown", mask = #all} : (!rows, !large) -> ()
  "nisa.dma_copy"(%t1, %x) {access = [#large, #rows128], engine = "unknown", mask = #all} : (!large, !rows) -> ()
  "nisa.dma_copy"(%x, %t1) {access = [#rows640, #large], engine = "unknown", mask = #all} : (!rows, !large) -> ()
  return
}

// Each step of the first engine waits for the one before, so that no order is faster: program order may stay. Otherwise work
// that waits for nothing starts first. The loads of @overlap change their order in any case.
// CHECK-LABEL:  func.func @chain(
// CHECK-NEXT:   %[[A:.*]] = memref.alloc() {nki.name = "a"}
// CHECK-NEXT:   %[[B:.*]] = memref.alloc() {nki.name = "b"}
// CHECK-NEXT:   "nisa.tensor_copy"(%[[B]], %[[B]])
// CHECK-NEXT:   "nisa.activation"(%[[A]], %[[A]]) {{{.*}}fn = "exp"
// CHECK-NEXT:   "nisa.activation"(%[[A]], %[[A]]) {{{.*}}fn = "square"
// CHECK-NEXT:   return
// SERIAL-LABEL: func.func @overlap(
// SERIAL:       "nisa.dma_copy"(%[[A:.*]], %[[X:.*]])
// SERIAL-NEXT:  "nisa.dma_copy"(%[[B:.*]], %[[Y:.*]])
// SERIAL-NEXT:  "nisa.activation"(%[[A]], %[[A]])
// SERIAL-LABEL: func.func @chain(
// SERIAL-NEXT:  %[[A:.*]] = memref.alloc() {nki.name = "a"}
// SERIAL-NEXT:  %[[B:.*]] = memref.alloc() {nki.name = "b"}
// SERIAL-NEXT:  "nisa.activation"(%[[A]], %[[A]]) {{{.*}}fn = "exp"
// SERIAL-NEXT:  "nisa.activation"(%[[A]], %[[A]]) {{{.*}}fn = "square"
// SERIAL-NEXT:  "nisa.tensor_copy"(%[[B]], %[[B]])
// SERIAL-NEXT:  return
func.func @chain() {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  "nisa.activation"(%a, %a) {access = [#tile, #tile], engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = #all,
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !tile) -> ()
  "nisa.activation"(%a, %a) {access = [#tile, #tile], engine = "scalar", fn = "square", imm = 1.0 : f64, mask = #all,
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !tile) -> ()
  "nisa.tensor_copy"(%b, %b) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  return
}
