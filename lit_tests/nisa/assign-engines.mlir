// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --assign-engines %s | FileCheck %s

!hbm = memref<128x512xf32, "hbm">
!tile = memref<128x512xf32, "sbuf">
!bank = memref<128x512xf32, "psum">
!whole = memref<128x512xi32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#whole = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>

// Each copy goes to the engine that has done it first; the scalar engine is the faster one. A name stays.
// CHECK-LABEL: func.func @copies(
// CHECK:         "nisa.tensor_copy"(%{{.*}}, %{{.*}}) {{{.*}}engine = "vector"
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %{{.*}}) {{{.*}}engine = "scalar"
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %{{.*}}) {{{.*}}engine = "scalar"
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %{{.*}}) {{{.*}}engine = "vector"
// CHECK-NEXT:    return
func.func @copies() {
  %p0 = memref.alloc() : !bank
  %p1 = memref.alloc() : !bank
  %p2 = memref.alloc() : !bank
  %p3 = memref.alloc() : !bank
  %t0 = memref.alloc() : !tile
  %t1 = memref.alloc() : !tile
  %t2 = memref.alloc() : !tile
  %t3 = memref.alloc() : !tile
  "nisa.tensor_copy"(%t0, %p0) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !bank) -> ()
  "nisa.tensor_copy"(%t1, %p1) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !bank) -> ()
  "nisa.tensor_copy"(%t2, %p2) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !bank) -> ()
  "nisa.tensor_copy"(%t3, %p3) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !bank) -> ()
  return
}

// What waits for each other stays on one engine: spreading it gains nothing.
// CHECK-LABEL: func.func @chain(
// CHECK:         "nisa.tensor_tensor"(%[[T:.*]], %[[T]], %[[T]]) {{{.*}}engine = "vector"
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[T]], %[[T]]) {{{.*}}engine = "vector"
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[T]], %[[T]]) {{{.*}}engine = "vector"
// CHECK-NEXT:    return
func.func @chain() {
  %t = memref.alloc() : !tile
  "nisa.tensor_tensor"(%t, %t, %t) {access = [#tile, #tile, #tile], engine = "unknown", mask = #all, op = "add"}
    : (!tile, !tile, !tile) -> ()
  "nisa.tensor_tensor"(%t, %t, %t) {access = [#tile, #tile, #tile], engine = "unknown", mask = #all, op = "add"}
    : (!tile, !tile, !tile) -> ()
  "nisa.tensor_tensor"(%t, %t, %t) {access = [#tile, #tile, #tile], engine = "unknown", mask = #all, op = "add"}
    : (!tile, !tile, !tile) -> ()
  return
}

// The values decide: 32-bit integers are exact on GpSimd alone, and the scalar engine copies them through float32.
// CHECK-LABEL: func.func @integers(
// CHECK:         "nisa.tensor_tensor"(%{{.*}}, %{{.*}}, %{{.*}}) {{{.*}}engine = "gpsimd"
// CHECK-NEXT:    "nisa.tensor_tensor"(%{{.*}}, %{{.*}}, %{{.*}}) {{{.*}}engine = "gpsimd"
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %{{.*}}) {{{.*}}engine = "vector"
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %{{.*}}) {{{.*}}engine = "vector"
// CHECK-NEXT:    return
func.func @integers() {
  %a = memref.alloc() : !whole
  %b = memref.alloc() : !whole
  %c = memref.alloc() : !whole
  %d = memref.alloc() : !whole
  "nisa.tensor_tensor"(%a, %b, %b) {access = [#whole, #whole, #whole], engine = "unknown", mask = #all, op = "add"}
    : (!whole, !whole, !whole) -> ()
  "nisa.tensor_tensor"(%c, %b, %b) {access = [#whole, #whole, #whole], engine = "unknown", mask = #all, op = "add"}
    : (!whole, !whole, !whole) -> ()
  "nisa.tensor_copy"(%d, %b) {access = [#whole, #whole], engine = "unknown", mask = #all} : (!whole, !whole) -> ()
  "nisa.tensor_copy"(%d, %a) {access = [#whole, #whole], engine = "unknown", mask = #all} : (!whole, !whole) -> ()
  return
}
