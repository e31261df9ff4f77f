// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --interleave-rows='least=2' %s | FileCheck %s
// RUN: nki-opt --interleave-rows='least=3' %s | FileCheck %s --check-prefix=KEEP

!rows = memref<512x512xf32, "hbm">
!tile = memref<128x512xf32, "sbuf">
!column = memref<128x1xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#column = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>
#rows = #nki.access<f32, affine_map<()[s0] -> (s0 * 65536)>, [[512, 128], [1, 512]]>
#factors = #nki.access<f32, affine_map<() -> (0)>, [[1, 128], [1, 1]]>
#spread = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [0, 512]]>

// Two of the four iterations become one. A partition takes two neighboring rows: runs of 4 KiB.
// CHECK-LABEL: func.func @scaled(
// CHECK-SAME:    %[[X:[^:]*]]: memref<512x512xf32, "hbm"> {nki.name = "x"}, %[[Y:[^:]*]]: memref
// CHECK:         "nisa.memset"(%[[TWO:[a-z0-9_]+]])
// CHECK-NEXT:    scf.for %[[I:[a-z0-9_]+]] = %c0 to %c4 step %c2 {
// CHECK-NEXT:      %[[T:[a-z0-9_]+]] = memref.alloc() {nki.name = "t"} : memref<128x2x512xf32, "sbuf">
// CHECK-NEXT:      %[[U:[a-z0-9_]+]] = memref.alloc() {nki.name = "u"} : memref<128x1xf32, "sbuf">
// CHECK-NEXT:      %[[V:[a-z0-9_]+]] = memref.alloc() {nki.name = "u"} : memref<128x1xf32, "sbuf">
// CHECK-NEXT:      "nisa.dma_copy"(%[[T]], %[[X]], %[[I]]) {access = [{{.*}}, #nki.access<f32, #[[ROWS:[a-z0-9_]+]], {{\[\[}}1024, 128], [1, 1024]]>]
// CHECK-NEXT:      "nisa.tensor_reduce"(%[[U]], %[[T]]) {access = [#nki.access<f32, #[[FIRST:[a-z0-9_]+]], {{\[\[}}1, 128], [1, 1]]>, #nki.access<f32, #[[FIRST]], {{\[\[}}1, 128], [1, 512]]>]
// CHECK-NEXT:      "nisa.tensor_tensor"(%[[U]], %[[U]], %[[TWO]])
// CHECK-NEXT:      "nisa.tensor_scalar"(%[[T]], %[[T]], %[[U]]) {access = [#nki.access<f32, #[[FIRST]],
// CHECK-NEXT:      "nisa.tensor_reduce"(%[[V]], %[[T]]) {access = [#nki.access<f32, #[[FIRST]], {{\[\[}}1, 128], [1, 1]]>, #nki.access<f32, #[[SECOND:[a-z0-9_]+]], {{\[\[}}1, 128], [1, 512]]>]
// CHECK-NEXT:      "nisa.tensor_tensor"(%[[V]], %[[V]], %[[TWO]])
// CHECK-NEXT:      "nisa.tensor_scalar"(%[[T]], %[[T]], %[[V]]) {access = [#nki.access<f32, #[[SECOND]],
// CHECK-NEXT:      "nisa.dma_copy"(%[[Y]], %[[T]], %[[I]]) {access = [#nki.access<f32, #[[ROWS]], {{\[\[}}1024, 128], [1, 1024]]>,
// CHECK-NEXT:    }
// CHECK-NEXT:    return
// KEEP-LABEL: func.func @scaled(
// KEEP:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
func.func @scaled(%x: !rows, %y: !rows) attributes {arg_attrs = [{nki.name = "x"}, {nki.name = "y", nki.shared = 0 : i64}], nki.results = [1]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %two = memref.alloc() {nki.name = "two"} : !column
  "nisa.memset"(%two) {access = [#column], engine = "vector", mask = #all, value = 2.0 : f64} : (!column) -> ()
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() {nki.name = "t"} : !tile
    %u = memref.alloc() {nki.name = "u"} : !column
    "nisa.dma_copy"(%t, %x, %i) {access = [#tile, #rows], engine = "unknown", mask = #all} : (!tile, !rows, index) -> ()
    "nisa.tensor_reduce"(%u, %t) {access = [#column, #tile], axes = [1], engine = "vector", mask = #all, negate = false, op = "maximum"} : (!column, !tile) -> ()
    "nisa.tensor_tensor"(%u, %u, %two) {access = [#column, #column, #column], engine = "vector", mask = #all, op = "multiply"} : (!column, !column, !column) -> ()
    "nisa.tensor_scalar"(%t, %t, %u) {access = [#tile, #tile, #spread], engine = "vector", imm0 = 0.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "subtract", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, reverse0 = false, reverse1 = false} : (!tile, !tile, !column) -> ()
    "nisa.dma_copy"(%y, %t, %i) {access = [#rows, #tile], engine = "unknown", mask = #all} : (!rows, !tile, index) -> ()
  }
  return
}

// The factors of the partitions differ, so that rows cannot change places.
// CHECK-LABEL: func.func @by_partition(
// CHECK:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
func.func @by_partition(%x: !rows, %f: memref<128x1xf32, "hbm">, %y: !rows) attributes {arg_attrs = [{nki.name = "x"}, {nki.name = "f"}, {nki.name = "y", nki.shared = 0 : i64}], nki.results = [2]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %factors = memref.alloc() {nki.name = "factors"} : !column
  "nisa.dma_copy"(%factors, %f) {access = [#column, #factors], engine = "unknown", mask = #all} : (!column, memref<128x1xf32, "hbm">) -> ()
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() {nki.name = "t"} : !tile
    "nisa.dma_copy"(%t, %x, %i) {access = [#tile, #rows], engine = "unknown", mask = #all} : (!tile, !rows, index) -> ()
    "nisa.tensor_scalar"(%t, %t, %factors) {access = [#tile, #tile, #spread], engine = "vector", imm0 = 0.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "subtract", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, reverse0 = false, reverse1 = false} : (!tile, !tile, !column) -> ()
    "nisa.dma_copy"(%y, %t, %i) {access = [#rows, #tile], engine = "unknown", mask = #all} : (!rows, !tile, index) -> ()
  }
  return
}

// The tile changes after it is stored, so that the stores cannot move after the other iteration.
// CHECK-LABEL: func.func @changed_after(
// CHECK:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
func.func @changed_after(%x: !rows, %y: !rows, %z: !rows) attributes {arg_attrs = [{nki.name = "x"}, {nki.name = "y", nki.shared = 0 : i64}, {nki.name = "z", nki.shared = 1 : i64}], nki.results = [1, 2]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() {nki.name = "t"} : !tile
    "nisa.dma_copy"(%t, %x, %i) {access = [#tile, #rows], engine = "unknown", mask = #all} : (!tile, !rows, index) -> ()
    "nisa.dma_copy"(%y, %t, %i) {access = [#rows, #tile], engine = "unknown", mask = #all} : (!rows, !tile, index) -> ()
    "nisa.tensor_tensor"(%t, %t, %t) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
    "nisa.dma_copy"(%z, %t, %i) {access = [#rows, #tile], engine = "unknown", mask = #all} : (!rows, !tile, index) -> ()
  }
  return
}

// Of five iterations, two pairs become one each; the fifth stays after them.
// CHECK-LABEL: func.func @five(
// CHECK-SAME:    %[[X:[^:]*]]: memref<640x512xf32, "hbm"> {nki.name = "x"}, %[[Y:[^:]*]]: memref
// CHECK:         scf.for %[[I:[a-z0-9_]+]] = %c0 to %c4 step %c2 {
// CHECK-NEXT:      %[[T:[a-z0-9_]+]] = memref.alloc() {nki.name = "t"} : memref<128x2x512xf32, "sbuf">
// CHECK-NEXT:      "nisa.dma_copy"(%[[T]], %[[X]], %[[I]])
// CHECK-NEXT:      "nisa.dma_copy"(%[[Y]], %[[T]], %[[I]])
// CHECK-NEXT:    }
// CHECK-NEXT:    scf.for %[[J:[a-z0-9_]+]] = %c4 to %c5 step %c1 {
// CHECK-NEXT:      %[[U:[a-z0-9_]+]] = memref.alloc() {nki.name = "t"} : memref<128x1x512xf32, "sbuf">
// CHECK-NEXT:      "nisa.dma_copy"(%[[U]], %[[X]], %[[J]])
// CHECK-NEXT:      "nisa.dma_copy"(%[[Y]], %[[U]], %[[J]])
// CHECK-NEXT:    }
// KEEP-LABEL: func.func @five(
// KEEP:         scf.for %{{.*}} = %c0 to %c5 step %c1 {
func.func @five(%x: memref<640x512xf32, "hbm">, %y: memref<640x512xf32, "hbm">) attributes {arg_attrs = [{nki.name = "x"}, {nki.name = "y", nki.shared = 0 : i64}], nki.results = [1]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  scf.for %i = %c0 to %c5 step %c1 {
    %t = memref.alloc() {nki.name = "t"} : !tile
    "nisa.dma_copy"(%t, %x, %i) {access = [#tile, #rows], engine = "unknown", mask = #all} : (!tile, memref<640x512xf32, "hbm">, index) -> ()
    "nisa.dma_copy"(%y, %t, %i) {access = [#rows, #tile], engine = "unknown", mask = #all} : (memref<640x512xf32, "hbm">, !tile, index) -> ()
  }
  return
}
