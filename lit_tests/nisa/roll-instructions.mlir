// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --roll-instructions='least=4 lines=true' %s | FileCheck %s

!rows = memref<512x16xf32, "hbm">
!tile = memref<128x16xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>
#row0 = #nki.access<f32, affine_map<() -> (0)>, [[16, 128], [1, 16]]>
#row1 = #nki.access<f32, affine_map<() -> (2048)>, [[16, 128], [1, 16]]>
#row2 = #nki.access<f32, affine_map<() -> (4096)>, [[16, 128], [1, 16]]>
#row3 = #nki.access<f32, affine_map<() -> (6144)>, [[16, 128], [1, 16]]>

// CHECK: #[[ROWS:.*]] = affine_map<()[s0] -> (s0 * 2048)>

// Each iteration has a tile of its rows. All use the tile of factors, which is loaded before the loop.
// CHECK-LABEL: func.func @scaled(
// CHECK-SAME:    %[[X:[^:]*]]: memref<512x16xf32, "hbm">
// CHECK-SAME:    %[[Y:[^:]*]]: memref<512x16xf32, "hbm">
// CHECK:         %[[FACTORS:.*]] = memref.alloc() {nki.name = "factors"}
// CHECK-NEXT:    "nisa.memset"(%[[FACTORS]])
// CHECK-NEXT:    scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK-NEXT:      %[[ROW:.*]] = memref.alloc() {nki.name = "a"}
// CHECK-NEXT:      "nisa.dma_copy"(%[[ROW]], %[[X]], %[[I]]) {access = [{{.*}}, #nki.access<f32, #[[ROWS]], {{.*}}]
// CHECK-NEXT:      "nisa.tensor_tensor"(%[[ROW]], %[[ROW]], %[[FACTORS]])
// CHECK-NEXT:      "nisa.dma_copy"(%[[Y]], %[[ROW]], %[[I]]) {access = [#nki.access<f32, #[[ROWS]], {{.*}}]
// CHECK-NEXT:    }
// CHECK-NEXT:    return
func.func @scaled(%x: !rows, %y: !rows) attributes {arg_attrs = [{nki.name = "x"}, {nki.name = "y", nki.shared = 0 : i64}], nki.results = [1]} {
  %factors = memref.alloc() {nki.name = "factors"} : !tile
  "nisa.memset"(%factors) {access = [#tile], engine = "vector", mask = #all, value = 2.0 : f64} : (!tile) -> ()
  %a = memref.alloc() {nki.name = "a"} : !tile
  "nisa.dma_copy"(%a, %x) {access = [#tile, #row0], engine = "unknown", mask = #all} : (!tile, !rows) -> ()
  "nisa.tensor_tensor"(%a, %a, %factors) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "multiply"} : (!tile, !tile, !tile) -> ()
  "nisa.dma_copy"(%y, %a) {access = [#row0, #tile], engine = "unknown", mask = #all} : (!rows, !tile) -> ()
  %b = memref.alloc() {nki.name = "b"} : !tile
  "nisa.dma_copy"(%b, %x) {access = [#tile, #row1], engine = "unknown", mask = #all} : (!tile, !rows) -> ()
  "nisa.tensor_tensor"(%b, %b, %factors) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "multiply"} : (!tile, !tile, !tile) -> ()
  "nisa.dma_copy"(%y, %b) {access = [#row1, #tile], engine = "unknown", mask = #all} : (!rows, !tile) -> ()
  %c = memref.alloc() {nki.name = "c"} : !tile
  "nisa.dma_copy"(%c, %x) {access = [#tile, #row2], engine = "unknown", mask = #all} : (!tile, !rows) -> ()
  "nisa.tensor_tensor"(%c, %c, %factors) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "multiply"} : (!tile, !tile, !tile) -> ()
  "nisa.dma_copy"(%y, %c) {access = [#row2, #tile], engine = "unknown", mask = #all} : (!rows, !tile) -> ()
  %d = memref.alloc() {nki.name = "d"} : !tile
  "nisa.dma_copy"(%d, %x) {access = [#tile, #row3], engine = "unknown", mask = #all} : (!tile, !rows) -> ()
  "nisa.tensor_tensor"(%d, %d, %factors) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "multiply"} : (!tile, !tile, !tile) -> ()
  "nisa.dma_copy"(%y, %d) {access = [#row3, #tile], engine = "unknown", mask = #all} : (!rows, !tile) -> ()
  return
}
