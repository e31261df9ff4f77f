// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --count-loops %s | FileCheck %s
// RUN: nki-opt --count-loops %s | nki-run - --on=interpreter --arg 4x16xf32=arange --arg 1x1xi32=ones | FileCheck --check-prefix=VALUES %s
// RUN: nki-run %s --on=isa --arg 4x16xf32=arange --arg 1x1xi32=ones | FileCheck --check-prefix=VALUES %s

!number = memref<1x1xi32, "sbuf">
#all = affine_set<() : (0 == 0)>
#x = #nki.access<f32, affine_map<() -> (0)>, [[16, 4], [1, 16]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 16]]>
#column = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 1]]>
#number = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>
#n = #nki.access<i32, affine_map<() -> (0)>, [[1, 1], [1, 1]]>

// A loop from 1 to 8 by 3 adds the columns 1, 4 and 7; its counter is an iota of the loop's variable. A loop that does
// not read its counter has none, and one that counts to a number in memory stays.
// CHECK:         #[[NUMBER:.*]] = affine_map<(d0, d1)[s0] -> (s0)>
// CHECK-LABEL: func.func @counted(
// CHECK:         "nisa.memset"({{.*}}value = 0.0
// CHECK-NEXT:    scf.for %[[K:.*]] = %c1 to %c8 step %c3
// CHECK-NEXT:      %[[I:.*]] = memref.alloc() {nki.name = "i"} : memref<1x1xi32, "sbuf">
// CHECK:           "nisa.iota"(%[[I]], %[[K]]) {{.*}}expression = #[[NUMBER]],
// CHECK-NEXT:      "nisa.dynamic_read"(%{{.*}}, %{{.*}}, %[[I]])
// CHECK-NEXT:      "nisa.tensor_tensor"({{.*}}op = "add"
// CHECK-NEXT:    }
// CHECK-NEXT:    scf.for %{{.*}} = %c0 to %c4 step %c1
// CHECK-NEXT:      "nisa.tensor_scalar"({{.*}}imm0 = 2.0
// CHECK-NEXT:    }
// CHECK-NEXT:    "nisa.memset"({{.*}}value = 0.0
// CHECK-NEXT:    scf.while : () -> ()
// CHECK:           "nisa.tensor_scalar"({{.*}}imm0 = 1.0

// ((1 + 4 + 7) * 2 ** 4) * 2, and 48 * 32 more for each further row
// VALUES: 384.]
// VALUES: 1920.]
func.func @counted(%x: memref<4x16xf32, "hbm"> {nki.name = "x"}, %n: memref<1x1xi32, "hbm"> {nki.name = "n"}, %out: memref<4x1xf32, "hbm"> {nki.name = "out", nki.shared = 0 : i64}) attributes {nki.results = [2]} {
  %c0 = arith.constant 0 : index
  %t = memref.alloc() {nki.name = "t"} : memref<4x16xf32, "sbuf">
  %sum = memref.alloc() {nki.name = "sum"} : memref<4x1xf32, "sbuf">
  %column = memref.alloc() {nki.name = "column"} : memref<4x1xf32, "sbuf">
  %bound = memref.alloc() {nki.name = "bound"} : !number
  "nisa.dma_copy"(%t, %x) {access = [#tile, #x], engine = "unknown", mask = #all} : (memref<4x16xf32, "sbuf">, memref<4x16xf32, "hbm">) -> ()
  "nisa.dma_copy"(%bound, %n) {access = [#number, #n], engine = "unknown", mask = #all} : (!number, memref<1x1xi32, "hbm">) -> ()
  "nisa.memset"(%sum) {access = [#column], engine = "unknown", mask = #all, value = 0.0 : f64} : (memref<4x1xf32, "sbuf">) -> ()
  %i = memref.alloc() {nki.name = "i"} : !number
  "nisa.memset"(%i) {access = [#number], engine = "unknown", mask = #all, value = 1.0 : f64} : (!number) -> ()
  scf.while : () -> () {
    %0 = memref.load %i[%c0, %c0] : !number
    %c8 = arith.constant 8 : i32
    %1 = arith.cmpi slt, %0, %c8 : i32
    scf.condition(%1)
  } do {
    "nisa.dynamic_read"(%column, %t, %i) {access = [#column, #tile, #number], engine = "unknown", extent = 16 : i64, mask = #all, mode = "error", scale = 1 : i64, start = 0 : i64, steps = [0, 0]} : (memref<4x1xf32, "sbuf">, memref<4x16xf32, "sbuf">, !number) -> ()
    "nisa.tensor_tensor"(%sum, %sum, %column) {access = [#column, #column, #column], engine = "unknown", mask = #all, op = "add"} : (memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">) -> ()
    "nisa.tensor_scalar"(%i, %i) {access = [#number, #number], engine = "unknown", imm0 = 3.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "add", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!number, !number) -> ()
    scf.yield
  }
  %j = memref.alloc() {nki.name = "j"} : !number
  "nisa.memset"(%j) {access = [#number], engine = "unknown", mask = #all, value = 0.0 : f64} : (!number) -> ()
  scf.while : () -> () {
    %0 = memref.load %j[%c0, %c0] : !number
    %c4 = arith.constant 4 : i32
    %1 = arith.cmpi slt, %0, %c4 : i32
    scf.condition(%1)
  } do {
    "nisa.tensor_scalar"(%sum, %sum) {access = [#column, #column], engine = "unknown", imm0 = 2.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "multiply", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">) -> ()
    "nisa.tensor_scalar"(%j, %j) {access = [#number, #number], engine = "unknown", imm0 = 1.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "add", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!number, !number) -> ()
    scf.yield
  }
  %k = memref.alloc() {nki.name = "k"} : !number
  "nisa.memset"(%k) {access = [#number], engine = "unknown", mask = #all, value = 0.0 : f64} : (!number) -> ()
  scf.while : () -> () {
    %0 = memref.load %k[%c0, %c0] : !number
    %last = memref.load %bound[%c0, %c0] : !number
    %1 = arith.cmpi slt, %0, %last : i32
    scf.condition(%1)
  } do {
    "nisa.tensor_scalar"(%sum, %sum) {access = [#column, #column], engine = "unknown", imm0 = 2.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "multiply", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (memref<4x1xf32, "sbuf">, memref<4x1xf32, "sbuf">) -> ()
    "nisa.tensor_scalar"(%k, %k) {access = [#number, #number], engine = "unknown", imm0 = 1.0 : f64, imm1 = 0.0 : f64, mask = #all, op0 = "add", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false} : (!number, !number) -> ()
    scf.yield
  }
  "nisa.dma_copy"(%out, %sum) {access = [#nki.access<f32, affine_map<() -> (0)>, [[1, 4], [1, 1]]>, #column], engine = "unknown", mask = #all} : (memref<4x1xf32, "hbm">, memref<4x1xf32, "sbuf">) -> ()
  return
}
