// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --allocate-on-chip %s | FileCheck %s
// RUN: nki-opt --allocate-on-chip=banks=true %s | FileCheck %s --check-prefix=BANKS

!tile = memref<128x512xf32, "sbuf">
!psum = memref<128x512xf32, "psum">
!half = memref<128x256xf32, "sbuf">
!quarter = memref<128x128xf32, "sbuf">
!small = memref<128x128xf32, "psum">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#half = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 256]]>
#quarter = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>

// Buffers that are needed at the same time are apart; b is needed only when a is not any more, and PSUM has its own
// addresses.
// CHECK-LABEL: func.func @lifetimes(
// CHECK-NEXT:    memref.alloc() {nki.address = [0, 0], nki.name = "a", nki.placed} : memref<128x512xf32, "sbuf">
// CHECK-NEXT:    memref.alloc() {nki.address = [0, 2048], nki.name = "both", nki.placed} : memref<128x512xf32, "sbuf">
// CHECK-NEXT:    memref.alloc() {nki.address = [0, 0], nki.name = "sum", nki.placed} : memref<128x512xf32, "psum">
// CHECK-NEXT:    memref.alloc() {nki.address = [0, 4096], nki.name = "b", nki.placed} : memref<128x512xf32, "sbuf">
func.func @lifetimes() {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %both = memref.alloc() {nki.name = "both"} : !tile
  %sum = memref.alloc() {nki.name = "sum"} : !psum
  %b = memref.alloc() {nki.name = "b"} : !tile
  "nisa.memset"(%a) {access = [#tile], engine = "vector", mask = #all, value = 1.0 : f64} : (!tile) -> ()
  "nisa.tensor_copy"(%both, %a) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  "nisa.tensor_copy"(%sum, %both) {access = [#tile, #tile], engine = "vector", mask = #all} : (!psum, !tile) -> ()
  "nisa.tensor_copy"(%b, %sum) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !psum) -> ()
  "nisa.tensor_copy"(%both, %b) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  return
}

// An address that the kernel chose stays, and the others go round it.
// CHECK-LABEL: func.func @fixed(
// CHECK-NEXT:    memref.alloc() {nki.address = [0, 64], nki.name = "fixed"} : memref<128x256xf32, "sbuf">
// CHECK-NEXT:    memref.alloc() {nki.address = [0, 1088], nki.name = "free", nki.placed} : memref<128x256xf32, "sbuf">
func.func @fixed() {
  %fixed = memref.alloc() {nki.name = "fixed", nki.address = [0, 64]} : !half
  %free = memref.alloc() {nki.name = "free"} : !half
  "nisa.memset"(%fixed) {access = [#half], engine = "vector", mask = #all, value = 1.0 : f64} : (!half) -> ()
  "nisa.tensor_copy"(%free, %fixed) {access = [#half, #half], engine = "vector", mask = #all} : (!half, !half) -> ()
  return
}

// With banks=true, PSUM buffers that a bank held together get a bank each; other addresses stay.
// BANKS-LABEL: func.func @banks(
// BANKS-NEXT:    memref.alloc() {nki.address = [0, 96], nki.name = "tile", nki.placed} : memref<128x128xf32, "sbuf">
// BANKS-NEXT:    memref.alloc() {nki.address = [0, 2048], nki.name = "chosen"} : memref<128x128xf32, "psum">
// BANKS-NEXT:    memref.alloc() {nki.address = [0, 4096], nki.name = "first", nki.placed} : memref<128x128xf32, "psum">
// BANKS-NEXT:    memref.alloc() {nki.address = [0, 6144], nki.name = "second", nki.placed} : memref<128x128xf32, "psum">
func.func @banks() {
  %tile = memref.alloc() {nki.name = "tile", nki.address = [0, 96], nki.placed} : !quarter
  %chosen = memref.alloc() {nki.name = "chosen", nki.address = [0, 2048]} : !small
  %first = memref.alloc() {nki.name = "first", nki.address = [0, 0], nki.placed} : !small
  %second = memref.alloc() {nki.name = "second", nki.address = [0, 512], nki.placed} : !small
  "nisa.memset"(%chosen) {access = [#quarter], engine = "vector", mask = #all, value = 1.0 : f64} : (!small) -> ()
  "nisa.tensor_copy"(%first, %chosen) {access = [#quarter, #quarter], engine = "vector", mask = #all} : (!small, !small) -> ()
  "nisa.tensor_copy"(%second, %first) {access = [#quarter, #quarter], engine = "vector", mask = #all} : (!small, !small) -> ()
  "nisa.tensor_copy"(%tile, %first) {access = [#quarter, #quarter], engine = "vector", mask = #all} : (!quarter, !small) -> ()
  "nisa.tensor_copy"(%tile, %second) {access = [#quarter, #quarter], engine = "vector", mask = #all} : (!quarter, !small) -> ()
  "nisa.tensor_copy"(%tile, %chosen) {access = [#quarter, #quarter], engine = "vector", mask = #all} : (!quarter, !small) -> ()
  return
}
