// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products whose sums start from 0 begin in registers, and are stored where a copy puts them.
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --pass-pipeline="store-products" --mlir-print-ir-before=store-products --mlir-print-ir-after=store-products %s -o %t 2>&1 | FileCheck %s

#a = affine_map<(k, m, n) -> (k, m)>
#b = affine_map<(k, m, n) -> (k, n)>
#c = affine_map<(k, m, n) -> (m, n)>
!left = memref<32x16xf32, "hbm">
!right = memref<32x64xf32, "hbm">
!sums = memref<16x64xf32, "psum">
!rows = memref<16x128xf32, "sbuf">
!half = memref<16x64xf32, strided<[128, 1], offset: 64>, "sbuf">
!out = memref<16x128xf32, "hbm">

// CHECK-LABEL: kernel @stored(a, b, y) {
// CHECK:         [[ROWS:buffer[0-9]+]] = allocate(8192)
// CHECK:         [[SUMS:buffer[0-9]+]] = allocate(4096)
// CHECK-NEXT:    set_1024_float32([[SUMS]])
// CHECK-NEXT:    add_16x64x32_float32(a, b, [[SUMS]])
// CHECK-NEXT:    copy_16x64_float32([[SUMS]], [[ROWS]] + 256)
// CHECK-NEXT:    copy_2048_float32([[ROWS]], y)
// CHECK-LABEL: kernel @stored(a, b, y) {
// CHECK-NEXT:    [[ROWS:buffer[0-9]+]] = allocate(8192)
// CHECK-NEXT:    add_16x64x32_float32_fresh(a, b, [[ROWS]] + 256)
// CHECK-NEXT:    copy_2048_float32([[ROWS]], y)
func.func @stored(%x: !left {nki.name = "a"}, %w: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %rows = memref.alloc() : !rows
  %sums = memref.alloc() : !sums
  linalg.fill ins(%zero : f32) outs(%sums : !sums)
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["reduction", "parallel", "parallel"]}
    ins(%x, %w : !left, !right) outs(%sums : !sums) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  %half = memref.reinterpret_cast %rows to offset: [64], sizes: [16, 64], strides: [128, 1] : !rows to !half
  linalg.copy ins(%sums : !sums) outs(%half : !half)
  linalg.copy ins(%rows : !rows) outs(%y : !out)
  return
}
