// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --lower-to-isa %s | FileCheck %s
// RUN: nki-opt --lower-to-isa --emit=bin %s -o %t.nkibin && nki-translate --disassemble %t.nkibin | FileCheck %s
// RUN: nki-opt --lower-to-isa --emit=mlir %s | FileCheck --check-prefix=IR %s
// RUN: nki-opt --lower-to-isa --emit=mlir %s | nki-opt --lower-to-isa - | FileCheck %s
// RUN: nki-opt --lower-to-isa --target=trn1 %s | FileCheck --check-prefix=TRN1 %s

!a = memref<128x128xf32, "hbm">
!b = memref<128x512xf32, "hbm">
!left = memref<128x128xf32, "sbuf">
!right = memref<128x512xf32, "sbuf">
!sum = memref<128x512xf32, "psum">
#all = affine_set<() : (0 == 0)>
#a = #nki.access<f32, affine_map<() -> (0)>, [[128, 128], [1, 128]]>
#b = #nki.access<f32, affine_map<() -> (0)>, [[512, 128], [1, 512]]>
#left = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>
#right = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>

// Another generation has less memory; the same instructions.
// TRN1:      .target trn1
// TRN1-NEXT: .sbuf 2560 of 180224
// TRN1-NEXT: .psum 2048 of 16384
// TRN1:      pe 0001: S[4] (qSyncIO1)>=16 MATMUL dst=fp32@0x2000000[1][512] stationary=fp32@0x0[1][128]

// The same as operations, a stream in each region. Offsets are elements of a partition, as in access patterns.
// IR-DAG:   #[[ZERO:map[0-9]*]] = affine_map<() -> (0, 0)>
// IR-DAG:   #[[LEFT:map[0-9]*]] = affine_map<() -> (0, 512)>
// IR:       "isa.program"() ({
// IR:         "isa.stream"() ({
// IR-NEXT:      "isa.instruction"() {{{.*}}mnemonic = "EVENT_SEMAPHORE"{{.*}}waits = {{\[\[}}3, 16]]}
// IR-NEXT:      "isa.instruction"() {fields = {accumulate = false}, mnemonic = "MATMUL", queue = -1 : i64, registers = [],
// IR-SAME:        tiles = {dst = ["psum", #nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 512]]>],
// IR-SAME:                 moving = ["sbuf", #nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 512]]>],
// IR-SAME:                 stationary = ["sbuf", #nki.access<f32, #[[LEFT]], {{\[\[}}1, 128], [1, 128]]>]},
// IR-SAME:        update = [0, 1], waits = {{\[\[}}4, 16]]}
// IR-NEXT:      "isa.end"()
// IR-NEXT:    }) {engine = "pe"}

// The header, then a stream for each engine; transfers that may run at the same time are in different queues.
// CHECK:      .nki_isa 1
// CHECK-NEXT: .kernel product
// CHECK-NEXT: .target trn2
// CHECK-NEXT: .sbuf 2560 of 212984
// CHECK-NEXT: .psum 2048 of 16384
// CHECK-NEXT: .input a fp32[128,128] 0
// CHECK-NEXT: .input b fp32[128,512] 1
// CHECK-NEXT: .output c fp32[128,512] 0
// CHECK-NEXT: .semaphore 0 Tensor
// CHECK-NEXT: .semaphore 1 Scalar
// CHECK-NEXT: .semaphore 2 Sync
// CHECK-NEXT: .semaphore 3 qSyncIO0
// CHECK-NEXT: .semaphore 4 qSyncIO1
// CHECK-NEXT: .semaphore 5 qSyncIO2
// CHECK-NEXT: .queue 0 qSyncIO0 sp 3
// CHECK-NEXT: .queue 1 qSyncIO1 sp 4
// CHECK-NEXT: .queue 2 qSyncIO2 sp 5
// CHECK-NEXT: .stream pe
// CHECK-NEXT: pe 0000: S[3] (qSyncIO0)>=16 EVENT_SEMAPHORE
// CHECK-NEXT: pe 0001: S[4] (qSyncIO1)>=16 MATMUL dst=fp32@0x2000000[1][512]
// CHECK-SAME:   stationary=fp32@0x800[1][128] moving=fp32@0x0[1][512] channels=128 S[0] (Tensor)++@complete
// CHECK-NEXT: .stream act
// CHECK-NEXT: act 0000: S[0] (Tensor)>=1 COPY dst=fp32@0x0[1][512]
// CHECK-SAME:   src=fp32@0x2000000[1][512] channels=128 S[1] (Scalar)++@complete
// CHECK-NEXT: .stream sp
// CHECK-NEXT: sp 0000: DMA queue=0 dst=fp32@0x0[1][512]
// CHECK-SAME:   src=fp32@b[1,512][512,128] channels=128 descriptors=128*2048 S[3] (qSyncIO0)+=16@complete
// CHECK-NEXT: sp 0001: DMA queue=1 dst=fp32@0x800[1][128]
// CHECK-SAME:   src=fp32@a[1,128][128,128] channels=128 descriptors=128*512 S[4] (qSyncIO1)+=16@complete
// CHECK-NEXT: sp 0002: S[1] (Scalar)>=1 DMA queue=2 dst=fp32@c[1,512][512,128]
// CHECK-SAME:   src=fp32@0x0[1][512] channels=128 descriptors=128*2048 S[5] (qSyncIO2)+=16@complete
// CHECK-NEXT: sp 0003: S[5] (qSyncIO2)>=16 EVENT_SEMAPHORE
func.func @product(%a: !a {nki.name = "a"}, %b: !b {nki.name = "b"}, %c: !b {nki.name = "c", nki.shared = 0 : i64})
    attributes {nki.results = [2]} {
  %left = memref.alloc() : !left
  %right = memref.alloc() : !right
  %sum = memref.alloc() : !sum
  %result = memref.alloc() : !right
  "nisa.dma_copy"(%left, %a) {access = [#left, #a], engine = "sync", mask = #all} : (!left, !a) -> ()
  "nisa.dma_copy"(%right, %b) {access = [#right, #b], engine = "sync", mask = #all} : (!right, !b) -> ()
  "nisa.nc_matmul"(%sum, %left, %right) {access = [#right, #left, #right], accumulate = false, engine = "unknown",
    mask = #all} : (!sum, !left, !right) -> ()
  "nisa.tensor_copy"(%result, %sum) {access = [#right, #right], engine = "unknown", mask = #all} : (!right, !sum) -> ()
  "nisa.dma_copy"(%c, %result) {access = [#b, #right], engine = "sync", mask = #all} : (!b, !right) -> ()
  return
}
