// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --fold-addresses %s | FileCheck %s

!table = memref<16x6xf32, "hbm">
!tile = memref<8x6xf32, "sbuf">
!piece = memref<8x2xf32, "sbuf">
!number = memref<1x1xi32, "sbuf">
!index = memref<8x1xi32, "sbuf">
#all = affine_set<() : (0 == 0)>
#number = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>
#index = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 8], [1, 1]]>
#flat = #nki.access<f32, affine_map<() -> (0)>, [[96, 1], [1, 96]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 6]]>
#piece = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 2]]>

// CHECK-DAG: #[[FIRST:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (3)>
// CHECK-DAG: #[[BEHIND:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d1 + 3)>
// CHECK-DAG: #[[COUNTED:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0 + d1)>

// Two columns behind a number: the copy adds 3, and accepts the numbers from -3 to 2.
// CHECK-LABEL: func.func @added(
// CHECK:         %[[I:.*]] = memref.alloc() {nki.name = "i"}
// CHECK-NOT:     nisa.tensor_scalar
// CHECK:         "nisa.tensor_copy_dynamic_src"(%{{.*}}, %{{.*}}, %[[I]]) {{.*}}extents = [6], first = #[[FIRST]],{{.*}}position = #[[BEHIND]],{{.*}}scales = [1]
func.func @added() {
  %i = memref.alloc() {nki.name = "i"} : !number
  %j = memref.alloc() : !number
  %s = memref.alloc() : !tile
  %t = memref.alloc() : !piece
  "nisa.tensor_scalar"(%j, %i) {access = [#number, #number], engine = "unknown", imm0 = 3.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "add", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!number, !number) -> ()
  "nisa.dynamic_read"(%t, %s, %j) {access = [#piece, #tile, #number], engine = "unknown", extent = 6 : i64, mask = #all, mode = "error", scale = 1 : i64, start = 0 : i64, steps = [0, 1]} : (!piece, !tile, !number) -> ()
  return
}

// Row p begins p elements behind the start of the row of its index.
// CHECK-LABEL: func.func @counted(
// CHECK:         %[[I:.*]] = memref.alloc() {nki.name = "i"}
// CHECK-NOT:     nisa.iota
// CHECK-NOT:     nisa.scalar_tensor_tensor
// CHECK:         "nisa.dma_dynamic_read"(%{{.*}}, %{{.*}}, %[[I]]) {{.*}}extents = [16]{{.*}}position = #[[COUNTED]],{{.*}}scales = [10]
func.func @counted(%x: memref<1x160xf32, "hbm">) {
  %i = memref.alloc() {nki.name = "i"} : !index
  %r = memref.alloc() : !index
  %j = memref.alloc() : !index
  %t = memref.alloc() : !piece
  "nisa.iota"(%r) {access = [#index], engine = "unknown", expression = affine_map<(d0, d1) -> (d0)>, mask = #all} : (!index) -> ()
  "nisa.scalar_tensor_tensor"(%j, %i, %r) {access = [#index, #index, #index], engine = "vector", imm0 = 10.0 : f64, mask = #all, op0 = "multiply", op1 = "add", operandSegmentSizes = array<i32: 1, 1, 0, 1, 0>, reverse0 = false, reverse1 = false} : (!index, !index, !index) -> ()
  "nisa.dynamic_read"(%t, %x, %j) {access = [#piece, #nki.access<f32, affine_map<() -> (0)>, [[160, 1], [1, 160]]>, #index], engine = "unknown", extent = 158 : i64, mask = #all, mode = "error", scale = 1 : i64, start = 0 : i64, steps = [0, 1]} : (!piece, memref<1x160xf32, "hbm">, !index) -> ()
  return
}

// A sum that something else reads stays. The copy of the pattern becomes the copy at a run-time index.
// CHECK-LABEL: func.func @stays(
// CHECK:         "nisa.tensor_scalar"(%[[J:.*]], %{{.*}})
// CHECK-NEXT:    "nisa.tensor_copy_dynamic_src"(%{{.*}}, %{{.*}}, %[[J]])
func.func @stays(%x: memref<1x1xi32, "hbm">) {
  %i = memref.alloc() : !number
  %j = memref.alloc() : !number
  %s = memref.alloc() : !tile
  %t = memref.alloc() : !piece
  "nisa.tensor_scalar"(%j, %i) {access = [#number, #number], engine = "unknown", imm0 = 3.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "add", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!number, !number) -> ()
  "nisa.dynamic_read"(%t, %s, %j) {access = [#piece, #tile, #number], engine = "unknown", extent = 6 : i64, mask = #all, mode = "error", scale = 1 : i64, start = 0 : i64, steps = [0, 1]} : (!piece, !tile, !number) -> ()
  "nisa.dma_copy"(%x, %j) {access = [#nki.access<i32, affine_map<() -> (0)>, [[1, 1], [1, 1]]>, #number], engine = "unknown", mask = #all} : (memref<1x1xi32, "hbm">, !number) -> ()
  return
}
