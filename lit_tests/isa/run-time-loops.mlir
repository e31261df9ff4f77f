// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --lower-to-isa %s | FileCheck %s
// RUN: nki-opt --lower-to-isa --emit=bin %s -o %t.nkibin && nki-translate --disassemble %t.nkibin | FileCheck %s
// RUN: nki-opt --lower-to-isa --emit=mlir %s | FileCheck --check-prefix=IR %s
// RUN: nki-opt --unroll-loops --split-blocks --schedule-instructions --allocate-on-chip %s | FileCheck --check-prefix=NISA %s
// RUN: nki-run %s --on=isa --arg 8x4xf32=ones --arg 1x1xi32=ones | FileCheck --check-prefix=VALUES %s

// Every engine loads the number, meets the others, and leaves the loop by itself.
// CHECK:      .stream dve
// CHECK:      dve 0004: TENSOR_LOAD dst=r0 src=int32@0x10[1][1]*1
// CHECK-NEXT: dve 0005: S[5] (Barrier)>=2 EVENT_SEMAPHORE
// CHECK-NEXT: dve 0006: EVENT_SEMAPHORE_RANGE_CLEAR first=0 last=5
// CHECK-NEXT: dve 0007: EVENT_SEMAPHORE S[6] (GoGpSimd)++@complete
// CHECK-NEXT: dve 0008: EVENT_SEMAPHORE S[7] (GoSync)++@complete
// CHECK-NEXT: dve 0009: COMPARE_BRANCH op=le lhs=r0 rhs=0 target=0016
// CHECK-NEXT: dve 0010: TENSOR_SCALAR op0=multiply imm0=2.0 dst=fp32@0x0[1][4] src=fp32@0x0[1][4] channels=8
// CHECK:      dve 0015: COMPARE_BRANCH op=eq lhs=0 rhs=0 target=0004
// CHECK-NEXT: .stream pool
// CHECK:      pool 0002: TENSOR_LOAD dst=r0 src=int32@0x10[1][1]*1
// CHECK:      pool 0005: COMPARE_BRANCH op=le lhs=r0 rhs=0 target=0010

// A print is an instruction: what it reads is written again after it.
// CHECK:      pool 0006: S[2] (Sync)>=1 TENSOR_SCALAR op0=subtract imm0=1.0
// CHECK:      sp 0005: TENSOR_LOAD dst=r0 src=int32@0x10[1][1]*1
// CHECK:      sp 0009: DEVICE_PRINT prefix="still to do" src=int32@0x10[1][1] channels=1 S[2] (Sync)++@complete

// IR: "isa.instruction"() {fields = {dst = "r0", src = ["sbuf", #nki.access<i32, {{.*}}, {{\[}}[1, 1], [1, 1]]>]}, mnemonic = "TENSOR_LOAD"

// NISA:      scf.while
// NISA-NEXT:   %[[NUMBER:.*]] = memref.load
// NISA-NEXT:   %[[INDEX:.*]] = arith.index_cast %[[NUMBER]] : i32 to index
// NISA-NEXT:   %[[MORE:.*]] = arith.cmpi sgt, %[[INDEX]], %{{.*}} : index
// NISA-NEXT:   scf.condition(%[[MORE]])

// VALUES: still to do
// VALUES-NEXT: {{\[\[1\]\]}}

module attributes {nki.target = "trn2"} {
func.func @doubled(%x: memref<8x4xf32, "hbm"> {nki.name = "x"}, %n: memref<1x1xi32, "hbm"> {nki.name = "n"},
                   %y: memref<8x4xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64}) attributes {nki.results = [2]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %t = memref.alloc() : memref<8x4xf32, "sbuf">
  %left = memref.alloc() : memref<1x1xi32, "sbuf">
  "nisa.dma_copy"(%t, %x) {engine = "unknown", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 4]]>,
              #nki.access<f32, affine_map<() -> (0)>, [[4, 8], [1, 4]]>]}
    : (memref<8x4xf32, "sbuf">, memref<8x4xf32, "hbm">) -> ()
  "nisa.dma_copy"(%left, %n) {engine = "unknown", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>,
              #nki.access<i32, affine_map<() -> (0)>, [[1, 1], [1, 1]]>]}
    : (memref<1x1xi32, "sbuf">, memref<1x1xi32, "hbm">) -> ()
  scf.while : () -> () {
    %number = memref.load %left[%c0, %c0] : memref<1x1xi32, "sbuf">
    %more = arith.cmpi sgt, %number, %zero : i32
    scf.condition(%more)
  } do {
    "nki.device_print"(%left) {mask = affine_set<() : (0 == 0)>, prefix = "still to do",
      access = [#nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>]} : (memref<1x1xi32, "sbuf">) -> ()
    "nisa.tensor_scalar"(%t, %t) {engine = "vector", mask = affine_set<() : (0 == 0)>, op0 = "multiply", imm0 = 2.0 : f64,
      reverse0 = false, op1 = "bypass", imm1 = 0.0 : f64, reverse1 = false, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>,
      access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 4]]>,
                #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 4]]>]}
      : (memref<8x4xf32, "sbuf">, memref<8x4xf32, "sbuf">) -> ()
    "nisa.tensor_scalar"(%left, %left) {engine = "gpsimd", mask = affine_set<() : (0 == 0)>, op0 = "subtract",
      imm0 = 1.0 : f64, reverse0 = false, op1 = "bypass", imm1 = 0.0 : f64, reverse1 = false,
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>,
      access = [#nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>,
                #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>]}
      : (memref<1x1xi32, "sbuf">, memref<1x1xi32, "sbuf">) -> ()
    scf.yield
  }
  "nisa.dma_copy"(%y, %t) {engine = "unknown", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0)>, [[4, 8], [1, 4]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 4]]>]}
    : (memref<8x4xf32, "hbm">, memref<8x4xf32, "sbuf">) -> ()
  return
}
}
