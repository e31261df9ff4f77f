// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loops around products of tiles become one product of packed operands.
// RUN: env NKI_MLIR_NUM_THREADS=1 NKI_MLIR_CACHES=48K,2M,32M nki-opt --pass-pipeline="zero-unwritten,parallelize,form-products{tile-rows=8 tile-vectors=2}" %S/../../examples/matmul.py:matmul_tiled --arg 1024x256xf32 --arg 1024x512xf32 | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=1 NKI_MLIR_CACHES=48K,2M,32M nki-opt --pass-pipeline="form-products{tile-rows=8 tile-vectors=2}" --mlir-print-ir-before=form-products --mlir-print-ir-after=form-products %S/../../examples/matmul.py:matmul_tiled --arg 1024x256xf32 --arg 1024x512xf32 -o %t 2>&1 | FileCheck %s --check-prefix=RECORDS

// Blocks of the summed axis are packed for all rows, on the pool.
// CHECK:      // @matmul_tiled(a_t, b, out)
// CHECK-NEXT: //   nki_parallel(&%0, %2, [[PACK:L[0-9]+]], [[K:[0-9]+]], 0, 1, 2, {{[0-9]+}}, 0, [[PACKED:L[0-9]+]])
// CHECK-NEXT: // [[PACK]]:
// CHECK-NEXT: //   copy_32x{{[0-9x]+}}_float32_{{[0-9a-f]+}}(a_t + 524288 * %[[K]], memory + 524288 * %[[K]])
// CHECK:      // [[PACKED]]:
// Then columns, in as many iterations as there is work for.
// CHECK-NEXT: //   nki_parallel(&%0, %2, [[COLUMNS:L[0-9]+]], [[J:[0-9]+]], 0, 1, 2, {{[0-9]+}}, {{[0-9]+}}, [[END:L[0-9]+]])
// CHECK-NEXT: // [[COLUMNS]]:
// CHECK:      //   copy_32x{{[0-9x]+}}_float32_{{[0-9a-f]+}}(b + 1024 * %[[J]] + 1048576 * %[[B:[0-9]+]], %[[OWN:[0-9]+]] + 524288 * %[[B]])
// The first block starts the sums, where the result is; the next one adds to them.
// CHECK:      //   add_{{[0-9x]+}}x512_float32_panels_{{[0-9a-f]+}}(memory, %[[OWN]], out + 1024 * %[[J]])
// CHECK-NEXT: //   add_{{[0-9x]+}}x512_float32_panels_{{[0-9a-f]+}}(memory + 524288, %[[OWN]] + 524288, out + 1024 * %[[J]])
// CHECK-NEXT: //   end
// CHECK-NEXT: // [[END]]:

// A tile of the result is prefetched before it is computed, four positions of the summed axis in an iteration.
// CHECK: llvm.func internal @add_{{.*}}_panels_
// CHECK:   "llvm.intr.prefetch"(%{{[0-9]+}}) <{cache = 1 : i32, hint = 3 : i32, rw = 1 : i32}>
// CHECK:   scf.for %{{.*}} = %c0_i64 to %c512_i64
// CHECK:     math.fma %{{[0-9]+}}, %{{[0-9]+}}, %{{[a-z0-9]+}} : vector<{{[0-9]+}}xf32>

// The pass alone, on the records of the first function.
// RECORDS: IR Dump After form-products
// RECORDS-NEXT: // form-products: 256 x 512 x 1024 in blocks of 256 rows, 256 columns, depth 512, float32: 37.2 MB beyond L1, 4.7 MB beyond L2, 3.7 MB beyond L3
// RECORDS-NEXT: kernel @matmul_tiled(a_t, b, out) {
// RECORDS-NEXT:   [[A:buffer[0-9]+]] = allocate(1048576)
// RECORDS-NEXT:   for %[[K:[0-9]+]] = 0 to 2 step 1 on pool {
// RECORDS-NEXT:     copy_32x{{[0-9x]+}}_float32(a_t + 524288 * %[[K]], [[A]] + 524288 * %[[K]])
// RECORDS:   }
// RECORDS-NEXT:   for %[[J:[0-9]+]] = 0 to {{[0-9]+}} step 1 on pool {
// RECORDS:     copy_32x{{[0-9x]+}}_float32(b + 1024 * %[[J]]
// RECORDS:     add_{{[0-9x]+}}_float32_panels([[A]], [[B:buffer[0-9]+]], out + 1024 * %[[J]])
// RECORDS-NEXT:     add_{{[0-9x]+}}_float32_panels([[A]] + 524288, [[B]] + 524288, out + 1024 * %[[J]])
