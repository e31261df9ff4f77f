// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --lower-to-isa %s | FileCheck %s
// RUN: nki-opt --lower-to-isa --emit=bin %s -o %t.nkibin && nki-translate --disassemble %t.nkibin | FileCheck %s
// RUN: nki-opt --lower-to-isa --emit=mlir %s | FileCheck --check-prefix=IR %s
// RUN: nki-opt --lower-to-isa --emit=mlir %s | nki-opt --lower-to-isa - | FileCheck %s
// RUN: nki-opt --lower-to-isa --target=trn1 %s | FileCheck --check-prefix=TRN1 %s

// TRN1: .target trn1
// TRN1: .sbuf {{[0-9]+}} of 180224
// IR: "isa.program"() ({

// CHECK:      .nki_isa 1
// CHECK-NEXT: .kernel product
// CHECK-NEXT: .target trn2
// CHECK-NEXT: .sbuf 4608 of 212984
// CHECK-NEXT: .psum 2048 of 16384
// CHECK-NEXT: .input a fp32[128,128] 0
// CHECK-NEXT: .input b fp32[128,512] 1
// CHECK-NEXT: .output c fp32[128,512] 0
// CHECK-NEXT: .semaphore 0 Tensor
// CHECK-NEXT: .semaphore 1 Vector
// CHECK-NEXT: .semaphore 2 Sync
// CHECK-NEXT: .semaphore 3 qSyncIO0
// CHECK-NEXT: .semaphore 4 qSyncIO1
// CHECK-NEXT: .queue 0 qSyncIO0 sp 3
// CHECK-NEXT: .queue 1 qSyncIO1 sp 4
// CHECK-NEXT: .stream pe
// CHECK-NEXT: pe 0000: S[3] (qSyncIO0)>=32 MATMUL dst=fp32@0x2000000[1][512] stationary=fp32@0x0[1][128] moving=fp32@0x200[1][512] channels=128 S[0] (Tensor)++@complete
// CHECK-NEXT: .stream dve
// CHECK-NEXT: dve 0000: S[0] (Tensor)>=1 COPY dst=fp32@0xa00[1][512] src=fp32@0x2000000[1][512] channels=128 S[1] (Vector)++@complete
// CHECK-NEXT: .stream sp
// CHECK-NEXT: sp 0000: DMA queue=0 dst=fp32@0x0[1][128] src=fp32@a[1,128][128,128] channels=128 descriptors=128*512 S[3] (qSyncIO0)+=16@complete
// CHECK-NEXT: sp 0001: DMA queue=0 dst=fp32@0x200[1][512] src=fp32@b[1,512][512,128] channels=128 descriptors=128*2048 S[3] (qSyncIO0)+=16@complete
// CHECK-NEXT: sp 0002: S[1] (Vector)>=1 DMA queue=1 dst=fp32@c[1,512][512,128] src=fp32@0xa00[1][512] channels=128 descriptors=128*2048 S[4] (qSyncIO1)+=16@complete
// CHECK-NEXT: sp 0003: S[4] (qSyncIO1)>=16 EVENT_SEMAPHORE
func.func @product(%a: memref<128x128xf32, "hbm"> {nki.name = "a"}, %b: memref<128x512xf32, "hbm"> {nki.name = "b"},
                   %c: memref<128x512xf32, "hbm"> {nki.name = "c", nki.shared = 0 : i64}) attributes {nki.results = [2]} {
  %left = memref.alloc() : memref<128x128xf32, "sbuf">
  %right = memref.alloc() : memref<128x512xf32, "sbuf">
  %sum = memref.alloc() : memref<128x512xf32, "psum">
  %result = memref.alloc() : memref<128x512xf32, "sbuf">
  "nisa.dma_copy"(%left, %a) {engine = "unknown", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>,
              #nki.access<f32, affine_map<() -> (0)>, [[128, 128], [1, 128]]>]}
    : (memref<128x128xf32, "sbuf">, memref<128x128xf32, "hbm">) -> ()
  "nisa.dma_copy"(%right, %b) {engine = "unknown", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>,
              #nki.access<f32, affine_map<() -> (0)>, [[512, 128], [1, 512]]>]}
    : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "hbm">) -> ()
  "nisa.nc_matmul"(%sum, %left, %right) {accumulate = false, engine = "unknown", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>]}
    : (memref<128x512xf32, "psum">, memref<128x128xf32, "sbuf">, memref<128x512xf32, "sbuf">) -> ()
  "nisa.tensor_copy"(%result, %sum) {engine = "unknown", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>]}
    : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "psum">) -> ()
  "nisa.dma_copy"(%c, %result) {engine = "unknown", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0)>, [[512, 128], [1, 512]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>]}
    : (memref<128x512xf32, "hbm">, memref<128x512xf32, "sbuf">) -> ()
  return
}
