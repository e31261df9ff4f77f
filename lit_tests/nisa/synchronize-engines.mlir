// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --synchronize-engines %s | FileCheck %s

// A stream for each engine: the activation waits until the queue of the load has counted 16, the store for the activation.
// CHECK:      "isa.program"() ({
// CHECK:        "isa.variable"() {data = "", kind = "input", label = "x", place = 0 : i64, type = memref<512x64xf32, "hbm">}
// CHECK:        "isa.semaphore"() {label = "Scalar"}
// CHECK:        "isa.queue"() {engine = "sp", label = "qSyncIO0", semaphore = 2 : i64}
// CHECK:        "isa.stream"() ({
// CHECK-NEXT:     "isa.instruction"() {fields = {dst = "r0", value = 0 : i64}, mnemonic = "MOVE"
// CHECK-NEXT:     "isa.next"()[^bb1]
// CHECK-NEXT:   ^bb1:
// CHECK-NEXT:     "isa.instruction"() {{.*}} mnemonic = "ACTIVATE"{{.*}} update = [0, 1], waits = {{\[\[}}2, 16]]}
// CHECK:          "isa.instruction"() {fields = {first = 0 : i64, last = 4 : i64}, mnemonic = "EVENT_SEMAPHORE_RANGE_CLEAR"
// CHECK:          "isa.branch"()[^bb1, ^bb2] {op = "le", sides = ["r0", 3], update = [], waits = []}
// CHECK-NEXT:   ^bb2:
// CHECK-NEXT:     "isa.end"()
// CHECK:        }) {engine = "act"}
// CHECK:        "isa.stream"() ({
// CHECK:          "isa.instruction"() {{.*}} mnemonic = "DMA", queue = 0 : i64, registers = [0], {{.*}} update = [2, 16], waits = []}
// CHECK:          "isa.instruction"() {{.*}} mnemonic = "DMA", queue = 1 : i64, registers = [0], {{.*}} update = [3, 16], waits = {{\[\[}}0, 1]]}
// CHECK:        }) {engine = "sp"}
// CHECK:      }) {kernel = "loop", notes = [], psum_bytes = 0 : i64, sbuf_bytes = 320 : i64, target = "trn2"}
func.func @loop(%x: memref<512x64xf32, "hbm"> {nki.name = "x"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() {nki.address = [0, 64]} : memref<128x64xf32, "sbuf">
    "nisa.dma_copy"(%t, %x, %i) {engine = "sync", mask = affine_set<() : (0 == 0)>,
      access = [#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 64]]>,
                #nki.access<f32, affine_map<()[s0] -> (s0 * 8192)>, [[64, 128], [1, 64]]>]}
      : (memref<128x64xf32, "sbuf">, memref<512x64xf32, "hbm">, index) -> ()
    "nisa.activation"(%t, %t) {engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = affine_set<() : (0 == 0)>,
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>,
      access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
                #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>]}
      : (memref<128x64xf32, "sbuf">, memref<128x64xf32, "sbuf">) -> ()
    "nisa.dma_copy"(%x, %t, %i) {engine = "sync", mask = affine_set<() : (0 == 0)>,
      access = [#nki.access<f32, affine_map<()[s0] -> (s0 * 8192)>, [[64, 128], [1, 64]]>,
                #nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 64]]>]}
      : (memref<512x64xf32, "hbm">, memref<128x64xf32, "sbuf">, index) -> ()
  }
  return
}
