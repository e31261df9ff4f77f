// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --allocate-on-chip %s | FileCheck %s

!tile = memref<128x512xf32, "sbuf">
!psum = memref<128x512xf32, "psum">
!half = memref<128x256xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#half = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 256]]>

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
