// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loops around products of tiles become one product of packed operands.
// REQUIRES: avx512
// RUN: env NKI_MLIR_NUM_THREADS=1 NKI_MLIR_CACHES=48K,2M,32M nki-opt --pass-pipeline="zero-unwritten,parallelize,form-products{tile-rows=8 tile-vectors=2}" --lower-to-vector %S/../../examples/matmul.py:matmul_tiled --arg 1024x256xf32 --arg 1024x512xf32 | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=2 NKI_MLIR_CACHES=48K,2M,32M nki-opt --pass-pipeline="zero-unwritten,parallelize,form-products{tile-rows=8 tile-vectors=2}" --lower-to-vector %S/../../examples/matmul.py:matmul_tiled --arg 1024x512xf32 --arg 1024x512xf32 | FileCheck %s --check-prefix=HALVES
// RUN: env NKI_MLIR_NUM_THREADS=1 NKI_MLIR_CACHES=48K,2M,32M nki-opt --form-products="tile-rows=8 tile-vectors=2" %S/../../examples/matmul.py:matmul_tiled --arg 1024x256xf32 --arg 1024x512xf32 | FileCheck %s --check-prefix=ALONE

// Blocks of the summed axis are packed for all rows, on the pool.
// CHECK:      // @matmul_tiled(a_t, b, out)
// CHECK-NEXT: //   nki_parallel(&%0, %2, [[PACK:L[0-9]+]], [[K:[0-9]+]], 0, 1, 8, {{[0-9]+}}, 0, [[PACKED:L[0-9]+]])
// CHECK-NEXT: // [[PACK]]:
// CHECK-NEXT: //   copy_8x{{[0-9x]+}}_float32_ahead_{{[0-9a-f]+}}(a_t + 131072 * %[[K]], memory + 131072 * %[[K]])
// CHECK:      // [[PACKED]]:
// Then all columns, for one thread: they are packed block by block, and multiplied by all rows.
// CHECK-NEXT: //   copy_8x{{[0-9x]+}}_float32_ahead_{{[0-9a-f]+}}(b, memory + [[BLOCK:[0-9]+]])
// The first block starts the sums, where the result is; the next ones add to them.
// CHECK-NEXT: //   add_{{[0-9x]+}}x128_float32_panels_{{[0-9a-f]+}}(memory, memory + [[BLOCK]], out)
// CHECK:      // [[NEXT:L[0-9]+]]:
// CHECK-NEXT: //   copy_8x{{[0-9x]+}}_float32_ahead_{{[0-9a-f]+}}(b + 262144 * %[[N:[0-9]+]] + 262144, memory + [[BLOCK]])
// CHECK-NEXT: //   add_{{[0-9x]+}}x128_float32_panels_{{[0-9a-f]+}}(memory + 131072 * %[[N]] + 131072, memory + [[BLOCK]], out)
// CHECK-NEXT: //   nki_next(&%[[N]], 1, 7, [[NEXT]])
// CHECK-NEXT: //   end

// A tile of the result is prefetched before it is computed, four positions of the summed axis in an iteration.
// CHECK: llvm.func internal @add_{{.*}}_panels_
// CHECK:   "llvm.intr.prefetch"(%{{[0-9]+}}) <{cache = 1 : i32, hint = 3 : i32, rw = 1 : i32}>
// CHECK:   scf.for %{{.*}} = %c0_i64 to %c128_i64
// CHECK:     math.fma %{{[0-9]+}}, %{{[0-9]+}}, %{{[a-z0-9]+}} : vector<{{[0-9]+}}xf32>

// With two threads, each begins with a half of the rows: blocks of the first half precede those of the second.
// HALVES:      //   nki_parallel(&%0, %2, [[PACK:L[0-9]+]], [[HALF:[0-9]+]], 0, 1, 2, {{[0-9]+}}, 0, [[PACKED:L[0-9]+]])
// HALVES:      //   copy_8x16x16x16_float32_ahead_{{[0-9a-f]+}}(a_t + 1024 * %[[HALF]] + 262144 * %[[K:[0-9]+]], memory + 1048576 * %[[HALF]] + 131072 * %[[K]])
// HALVES-NEXT: //   nki_next(&%[[K]], 1, 8, L{{[0-9]+}})
// HALVES:      //   nki_parallel(&%0, %2, [[COLUMNS:L[0-9]+]], [[NUMBER:[0-9]+]], 0, 1, 8, {{[0-9]+}}, {{[1-9][0-9]+}}, L{{[0-9]+}})
// HALVES-NEXT: // [[COLUMNS]]:
// HALVES-NEXT: //   nki_floordiv(&%[[HALF:[0-9]+]], %[[NUMBER]], 4)
// HALVES-NEXT: //   nki_mod(&%[[J:[0-9]+]], %[[NUMBER]], 4)
// HALVES-NEXT: //   copy_8x{{[0-9x]+}}_float32_ahead_{{[0-9a-f]+}}(b + 512 * %[[J]], %[[BLOCK:[0-9]+]])
// HALVES-NEXT: //   add_{{[0-9x]+}}x128_float32_panels_{{[0-9a-f]+}}(memory + 1048576 * %[[HALF]], %[[BLOCK]], out + 524288 * %[[HALF]] + 512 * %[[J]])

// The pass alone: panels of a, then of each block of b, and their product. Packing prefetches the rows that come next.
// ALONE-LABEL: func.func @matmul_tiled(
// ALONE-SAME:    %[[A:[a-z0-9]+]]: {{.*}} %[[B:[a-z0-9]+]]: {{.*}} %[[OUT:[a-z0-9]+]]: {{.*}}native.notes = ["form-products: 256 x 512 x 1024 in blocks of 256 rows, 512 columns, depth 128, float32: 42.5 MB beyond L1, 3.7 MB beyond L2, 3.7 MB beyond L3"]
// ALONE:         %[[ROWS:.*]] = memref.alloc() : memref<262144xf32, "sbuf">
// ALONE:         scf.for %{{.*}} = %c0 to %c8 step %c1 {
// ALONE:           %[[FROM:.*]] = memref.reinterpret_cast %[[A]] to offset: [%[[AT:.*]]], sizes: [8, {{.*}}]
// ALONE:           %[[TO:.*]] = memref.reinterpret_cast %[[ROWS]] to offset: [%[[AT]]], sizes: [8, {{.*}}]
// ALONE:           linalg.copy {native.ahead = {{\[\[}}0, 16384]], native.fixed} ins(%[[FROM]] : {{.*}}) outs(%[[TO]] : {{.*}})
// ALONE:         } {native.on_pool}
// ALONE:         %[[COLUMNS:.*]] = memref.alloc() : memref<65536xf32, "sbuf">
// ALONE:         linalg.copy {native.ahead = {{\[\[}}0, 32768]], native.fixed}
// ALONE:         %[[FIRST:.*]] = memref.reinterpret_cast %[[ROWS]] to offset: [0], sizes: [16, 128, 16]
// ALONE:         %[[SECOND:.*]] = memref.reinterpret_cast %[[COLUMNS]] to offset: [0], sizes: [16, 128, 32]
// ALONE:         "native.packed_product"(%[[FIRST]], %[[SECOND]], %[[OUT]]) {depth = 128 : i64, fresh = true, line = 512 : i64, panels = array<i64: 16, 16>, sizes = array<i64: 16, 32>, tile = array<i64: 8, 2>, unit = "float32"}
// ALONE:         scf.for %{{.*}} = %c0 to %c7 step %c1 {
// ALONE:           linalg.copy {native.ahead
// ALONE:           "native.packed_product"(%{{.*}}, %[[SECOND]], %[[OUT]]) {depth = 128 : i64, fresh = false,
// ALONE:         }
