// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --synchronize-engines=overlap=0 %s | FileCheck %s
// RUN: nki-opt --synchronize-engines %s | nki-translate --mlir-to-asm - | FileCheck --check-prefix=OVERLAP %s

!x = memref<512x64xf32, "hbm">
!tile = memref<128x64xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
// With the loop variable: the tile, and rows 128 i to 128 i + 127.
#tile_i = #nki.access<f32, affine_map<()[i] -> (0, 0)>, [[1, 128], [1, 64]]>
#rows_i = #nki.access<f32, affine_map<()[i] -> (i * 8192)>, [[64, 128], [1, 64]]>

// CHECK-DAG: #[[AT:map[0-9]*]] = affine_map<() -> (0, 16)>
// CHECK-DAG: #[[AT_I:map[0-9]*]] = affine_map<()[s0] -> (0, 16)>
// CHECK-DAG: #[[ROWS_I:map[0-9]*]] = affine_map<()[s0] -> (s0 * 8192)>

// A stream for each engine, and semaphores for what they wait for.
// CHECK:      "isa.program"() ({
// CHECK-NEXT:   "isa.variable"() {data = "", index = 0 : i64, kind = "input", label = "x", type = memref<512x64xf32, "hbm">}
// CHECK-NEXT:   "isa.semaphore"() {label = "Scalar"}
// CHECK-NEXT:   "isa.semaphore"() {label = "Sync"}
// CHECK-NEXT:   "isa.semaphore"() {label = "qSyncIO0"}
// CHECK-NEXT:   "isa.semaphore"() {label = "qSyncIO1"}
// CHECK-NEXT:   "isa.semaphore"() {label = "Barrier"}
// CHECK-NEXT:   "isa.semaphore"() {label = "GoSync"}
// CHECK-NEXT:   "isa.queue"() {engine = "sp", label = "qSyncIO0", semaphore = 2 : i64}
// CHECK-NEXT:   "isa.queue"() {engine = "sp", label = "qSyncIO1", semaphore = 3 : i64}

// The function is loaded before the loop. The activation waits until the queue of the load has counted 16 and says when
// it is done. At the end of an iteration the engines meet; one clears the semaphores, then tells the other to go on.
// CHECK-NEXT:   "isa.stream"() ({
// CHECK-NEXT:     "isa.instruction"() {fields = {table = "exp"}, mnemonic = "ACT_TABLE_LOAD"
// CHECK-NEXT:     "isa.instruction"() {fields = {dst = "r0", value = 0 : i64}, mnemonic = "MOVE"
// CHECK-NEXT:     "isa.next"()[^bb1]
// CHECK-NEXT:   ^bb1:
// CHECK-NEXT:     "isa.instruction"() {fields = {fn = "exp", imm = 1.000000e+00 : f64}, mnemonic = "ACTIVATE"
// CHECK-SAME:       tiles = {dst = ["sbuf", #nki.access<f32, #[[AT]], {{\[\[}}1, 128], [1, 64]]>],
// CHECK-SAME:                src = ["sbuf", #nki.access<f32, #[[AT]], {{\[\[}}1, 128], [1, 64]]>]}
// CHECK-SAME:       update = [0, 1], waits = {{\[\[}}2, 16]]}
// CHECK-NEXT:     "isa.instruction"() {{.*}} mnemonic = "EVENT_SEMAPHORE", {{.*}} update = [], waits = {{\[\[}}4, 1]]}
// CHECK-NEXT:     "isa.instruction"() {fields = {first = 0 : i64, last = 4 : i64}, mnemonic = "EVENT_SEMAPHORE_RANGE_CLEAR"
// CHECK-NEXT:     "isa.instruction"() {{.*}} mnemonic = "EVENT_SEMAPHORE", {{.*}} update = [5, 1], waits = []}
// CHECK-NEXT:     "isa.instruction"() {fields = {dst = "r0", lhs = "r0", op = "add", rhs = 1 : i64}, mnemonic = "ALU"
// CHECK-NEXT:     "isa.branch"()[^bb1, ^bb2] {op = "le", sides = ["r0", 3], update = [], waits = []}
// CHECK-NEXT:   ^bb2:
// CHECK-NEXT:     "isa.end"()
// CHECK-NEXT:   }) {engine = "act"}

// The store waits for the activation; the loop ends when it is through.
// CHECK-NEXT:   "isa.stream"() ({
// CHECK:          "isa.instruction"() {{.*}} mnemonic = "DMA", queue = 0 : i64, registers = [0]
// CHECK-SAME:       tiles = {dst = ["sbuf", #nki.access<f32, #[[AT_I]], {{\[\[}}1, 128], [1, 64]]>],
// CHECK-SAME:                src = ["x", #nki.access<f32, #[[ROWS_I]], {{\[\[}}64, 128], [1, 64]]>]}
// CHECK-SAME:       update = [2, 16], waits = []}
// CHECK-NEXT:     "isa.instruction"() {{.*}} mnemonic = "DMA", queue = 1 : i64, registers = [0]
// CHECK-SAME:       tiles = {dst = ["x", #nki.access<f32, #[[ROWS_I]], {{\[\[}}64, 128], [1, 64]]>],
// CHECK-SAME:                src = ["sbuf", #nki.access<f32, #[[AT_I]], {{\[\[}}1, 128], [1, 64]]>]}
// CHECK-SAME:       update = [3, 16], waits = {{\[\[}}0, 1]]}
// CHECK-NEXT:     "isa.instruction"() {{.*}} mnemonic = "EVENT_SEMAPHORE", {{.*}} update = [], waits = {{\[\[}}3, 16]]}
// CHECK-NEXT:     "isa.instruction"() {{.*}} mnemonic = "EVENT_SEMAPHORE", {{.*}} update = [4, 1], waits = []}
// CHECK-NEXT:     "isa.instruction"() {{.*}} mnemonic = "EVENT_SEMAPHORE", {{.*}} update = [5, -1], waits = {{\[\[}}5, 1]]}
// CHECK-NEXT:     "isa.instruction"() {fields = {dst = "r0", lhs = "r0", op = "add", rhs = 1 : i64}, mnemonic = "ALU"
// CHECK-NEXT:     "isa.branch"()[^bb1, ^bb2] {op = "le", sides = ["r0", 3], update = [], waits = []}
// CHECK-NEXT:   ^bb2:
// CHECK-NEXT:     "isa.end"()
// CHECK-NEXT:   }) {engine = "sp"}
// CHECK-NEXT:   "isa.live_range"() {address = 64 : i64, label = "tile", memory = "sbuf", partitions = 128 : i64,
// CHECK-SAME:     size = 256 : i64, uses = {act = [2, 2], sp = [1, 2]}}
// CHECK-NEXT: }) {kernel = "loop", notes = [], psum_bytes = 0 : i64, sbuf_bytes = 320 : i64, target = "trn2"}

// Iterations overlap: each engine counts down at the end of one what it waits for, which begins one iteration ahead. The
// load waits for the store of the iteration before, which reads the tile.
// OVERLAP:      .stream act
// OVERLAP:      act 0001: EVENT_SEMAPHORE S[2] (qSyncIO0)+=16@complete
// OVERLAP-NEXT: act 0002: MOVE dst=r0 value=0
// OVERLAP-NEXT: act 0003: S[2] (qSyncIO0)>=32 ACTIVATE fn=exp {{.*}} S[4] (ScalarForSync)++@complete
// OVERLAP-NEXT: act 0004: EVENT_SEMAPHORE S[2] (qSyncIO0)-=16@complete
// OVERLAP-NEXT: act 0005: ALU op=add dst=r0 lhs=r0 rhs=1
// OVERLAP-NEXT: act 0006: COMPARE_BRANCH op=le lhs=r0 rhs=3 target=0003
// OVERLAP-NEXT: act 0007: S[2] (qSyncIO0)>=16 EVENT_SEMAPHORE
// OVERLAP-NEXT: act 0008: S[5] (Barrier)>=1 EVENT_SEMAPHORE
// OVERLAP:      .stream sp
// OVERLAP-NEXT: sp 0000: EVENT_SEMAPHORE S[3] (qSyncIO1)+=16@complete
// OVERLAP-NEXT: sp 0001: EVENT_SEMAPHORE S[4] (ScalarForSync)++@complete
// OVERLAP-NEXT: sp 0002: MOVE dst=r0 value=0
// OVERLAP-NEXT: sp 0003: S[3] (qSyncIO1)>=16 DMA queue=0 {{.*}} S[2] (qSyncIO0)+=16@complete
// OVERLAP-NEXT: sp 0004: S[4] (ScalarForSync)>=2 DMA queue=1 {{.*}} S[3] (qSyncIO1)+=16@complete
// OVERLAP-NEXT: sp 0005: EVENT_SEMAPHORE S[3] (qSyncIO1)-=16@complete
// OVERLAP-NEXT: sp 0006: EVENT_SEMAPHORE S[4] (ScalarForSync)--@complete
// OVERLAP-NEXT: sp 0007: ALU op=add dst=r0 lhs=r0 rhs=1
// OVERLAP-NEXT: sp 0008: COMPARE_BRANCH op=le lhs=r0 rhs=3 target=0003
// OVERLAP-NEXT: sp 0009: S[3] (qSyncIO1)>=16 EVENT_SEMAPHORE
// OVERLAP-NEXT: sp 0010: EVENT_SEMAPHORE S[5] (Barrier)++@complete
func.func @loop(%x: !x {nki.name = "x"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() {nki.address = [0, 64]} : !tile
    "nisa.dma_copy"(%t, %x, %i) {access = [#tile_i, #rows_i], engine = "sync", mask = #all} : (!tile, !x, index) -> ()
    "nisa.activation"(%t, %t) {access = [#tile, #tile], engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = #all,
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (!tile, !tile) -> ()
    "nisa.dma_copy"(%x, %t, %i) {access = [#rows_i, #tile_i], engine = "sync", mask = #all} : (!x, !tile, index) -> ()
  }
  return
}
