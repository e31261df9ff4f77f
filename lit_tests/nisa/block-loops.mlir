// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --block-loops='least=0 steps=44' %s | FileCheck %s
// RUN: nki-opt --block-loops='least=1000' %s | FileCheck %s --check-prefix=KEEP

!x = memref<128x256xf32, "hbm">
!z = memref<128x384xf32, "hbm">
!y = memref<256x384xf32, "hbm">
!factor = memref<128x64xf32, "sbuf">
!total = memref<64x64xf32, "psum">
!row = memref<64x64xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#factor = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>
#x = #nki.access<f32, affine_map<()[s0] -> (s0 * 64)>, [[256, 128], [1, 64]]>
#z = #nki.access<f32, affine_map<()[s0] -> (s0 * 64)>, [[384, 128], [1, 64]]>
#y = #nki.access<f32, affine_map<()[s0, s1] -> (s0 * 24576 + s1 * 64)>, [[384, 64], [1, 64]]>
#first = #nki.access<f32, affine_map<() -> (0)>, [[384, 128], [1, 64]]>
#rows = #nki.access<f32, affine_map<()[s0] -> (s0 * 24576)>, [[384, 64], [1, 64]]>
#at = #nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>, [[1, 64], [1, 64]]>

// CHECK-DAG: #[[BLOCK_PART:.*]] = affine_map<()[s0, s1] -> (0, s1 * 64)>
// CHECK-DAG: #[[BLOCK_OF_X:.*]] = affine_map<()[s0, s1] -> (s0 * 128 + s1 * 64)>
// CHECK-DAG: #[[COLUMNS:.*]] = affine_map<()[s0] -> (s0 * 64)>
// CHECK-DAG: #[[PART:.*]] = affine_map<()[s0] -> (0, s0 * 64)>
// CHECK-DAG: #[[OF_Y:.*]] = affine_map<()[s0, s1, s2] -> (s0 * 64 + s1 * 49152 + s2 * 24576)>

// Two iterations of the outer loop are a block, for which x stays on chip. z is loaded twice instead of four times.
// CHECK-LABEL: func.func @product(
// CHECK-SAME:    %[[X:[^:]*]]: memref<128x256xf32, "hbm">
// CHECK-SAME:    %[[Z:[^:]*]]: memref<128x384xf32, "hbm">
// CHECK-SAME:    %[[Y:[^:]*]]: memref<256x384xf32, "hbm">
// CHECK:         scf.for %[[BLOCK:.*]] = %c0 to %c2 step %c1 {
// CHECK-NEXT:      %[[LEFT:.*]] = memref.alloc() {nki.name = "l"} : memref<128x2x64xf32, "sbuf">
// CHECK-NEXT:      scf.for %[[K:.*]] = %c0 to %c2 step %c1 {
// CHECK-NEXT:        "nisa.dma_copy"(%[[LEFT]], %[[X]], %[[BLOCK]], %[[K]]) {access = [#nki.access<f32, #[[BLOCK_PART]], {{.*}}>, #nki.access<f32, #[[BLOCK_OF_X]], {{.*}}]
// CHECK-NEXT:      }
// CHECK-NEXT:      scf.for %[[J:.*]] = %c0 to %c6 step %c1 {
// CHECK-NEXT:        %[[RIGHT:.*]] = memref.alloc() {nki.name = "r"} : memref<128x64xf32, "sbuf">
// CHECK-NEXT:        "nisa.dma_copy"(%[[RIGHT]], %[[Z]], %[[J]]) {access = [{{.*}}, #nki.access<f32, #[[COLUMNS]], {{.*}}]
// CHECK-NEXT:        scf.for %[[K:.*]] = %c0 to %c2 step %c1 {
// CHECK-NEXT:          %[[TOTAL:.*]] = memref.alloc() {nki.name = "p"} : memref<64x64xf32, "psum">
// CHECK-NEXT:          %[[ROW:.*]] = memref.alloc() {nki.name = "o"} : memref<64x64xf32, "sbuf">
// CHECK-NEXT:          "nisa.nc_matmul"(%[[TOTAL]], %[[LEFT]], %[[RIGHT]], %[[K]]) {access = [{{.*}}, #nki.access<f32, #[[PART]], {{.*}}>, #nki.access<f32, {{.*}}>]
// CHECK-NEXT:          "nisa.tensor_copy"(%[[ROW]], %[[TOTAL]])
// CHECK-NEXT:          "nisa.dma_copy"(%[[Y]], %[[ROW]], %[[J]], %[[BLOCK]], %[[K]]) {access = [#nki.access<f32, #[[OF_Y]], {{.*}}]
// CHECK-NEXT:        }
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    return
// KEEP-LABEL: func.func @product(
// KEEP:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
// KEEP-NEXT:      scf.for %{{.*}} = %c0 to %c6 step %c1 {
func.func @product(%x: !x {nki.name = "x"}, %z: !z {nki.name = "z"}, %y: !y {nki.name = "y", nki.shared = 0 : i64}) attributes {nki.results = [2]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  scf.for %i = %c0 to %c4 step %c1 {
    scf.for %j = %c0 to %c6 step %c1 {
      %l = memref.alloc() {nki.name = "l"} : !factor
      "nisa.dma_copy"(%l, %x, %i) {access = [#factor, #x], engine = "unknown", mask = #all} : (!factor, !x, index) -> ()
      %r = memref.alloc() {nki.name = "r"} : !factor
      "nisa.dma_copy"(%r, %z, %j) {access = [#factor, #z], engine = "unknown", mask = #all} : (!factor, !z, index) -> ()
      %p = memref.alloc() {nki.name = "p"} : !total
      "nisa.nc_matmul"(%p, %l, %r) {access = [#tile, #factor, #factor], accumulate = false, engine = "unknown", mask = #all} : (!total, !factor, !factor) -> ()
      %o = memref.alloc() {nki.name = "o"} : !row
      "nisa.tensor_copy"(%o, %p) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!row, !total) -> ()
      "nisa.dma_copy"(%y, %o, %i, %j) {access = [#y, #at], engine = "unknown", mask = #all} : (!y, !row, index, index) -> ()
    } {nki.loop = "parallel"}
  } {nki.loop = "parallel"}
  return
}

// An iteration has both columns, so that all of z stays on chip. The first iteration runs while it is loaded.
// CHECK-LABEL: func.func @columns(
// CHECK-SAME:    %[[X:[^:]*]]: memref<128x256xf32, "hbm">
// CHECK-SAME:    %[[Z:[^:]*]]: memref<128x384xf32, "hbm">
// CHECK:         "nisa.dma_copy"(%[[FIRST:[^,]*]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[RIGHT:[^,]*]], %[[Z]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[TOTAL:[^,]*]], %[[FIRST]], %[[RIGHT]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[ROW:[^,]*]], %[[TOTAL]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y:[^,]*]], %[[ROW]])
// CHECK-NEXT:    scf.for %[[I:.*]] = %c0 to %c3 step %c1 {
// CHECK:           "nisa.dma_copy"(%[[LEFT:[^,]*]], %[[X]], %[[I]]
// CHECK:           "nisa.nc_matmul"(%{{[^,]*}}, %[[LEFT]], %[[RIGHT]]
// KEEP-LABEL: func.func @columns(
// KEEP:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
func.func @columns(%x: !x {nki.name = "x"}, %z: !z {nki.name = "z"}, %y: !y {nki.name = "y", nki.shared = 0 : i64}) attributes {nki.results = [2]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %l = memref.alloc() {nki.name = "l"} : !factor
    "nisa.dma_copy"(%l, %x, %i) {access = [#factor, #x], engine = "unknown", mask = #all} : (!factor, !x, index) -> ()
    %r = memref.alloc() {nki.name = "r"} : !factor
    "nisa.dma_copy"(%r, %z) {access = [#factor, #first], engine = "unknown", mask = #all} : (!factor, !z) -> ()
    %p = memref.alloc() {nki.name = "p"} : !total
    "nisa.nc_matmul"(%p, %l, %r) {access = [#tile, #factor, #factor], accumulate = false, engine = "unknown", mask = #all} : (!total, !factor, !factor) -> ()
    %o = memref.alloc() {nki.name = "o"} : !row
    "nisa.tensor_copy"(%o, %p) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!row, !total) -> ()
    "nisa.dma_copy"(%y, %o, %i) {access = [#rows, #tile], engine = "unknown", mask = #all} : (!y, !row, index) -> ()
  } {nki.loop = "parallel"}
  return
}
