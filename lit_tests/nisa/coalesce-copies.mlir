// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --coalesce-copies %s | FileCheck %s
// RUN: nki-opt --coalesce-copies="apart=1" %s | FileCheck %s --check-prefix=NEAR

!tile = memref<64x32xf32, "sbuf">
!tiles = memref<64x4x32xf32, "sbuf">
!flags = memref<64x32xui8, "sbuf">
!register = memref<1x1xi32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 32]]>
#third = #nki.access<f32, affine_map<() -> (0, 64)>, [[1, 64], [1, 32]]>
#rows = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [8, 4], [1, 8]]>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[32, 64], [1, 32]]>
#flags = #nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 64], [1, 32]]>
#register = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>

// Two instructions write a tile that is copied to a part of another: they write there.
// CHECK-LABEL: func.func @chosen(
// CHECK:         %[[X:.*]] = memref.alloc() {nki.name = "x"}
// CHECK:         %[[Q:.*]] = memref.alloc() : memref<64x4x32xf32, "sbuf">
// CHECK:         "nisa.tensor_copy"(%[[Q]], %[[X]]) {access = [#nki.access<f32, #[[THIRD:.*]], {{\[\[}}1, 64], [1, 32]]>
// CHECK-NEXT:    "nisa.tensor_copy_predicated"(%[[Q]], %[[X]], %{{.*}}) {access = [#nki.access<f32, #[[THIRD]],
// CHECK-NEXT:    return
// NEAR-LABEL: func.func @chosen(
// NEAR:         %[[Q:.*]] = memref.alloc() : memref<64x4x32xf32, "sbuf">
// NEAR:         "nisa.tensor_copy_predicated"(%[[T:.*]], %[[X:.*]], %{{.*}})
// NEAR-NEXT:    "nisa.tensor_copy"(%[[Q]], %[[T]])
// NEAR-NEXT:    return
func.func @chosen() {
  %x = memref.alloc() {nki.name = "x"} : !tile
  %p = memref.alloc() : !flags
  %t = memref.alloc() : !tile
  %q = memref.alloc() : !tiles
  "nisa.tensor_copy"(%t, %x) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !tile) -> ()
  "nisa.tensor_copy_predicated"(%t, %x, %p) {access = [#tile, #tile, #flags], engine = "unknown", mask = #all, reverse_pred = false} : (!tile, !tile, !flags) -> ()
  "nisa.tensor_copy"(%q, %t) {access = [#third, #tile], engine = "unknown", mask = #all} : (!tiles, !tile) -> ()
  return
}

// An instruction writes the elements of the copy in the same order, as rows.
// CHECK-LABEL: func.func @rows(
// CHECK:         %[[Q:.*]] = memref.alloc() : memref<64x4x32xf32, "sbuf">
// CHECK-NEXT:    "nisa.tensor_copy"(%[[Q]], %{{.*}}) {access = [#nki.access<f32, #{{.*}}, {{\[\[}}1, 64], [8, 4], [1, 8]]>
// CHECK-NEXT:    return
func.func @rows() {
  %x = memref.alloc() {nki.name = "x"} : !tile
  %t = memref.alloc() : !tile
  %q = memref.alloc() : !tiles
  "nisa.tensor_copy"(%t, %x) {access = [#rows, #rows], engine = "unknown", mask = #all} : (!tile, !tile) -> ()
  "nisa.tensor_copy"(%q, %t) {access = [#third, #tile], engine = "unknown", mask = #all} : (!tiles, !tile) -> ()
  return
}

// A number goes to the register that a loop counts with.
// CHECK-LABEL: func.func @register(
// CHECK:         %[[S:.*]] = memref.alloc() {nki.name = "s"}
// CHECK-NEXT:    "nisa.memset"(%[[S]]) {{.*}}value = 3.0
// CHECK-NEXT:    return
func.func @register() {
  %r = memref.alloc() : !register
  %s = memref.alloc() {nki.name = "s"} : !register
  "nisa.memset"(%r) {access = [#register], engine = "unknown", mask = #all, value = 3.0 : f64} : (!register) -> ()
  "nisa.tensor_copy"(%s, %r) {access = [#register, #register], engine = "unknown", mask = #all} : (!register, !register) -> ()
  return
}

// The tile is read again after the copy.
// CHECK-LABEL: func.func @read_again(
// CHECK:         "nisa.memset"(%[[T:.*]]) {{.*}}value = 3.0
// CHECK-NEXT:    "nisa.tensor_copy"(%[[A:.*]], %[[T]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[B:.*]], %[[T]])
// CHECK-NEXT:    return
func.func @read_again() {
  %t = memref.alloc() : !tile
  %a = memref.alloc() : !tile
  %b = memref.alloc() : !tile
  "nisa.memset"(%t) {access = [#tile], engine = "unknown", mask = #all, value = 3.0 : f64} : (!tile) -> ()
  "nisa.tensor_copy"(%a, %t) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !tile) -> ()
  "nisa.tensor_copy"(%b, %t) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !tile) -> ()
  return
}

// A copy that another instruction waits for stays, with its label, although it follows the load of its source.
// CHECK-LABEL: func.func @labeled(
// CHECK:         "nisa.dma_copy"(%[[T:.*]], %{{.*}}) {
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[T]]) {{.*}} nki.label = "5"
func.func @labeled(%x: memref<64x32xf32, "hbm">) {
  %t = memref.alloc() : !tile
  %q = memref.alloc() : !tile
  "nisa.dma_copy"(%t, %x) {access = [#tile, #hbm], engine = "unknown", mask = #all} : (!tile, memref<64x32xf32, "hbm">) -> ()
  "nisa.tensor_copy"(%q, %t) {access = [#tile, #tile], engine = "unknown", mask = #all, nki.label = "5"} : (!tile, !tile) -> ()
  "nisa.memset"(%t) {access = [#tile], engine = "unknown", mask = #all, value = 1.0 : f64, nki.after = ["5"]} : (!tile) -> ()
  return
}
