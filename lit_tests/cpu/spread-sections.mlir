// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows do not depend on each other once their common factor is loaded: threads compute them, each with its own tile.
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --spread-sections="worth=1000 least=1000" %s | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --spread-sections="worth=1000 least=1000 busy=101" %s | FileCheck %s --check-prefix=NONE
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --spread-sections="worth=1000 least=1000 most-products=50" %s | FileCheck %s --check-prefix=NONE
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --spread-sections="worth=1000 least=1000 least-products=95" %s | FileCheck %s --check-prefix=NONE
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --spread-sections="worth=1000 least=1000 share=60" %s | FileCheck %s --check-prefix=NONE
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --spread-sections %s | FileCheck %s --check-prefix=NONE
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --spread-sections="worth=1000 least=1000" %s | FileCheck %s --check-prefix=NONE

#row = affine_map<(d0, d1, d2) -> (d0, d2)>
#column = affine_map<(d0, d1, d2) -> (d2, d1)>
#result = affine_map<(d0, d1, d2) -> (d0, d1)>
#product = {indexing_maps = [#row, #column, #result], iterator_types = ["parallel", "parallel", "reduction"]}

// CHECK-LABEL: func.func @rows(
// CHECK:         memref.alloc() : memref<4096xf32, "sbuf">
// CHECK:         linalg.copy ins({{.*}}) outs(%alloc :
// CHECK:         scf.for %[[JOB:.*]] =
// CHECK:           %[[FIRST:.*]] = arith.cmpi slt, %[[JOB]], %
// CHECK-NEXT:      scf.if %[[FIRST]] {
// CHECK-NEXT:        memref.alloc() : memref<4096xf32, "sbuf">
// CHECK:             "scalar.alu"({{.*}}) {fn = "add"}
// CHECK:             memref.reinterpret_cast %arg2 to offset: [0], sizes: [64, 64]
// CHECK-NEXT:        linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK:           } else {
// CHECK-NEXT:        memref.alloc() : memref<4096xf32, "sbuf">
// CHECK:             "scalar.alu"({{.*}}) {fn = "add"}
// CHECK:             memref.reinterpret_cast %arg2 to offset: [4096], sizes: [64, 64]
// CHECK-NEXT:        linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK:         } {native.on_pool}
// CHECK:         linalg.copy ins({{.*}}memref<8192xf32, strided<[1]>, "hbm">)
// NONE-LABEL:  func.func @rows(
// NONE-NOT:      scf.for
// NONE:          return
func.func @rows(%x: memref<128x64xf32, "hbm"> {nki.name = "x"}, %w: memref<64x64xf32, "hbm"> {nki.name = "w"},
                %y: memref<128x64xf32, "hbm"> {nki.name = "y"}, %z: memref<128x64xf32, "hbm"> {nki.name = "z"}) {
  %factor = memref.alloc() : memref<64x64xf32, "sbuf">
  memref.copy %w, %factor : memref<64x64xf32, "hbm"> to memref<64x64xf32, "sbuf">
  %x0 = memref.subview %x[0, 0] [64, 64] [1, 1] : memref<128x64xf32, "hbm"> to memref<64x64xf32, strided<[64, 1]>, "hbm">
  %y0 = memref.subview %y[0, 0] [64, 64] [1, 1] : memref<128x64xf32, "hbm"> to memref<64x64xf32, strided<[64, 1]>, "hbm">
  %t0 = memref.alloc() : memref<64x64xf32, "sbuf">
  linalg.add ins(%x0, %x0 : memref<64x64xf32, strided<[64, 1]>, "hbm">, memref<64x64xf32, strided<[64, 1]>, "hbm">) outs(%t0 : memref<64x64xf32, "sbuf">)
  linalg.generic #product ins(%t0, %factor : memref<64x64xf32, "sbuf">, memref<64x64xf32, "sbuf">) outs(%y0 : memref<64x64xf32, strided<[64, 1]>, "hbm">) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %c, %p : f32
    linalg.yield %s : f32
  }
  %x1 = memref.subview %x[64, 0] [64, 64] [1, 1] : memref<128x64xf32, "hbm"> to memref<64x64xf32, strided<[64, 1], offset: 4096>, "hbm">
  %y1 = memref.subview %y[64, 0] [64, 64] [1, 1] : memref<128x64xf32, "hbm"> to memref<64x64xf32, strided<[64, 1], offset: 4096>, "hbm">
  %t1 = memref.alloc() : memref<64x64xf32, "sbuf">
  linalg.add ins(%x1, %x1 : memref<64x64xf32, strided<[64, 1], offset: 4096>, "hbm">, memref<64x64xf32, strided<[64, 1], offset: 4096>, "hbm">) outs(%t1 : memref<64x64xf32, "sbuf">)
  linalg.generic #product ins(%t1, %factor : memref<64x64xf32, "sbuf">, memref<64x64xf32, "sbuf">) outs(%y1 : memref<64x64xf32, strided<[64, 1], offset: 4096>, "hbm">) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %c, %p : f32
    linalg.yield %s : f32
  }
  memref.copy %y, %z : memref<128x64xf32, "hbm"> to memref<128x64xf32, "hbm">
  return
}

// The second product reads rows that the first one writes.
// CHECK-LABEL: func.func @chain(
// CHECK-NOT:     scf.for
// CHECK:         return
func.func @chain(%x: memref<64x64xf32, "hbm"> {nki.name = "x"}, %y: memref<128x64xf32, "hbm"> {nki.name = "y"}) {
  %y0 = memref.subview %y[0, 0] [64, 64] [1, 1] : memref<128x64xf32, "hbm"> to memref<64x64xf32, strided<[64, 1]>, "hbm">
  %y1 = memref.subview %y[64, 0] [64, 64] [1, 1] : memref<128x64xf32, "hbm"> to memref<64x64xf32, strided<[64, 1], offset: 4096>, "hbm">
  linalg.generic #product ins(%x, %x : memref<64x64xf32, "hbm">, memref<64x64xf32, "hbm">) outs(%y0 : memref<64x64xf32, strided<[64, 1]>, "hbm">) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %c, %p : f32
    linalg.yield %s : f32
  }
  linalg.add ins(%x, %x : memref<64x64xf32, "hbm">, memref<64x64xf32, "hbm">) outs(%x : memref<64x64xf32, "hbm">)
  linalg.generic #product ins(%x, %y0 : memref<64x64xf32, "hbm">, memref<64x64xf32, strided<[64, 1]>, "hbm">) outs(%y1 : memref<64x64xf32, strided<[64, 1], offset: 4096>, "hbm">) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %c, %p : f32
    linalg.yield %s : f32
  }
  return
}
