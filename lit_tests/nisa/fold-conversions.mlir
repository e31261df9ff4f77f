// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --fold-conversions %s | FileCheck %s

!tile = memref<8x16xf32, "sbuf">
!turned = memref<16x8xf32, "sbuf">
!small = memref<16x8xbf16, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 16]]>
#turned = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 16], [1, 8]]>
#small = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 16], [1, 8]]>

// CHECK-LABEL: func.func @converted(
// CHECK:         %[[X:.*]] = memref.alloc() {nki.name = "x"}
// CHECK:         %[[T:.*]] = memref.alloc() {nki.name = "t"}
// CHECK:         "nisa.dma_transpose"(%[[T]], %[[X]]) {access = [#nki.access<bf16,
// CHECK-NEXT:    return
func.func @converted() {
  %x = memref.alloc() {nki.name = "x"} : !tile
  %s = memref.alloc() : !turned
  %t = memref.alloc() {nki.name = "t"} : !small
  "nisa.dma_transpose"(%s, %x) {access = [#turned, #tile], engine = "unknown", mask = #all, permutation = [1, 0]} : (!turned, !tile) -> ()
  "nisa.tensor_copy"(%t, %s) {access = [#small, #turned], engine = "unknown", mask = #all} : (!small, !turned) -> ()
  return
}

// The copy stays if its destination is used before it, or if something else reads the transposed tile.
// CHECK-LABEL: func.func @stays(
// CHECK:         "nisa.dma_transpose"(%[[S:.*]], %[[X:.*]]) {
// CHECK-NEXT:    "nisa.memset"(%[[T:.*]]) {
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T]], %[[S]]) {
// CHECK-NEXT:    "nisa.dma_transpose"(%[[U:.*]], %[[X]]) {
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T]], %[[U]]) {
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[U]]) {
func.func @stays() {
  %x = memref.alloc() : !tile
  %s = memref.alloc() : !turned
  %t = memref.alloc() : !small
  %u = memref.alloc() : !turned
  %v = memref.alloc() : !turned
  "nisa.dma_transpose"(%s, %x) {access = [#turned, #tile], engine = "unknown", mask = #all, permutation = [1, 0]} : (!turned, !tile) -> ()
  "nisa.memset"(%t) {access = [#small], engine = "unknown", mask = #all, value = 1.000000e+00 : f64} : (!small) -> ()
  "nisa.tensor_copy"(%t, %s) {access = [#small, #turned], engine = "unknown", mask = #all} : (!small, !turned) -> ()
  "nisa.dma_transpose"(%u, %x) {access = [#turned, #tile], engine = "unknown", mask = #all, permutation = [1, 0]} : (!turned, !tile) -> ()
  "nisa.tensor_copy"(%t, %u) {access = [#small, #turned], engine = "unknown", mask = #all} : (!small, !turned) -> ()
  "nisa.tensor_copy"(%v, %u) {access = [#turned, #turned], engine = "unknown", mask = #all} : (!turned, !turned) -> ()
  return
}

// The transpose rounds, so the copy gets rounded elements.
// CHECK-LABEL: func.func @rounds(
// CHECK:         "nisa.dma_transpose"(%[[S:.*]], %{{.*}}) {access = [#nki.access<bf16,
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[S]]) {
func.func @rounds() {
  %x = memref.alloc() : !tile
  %s = memref.alloc() : !small
  %t = memref.alloc() : !turned
  "nisa.dma_transpose"(%s, %x) {access = [#small, #tile], engine = "unknown", mask = #all, permutation = [1, 0]} : (!small, !tile) -> ()
  "nisa.tensor_copy"(%t, %s) {access = [#turned, #small], engine = "unknown", mask = #all} : (!turned, !small) -> ()
  return
}

// A copy that another instruction waits for stays, with its label.
// CHECK-LABEL: func.func @labeled(
// CHECK:         "nisa.dma_transpose"(%[[S:.*]], %{{.*}}) {access = [#nki.access<f32,
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[S]]) {{.*}} nki.label = "5"
func.func @labeled() {
  %x = memref.alloc() : !tile
  %s = memref.alloc() : !turned
  %t = memref.alloc() : !small
  "nisa.dma_transpose"(%s, %x) {access = [#turned, #tile], engine = "unknown", mask = #all, permutation = [1, 0]} : (!turned, !tile) -> ()
  "nisa.tensor_copy"(%t, %s) {access = [#small, #turned], engine = "unknown", mask = #all, nki.label = "5"} : (!small, !turned) -> ()
  "nisa.memset"(%x) {access = [#tile], engine = "unknown", mask = #all, value = 1.000000e+00 : f64, nki.after = ["5"]} : (!tile) -> ()
  return
}
