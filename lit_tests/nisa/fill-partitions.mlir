// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --fill-partitions='least=2' %s | FileCheck %s
// RUN: nki-opt --fill-partitions='least=3' %s | FileCheck %s --check-prefix=KEEP

!rows = memref<200x512xf32, "hbm">
!row = memref<1x512xf32, "hbm">
!tile = memref<50x512xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 50], [1, 512]]>
#rows = #nki.access<f32, affine_map<()[s0] -> (s0 * 25600)>, [[512, 50], [1, 512]]>
#row = #nki.access<f32, affine_map<() -> (0)>, [[0, 50], [1, 512]]>
#first = #nki.access<f32, affine_map<() -> (0)>, [[512, 50], [1, 512]]>

// Four iterations of 50 rows become one of 128 rows and one of 72. The factors get the other partitions.
// CHECK-DAG:     #[[ROWS:[a-z0-9_]+]] = affine_map<()[s0] -> (s0 * 65536)>
// CHECK-LABEL: func.func @scaled(
// CHECK-SAME:    %[[X:[^:]*]]: memref<200x512xf32, "hbm"> {nki.name = "x"}, %[[F:[^:]*]]: memref<1x512xf32, "hbm"> {nki.name = "f"}, %[[Y:[^:]*]]: memref
// CHECK:         %[[W:[a-z0-9_]+]] = memref.alloc() {nki.name = "w"} : memref<128x512xf32, "sbuf">
// CHECK:         "nisa.dma_copy"(%[[W]], %[[F]]) {access = [{{.*}}, {{\[\[}}1, 128], [1, 512]]>, {{.*}}, {{\[\[}}0, 128], [1, 512]]>]
// CHECK:         scf.for %[[I:[a-z0-9_]+]] = %c0 to %c1 step %c1 {
// CHECK-NEXT:      %[[T:[a-z0-9_]+]] = memref.alloc() {nki.name = "t"} : memref<128x512xf32, "sbuf">
// CHECK-NEXT:      "nisa.dma_copy"(%[[T]], %[[X]], %[[I]]) {access = [{{.*}}, {{\[\[}}1, 128], [1, 512]]>, #nki.access<f32, #[[ROWS]], {{\[\[}}512, 128], [1, 512]]>]
// CHECK-NEXT:      "nisa.tensor_tensor"(%[[T]], %[[T]], %[[W]])
// CHECK-NEXT:      "nisa.dma_copy"(%[[Y]], %[[T]], %[[I]]) {access = [#nki.access<f32, #[[ROWS]], {{\[\[}}512, 128], [1, 512]]>,
// CHECK-NEXT:    }
// CHECK:         scf.for %[[J:[a-z0-9_]+]] = %c1{{.*}} to %c2{{.*}} step %c1{{.*}} {
// CHECK-NEXT:      %[[U:[a-z0-9_]+]] = memref.alloc() {nki.name = "t"} : memref<72x512xf32, "sbuf">
// CHECK-NEXT:      "nisa.dma_copy"(%[[U]], %[[X]], %[[J]]) {access = [{{.*}}, {{\[\[}}1, 72], [1, 512]]>, #nki.access<f32, #[[ROWS]], {{\[\[}}512, 72], [1, 512]]>]
// CHECK-NEXT:      "nisa.tensor_tensor"(%[[U]], %[[U]], %[[W]]) {access = [{{.*}}, {{\[\[}}1, 72], [1, 512]]>]
// KEEP-LABEL: func.func @scaled(
// KEEP:         memref.alloc() {nki.name = "w"} : memref<50x512xf32, "sbuf">
// KEEP:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
func.func @scaled(%x: !rows, %f: !row, %y: !rows) attributes {arg_attrs = [{nki.name = "x"}, {nki.name = "f"}, {nki.name = "y", nki.shared = 0 : i64}], nki.results = [2]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %w = memref.alloc() {nki.name = "w"} : !tile
  "nisa.dma_copy"(%w, %f) {access = [#tile, #row], engine = "unknown", mask = #all} : (!tile, !row) -> ()
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() {nki.name = "t"} : !tile
    "nisa.dma_copy"(%t, %x, %i) {access = [#tile, #rows], engine = "unknown", mask = #all} : (!tile, !rows, index) -> ()
    "nisa.tensor_tensor"(%t, %t, %w) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "multiply"} : (!tile, !tile, !tile) -> ()
    "nisa.dma_copy"(%y, %t, %i) {access = [#rows, #tile], engine = "unknown", mask = #all} : (!rows, !tile, index) -> ()
  }
  return
}

// Each row is added to the row of its partition: rows may not move.
// CHECK-LABEL: func.func @added(
// CHECK:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
func.func @added(%x: !rows, %y: !rows) attributes {arg_attrs = [{nki.name = "x"}, {nki.name = "y", nki.shared = 0 : i64}], nki.results = [1]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %w = memref.alloc() {nki.name = "w"} : !tile
  "nisa.dma_copy"(%w, %x) {access = [#tile, #first], engine = "unknown", mask = #all} : (!tile, !rows) -> ()
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() {nki.name = "t"} : !tile
    "nisa.dma_copy"(%t, %x, %i) {access = [#tile, #rows], engine = "unknown", mask = #all} : (!tile, !rows, index) -> ()
    "nisa.tensor_tensor"(%t, %t, %w) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
    "nisa.dma_copy"(%y, %t, %i) {access = [#rows, #tile], engine = "unknown", mask = #all} : (!rows, !tile, index) -> ()
  }
  return
}
