// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operations on large tiles run some rows at a time, where a chunk needs the same chunk of earlier ones alone.
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --lower-to-vector %s | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --pass-pipeline="chunk-rows" --mlir-print-ir-before=chunk-rows --mlir-print-ir-after=chunk-rows %s -o %t 2>&1 | FileCheck %s --check-prefix=RECORDS

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
!hbm = memref<128x4096xf32, "hbm">
!tile = memref<128x4096xf32, "sbuf">
!sums = memref<128xf32, "sbuf">
!square_hbm = memref<1024x1024xf32, "hbm">
!square = memref<1024x1024xf32, "sbuf">

// Buffers that nothing else uses have room for one chunk.
// CHECK-LABEL: // @rows(x, y): 65{{[0-9]+}} bytes of memory
// CHECK-NEXT:  //   nki_set(&%[[CHUNK:[0-9]+]], 0)
// CHECK-NEXT:  // [[AGAIN:L[0-9]+]]:
// CHECK-NEXT:  //   exp_[[N:[0-9]+]]_float32_{{.*}}(x + [[STEP:[0-9]+]] * %[[CHUNK]], memory)
// CHECK-NEXT:  //   set_[[ROWS:[0-9]+]]_float32_{{.*}}(memory + [[SUMS:[0-9]+]])
// CHECK-NEXT:  //   add_[[ROWS]]x4096_float32_{{.*}}(memory, memory + [[SUMS]])
// CHECK-NEXT:  //   multiply_[[ROWS]]x4096_float32_{{.*}}(memory, memory + [[SUMS]], y + [[STEP]] * %[[CHUNK]])
// CHECK-NEXT:  //   nki_next(&%[[CHUNK]], 1, {{[0-9]+}}, [[AGAIN]])
// CHECK-NEXT:  //   end
func.func @rows(%x: !hbm {nki.name = "x"}, %y: !hbm {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %e = memref.alloc() : !tile
  %s = memref.alloc() : !sums
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !hbm) outs(%e : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.fill ins(%zero : f32) outs(%s : !sums)
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%e : !tile) outs(%s : !sums) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%e, %s : !tile, !sums) outs(%y : !hbm) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %0 = arith.mulf %in, %sum : f32
    linalg.yield %0 : f32
  }
  return
}

// Rows of the result need all rows of what is turned over.
// CHECK-LABEL: // @turned(x, y)
// CHECK-NEXT:  //   exp_1048576_float32_{{[0-9a-f]+}}(x, memory)
// CHECK-NOT:   nki_next
// CHECK:       //   end
func.func @turned(%x: !square_hbm {nki.name = "x"}, %y: !square_hbm {nki.name = "y", nki.shared = 0 : i64}) {
  %e = memref.alloc() : !square
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !square_hbm) outs(%e : !square) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#turned, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%e, %e : !square, !square) outs(%y : !square_hbm) {
  ^bb0(%in: f32, %other: f32, %out: f32):
    %0 = arith.mulf %in, %other : f32
    linalg.yield %0 : f32
  }
  return
}

// The pass alone, on the records of the first function.
// RECORDS: kernel @rows(x, y) {
// RECORDS-NEXT:   [[TILE:buffer[0-9]+]] = allocate(2097152)
// RECORDS-NEXT:   [[SUMS:buffer[0-9]+]] = allocate(512)
// RECORDS-NEXT:   exp_524288_float32(x, [[TILE]])
// RECORDS-NEXT:   set_128_float32([[SUMS]])
// RECORDS-NEXT:   add_128x4096_float32([[TILE]], [[SUMS]])
// RECORDS-NEXT:   multiply_128x4096_float32([[TILE]], [[SUMS]], y)
// RECORDS-NEXT: }
// RECORDS: // -----// IR Dump After chunk-rows
// RECORDS-NEXT: kernel @rows(x, y) {
// RECORDS-NEXT:   [[TILE]] = allocate(65536)
// RECORDS-NEXT:   [[SUMS]] = allocate(16)
// RECORDS-NEXT:   for %[[CHUNK:[0-9]+]] = 0 to 32 step 1 {
// RECORDS-NEXT:     exp_16384_float32_ahead(x + 65536 * %[[CHUNK]], [[TILE]])
// RECORDS-NEXT:     set_4_float32([[SUMS]])
// RECORDS-NEXT:     add_4x4096_float32([[TILE]], [[SUMS]])
// RECORDS-NEXT:     multiply_4x4096_float32([[TILE]], [[SUMS]], y + 65536 * %[[CHUNK]])
// RECORDS-NEXT:   }
// RECORDS-NEXT: }
