// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --lower-to-isa %s | FileCheck %s
// RUN: nki-opt --lower-to-isa --emit=bin %s -o %t.nkibin && nki-translate --disassemble %t.nkibin | FileCheck %s
// RUN: nki-opt --lower-to-isa --emit=mlir %s | FileCheck --check-prefix=IR %s
// RUN: nki-opt --lower-to-isa --emit=mlir --print=pretty %s | FileCheck --check-prefix=PRETTY %s
// RUN: nki-opt --lower-to-isa --emit=mlir --print=pretty %s | nki-opt --lower-to-isa - | FileCheck %s
// RUN: nki-opt --unroll-loops --split-blocks --schedule-instructions --allocate-on-chip %s | FileCheck --check-prefix=NISA %s
// RUN: nki-run %s --on=isa --arg 8x4xf32=ones --arg 1x1xi32=ones | FileCheck --check-prefix=VALUES %s

!x = memref<8x4xf32, "hbm">
!n = memref<1x1xi32, "hbm">
!tile = memref<8x4xf32, "sbuf">
!number = memref<1x1xi32, "sbuf">
#all = affine_set<() : (0 == 0)>
#x = #nki.access<f32, affine_map<() -> (0)>, [[4, 8], [1, 4]]>
#n = #nki.access<i32, affine_map<() -> (0)>, [[1, 1], [1, 1]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 8], [1, 4]]>
#number = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 1], [1, 1]]>

// Every engine loads the number, meets the others, and leaves the loop by itself.
// CHECK:      .stream dve
// CHECK:      dve 0004: TENSOR_LOAD dst=r0 src=int32@0x10[1][1]*1
// CHECK-NEXT: dve 0005: S[6] (Barrier)>=2 EVENT_SEMAPHORE
// CHECK-NEXT: dve 0006: EVENT_SEMAPHORE_RANGE_CLEAR first=0 last=6
// CHECK-NEXT: dve 0007: EVENT_SEMAPHORE S[7] (GoGpSimd)++@complete
// CHECK-NEXT: dve 0008: EVENT_SEMAPHORE S[8] (GoSync)++@complete
// CHECK-NEXT: dve 0009: COMPARE_BRANCH op=le lhs=r0 rhs=0 target=0016
// CHECK-NEXT: dve 0010: TENSOR_SCALAR op0=multiply imm0=2.0 dst=fp32@0x0[1][4] src=fp32@0x0[1][4] channels=8
// CHECK:      dve 0015: COMPARE_BRANCH op=eq lhs=0 rhs=0 target=0004
// CHECK-NEXT: .stream pool
// CHECK:      pool 0002: TENSOR_LOAD dst=r0 src=int32@0x10[1][1]*1
// CHECK-NEXT: pool 0003: EVENT_SEMAPHORE S[6] (Barrier)++@complete
// CHECK-NEXT: pool 0004: S[7] (GoGpSimd)>=1 EVENT_SEMAPHORE S[7] (GoGpSimd)--@complete
// CHECK-NEXT: pool 0005: COMPARE_BRANCH op=le lhs=r0 rhs=0 target=0010

// A print is an instruction: what it reads is written again after it.
// CHECK-NEXT: pool 0006: S[2] (Sync)>=1 TENSOR_SCALAR op0=subtract imm0=1.0 dst=int32@0x10[1][1] src=int32@0x10[1][1] channels=1
// CHECK:      pool 0009: COMPARE_BRANCH op=eq lhs=0 rhs=0 target=0002
// CHECK-NEXT: .stream sp
// CHECK:      sp 0006: TENSOR_LOAD dst=r0 src=int32@0x10[1][1]*1
// CHECK:      sp 0009: COMPARE_BRANCH op=le lhs=r0 rhs=0 target=0014
// CHECK-NEXT: sp 0010: DEVICE_PRINT prefix="still to do" src=int32@0x10[1][1] channels=1 S[2] (Sync)++@complete
// CHECK:      sp 0013: COMPARE_BRANCH op=eq lhs=0 rhs=0 target=0006
// CHECK-NEXT: sp 0014: DMA queue=2 dst=fp32@y[1,4][4,8] src=fp32@0x0[1][4] channels=8

// IR:       #[[NUMBER:map[0-9]*]] = affine_map<() -> (0, 4)>
// IR:       "isa.instruction"() {fields = {dst = "r0", src = ["sbuf", #nki.access<i32, #[[NUMBER]], {{\[\[}}1, 1], [1, 1]]>]},
// IR-SAME:    mnemonic = "TENSOR_LOAD"
// IR:       "isa.branch"()[^bb3, ^bb2] {op = "le", sides = ["r0", 0], update = [], waits = []}
// IR:       "isa.branch"()[^bb1, ^bb3] {op = "eq", sides = [0, 0], update = [], waits = []}

// PRETTY:      isa.program doubled {target = trn2, sbuf_bytes = 20, psum_bytes = 0} {
// PRETTY-NEXT:   isa.variable x {kind = input, index = 0, type = !hbm_8x4xf32}
// PRETTY:        isa.semaphore Vector
// PRETTY:        isa.queue qSyncIO0 {engine = sp, semaphore = qSyncIO0}
// PRETTY:        isa.stream dve {
// PRETTY:        ^bb1:
// PRETTY-NEXT:     isa.instruction TENSOR_LOAD %r0 = sbuf[0:1, 4:5] as i32
// PRETTY-NEXT:     isa.instruction EVENT_SEMAPHORE wait Barrier >= 2
// PRETTY-NEXT:     isa.instruction EVENT_SEMAPHORE_RANGE_CLEAR {first = 0, last = 6}
// PRETTY-NEXT:     isa.instruction EVENT_SEMAPHORE signal GoGpSimd += 1
// PRETTY-NEXT:     isa.instruction EVENT_SEMAPHORE signal GoSync += 1
// PRETTY-NEXT:     isa.branch le %r0, 0, ^bb3, ^bb2
// PRETTY-NEXT:   ^bb2:
// PRETTY-NEXT:     isa.instruction TENSOR_SCALAR sbuf[0:8, 0:4] as f32 = sbuf[0:8, 0:4] as f32 {op0 = multiply, imm0 = 2.0}
// PRETTY:          isa.branch eq 0, 0, ^bb1, ^bb3
// PRETTY-NEXT:   ^bb3:
// PRETTY-NEXT:     isa.end
// PRETTY-NEXT:   }
// PRETTY-NEXT:   isa.stream pool {
// PRETTY:          isa.instruction EVENT_SEMAPHORE wait GoGpSimd >= 1 signal GoGpSimd += -1
// PRETTY:        isa.stream sp {
// PRETTY-NEXT:     isa.instruction DMA sbuf[0:8, 0:4] as f32 = x {queue = qSyncIO0} signal qSyncIO0 += 16
// PRETTY:          isa.instruction DEVICE_PRINT sbuf[0:1, 4:5] as i32 {prefix = "still to do"} signal Sync += 1

// NISA:      %[[C0:.*]] = arith.constant 0 : index
// NISA:      %[[LEFT:.*]] = memref.alloc() {nki.address = [0, 16], nki.placed} : memref<1x1xi32, "sbuf">
// NISA:      scf.while : () -> () {
// NISA-NEXT:   %[[NUMBER:.*]] = memref.load %[[LEFT]][%[[C0]], %[[C0]]]
// NISA-NEXT:   %[[INDEX:.*]] = arith.index_cast %[[NUMBER]] : i32 to index
// NISA-NEXT:   %[[MORE:.*]] = arith.cmpi sgt, %[[INDEX]], %[[C0]] : index
// NISA-NEXT:   scf.condition(%[[MORE]])
// NISA-NEXT: } do {
// NISA-NEXT:   "nki.device_print"(%[[LEFT]])
// NISA-NEXT:   "nisa.tensor_scalar"(%[[T:.*]], %[[T]]) {{.*}} op0 = "multiply"
// NISA-NEXT:   "nisa.tensor_scalar"(%[[LEFT]], %[[LEFT]]) {{.*}} op0 = "subtract"
// NISA-NEXT:   scf.yield

// VALUES: still to do
// VALUES-NEXT: {{\[\[1\]\]}}

module attributes {nki.target = "trn2"} {
func.func @doubled(%x: !x {nki.name = "x"}, %n: !n {nki.name = "n"}, %y: !x {nki.name = "y", nki.shared = 0 : i64})
    attributes {nki.results = [2]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %t = memref.alloc() : !tile
  %left = memref.alloc() : !number
  "nisa.dma_copy"(%t, %x) {access = [#tile, #x], engine = "sync", mask = #all} : (!tile, !x) -> ()
  "nisa.dma_copy"(%left, %n) {access = [#number, #n], engine = "sync", mask = #all} : (!number, !n) -> ()
  scf.while : () -> () {
    %number = memref.load %left[%c0, %c0] : !number
    %more = arith.cmpi sgt, %number, %zero : i32
    scf.condition(%more)
  } do {
    "nki.device_print"(%left) {access = [#number], mask = #all, prefix = "still to do"} : (!number) -> ()
    "nisa.tensor_scalar"(%t, %t) {access = [#tile, #tile], engine = "vector", mask = #all,
      op0 = "multiply", imm0 = 2.0 : f64, reverse0 = false, op1 = "bypass", imm1 = 0.0 : f64, reverse1 = false,
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !tile) -> ()
    "nisa.tensor_scalar"(%left, %left) {access = [#number, #number], engine = "gpsimd", mask = #all,
      op0 = "subtract", imm0 = 1.0 : f64, reverse0 = false, op1 = "bypass", imm1 = 0.0 : f64, reverse1 = false,
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!number, !number) -> ()
    scf.yield
  }
  "nisa.dma_copy"(%y, %t) {access = [#x, #tile], engine = "sync", mask = #all} : (!x, !tile) -> ()
  return
}
}
