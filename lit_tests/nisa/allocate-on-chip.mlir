// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --allocate-on-chip %s | FileCheck %s

#zero = affine_map<() -> (0, 0)>
#all = affine_set<() : (0 == 0)>

// Buffers that are needed at the same time are apart; @b is needed only when @a is not any more, and PSUM has its own
// addresses.
// CHECK-LABEL: func.func @lifetimes
// CHECK-DAG:   nki.address = [0, 0], nki.name = "a", nki.placed
// CHECK-DAG:   nki.address = [0, 2048], nki.name = "both", nki.placed
// CHECK-DAG:   nki.address = [0, 0], nki.name = "sum", nki.placed
// CHECK-DAG:   nki.address = [0, 4096], nki.name = "b", nki.placed
func.func @lifetimes() {
  %a = memref.alloc() {nki.name = "a"} : memref<128x512xf32, "sbuf">
  %both = memref.alloc() {nki.name = "both"} : memref<128x512xf32, "sbuf">
  %sum = memref.alloc() {nki.name = "sum"} : memref<128x512xf32, "psum">
  %b = memref.alloc() {nki.name = "b"} : memref<128x512xf32, "sbuf">
  "nisa.memset"(%a) {engine = "vector", mask = #all, value = 1.0 : f64, access = [#nki.access<f32, #zero, [[1, 128], [1, 512]]>]} : (memref<128x512xf32, "sbuf">) -> ()
  "nisa.tensor_copy"(%both, %a) {engine = "vector", mask = #all, access = [#nki.access<f32, #zero, [[1, 128], [1, 512]]>, #nki.access<f32, #zero, [[1, 128], [1, 512]]>]} : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "sbuf">) -> ()
  "nisa.tensor_copy"(%sum, %both) {engine = "vector", mask = #all, access = [#nki.access<f32, #zero, [[1, 128], [1, 512]]>, #nki.access<f32, #zero, [[1, 128], [1, 512]]>]} : (memref<128x512xf32, "psum">, memref<128x512xf32, "sbuf">) -> ()
  "nisa.tensor_copy"(%b, %sum) {engine = "vector", mask = #all, access = [#nki.access<f32, #zero, [[1, 128], [1, 512]]>, #nki.access<f32, #zero, [[1, 128], [1, 512]]>]} : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "psum">) -> ()
  "nisa.tensor_copy"(%both, %b) {engine = "vector", mask = #all, access = [#nki.access<f32, #zero, [[1, 128], [1, 512]]>, #nki.access<f32, #zero, [[1, 128], [1, 512]]>]} : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "sbuf">) -> ()
  return
}

// An address that the kernel chose stays, and the others go round it.
// CHECK-LABEL: func.func @fixed
// CHECK-DAG:   {nki.address = [0, 64], nki.name = "fixed"}
// CHECK-DAG:   nki.address = [0, 1088], nki.name = "free", nki.placed
func.func @fixed() {
  %fixed = memref.alloc() {nki.name = "fixed", nki.address = [0, 64]} : memref<128x256xf32, "sbuf">
  %free = memref.alloc() {nki.name = "free"} : memref<128x256xf32, "sbuf">
  "nisa.memset"(%fixed) {engine = "vector", mask = #all, value = 1.0 : f64, access = [#nki.access<f32, #zero, [[1, 128], [1, 256]]>]} : (memref<128x256xf32, "sbuf">) -> ()
  "nisa.tensor_copy"(%free, %fixed) {engine = "vector", mask = #all, access = [#nki.access<f32, #zero, [[1, 128], [1, 256]]>, #nki.access<f32, #zero, [[1, 128], [1, 256]]>]} : (memref<128x256xf32, "sbuf">, memref<128x256xf32, "sbuf">) -> ()
  return
}
