// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The rows of a tile are short and on different pages: each row prefetches a later one, so that none begins with a wait.
// RUN: nki-opt --prefetch-rows %s | FileCheck %s --check-prefix=ALONE
// RUN: nki-opt --prefetch-rows --lower-to-vector %s | FileCheck %s
// RUN: nki-opt --prefetch-rows="short=512" --lower-to-vector %s | FileCheck %s --check-prefix=LONG

#id = affine_map<(d0, d1) -> (d0, d1)>
!matrix = memref<64x4096xbf16, "hbm">
!tile = memref<64x512xbf16, strided<[4096, 1]>, "hbm">

// Two rows of 1 KiB, which are 8 KiB apart.
// CHECK:       //   copy_64x512_bfloat16_ahead_{{.*}}(x, y)
// CHECK:       %[[FAR:.*]] = llvm.getelementptr %{{.*}}[16384] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK-NEXT:  "llvm.intr.prefetch"(%[[FAR]])
// ALONE:       linalg.copy {native.ahead = {{\[\[}}0, 16384]]} ins(%{{.*}} : {{.*}}) outs(%{{.*}} : {{.*}})
// Rows that count as long are left to the processor.
// LONG-NOT:    llvm.intr.prefetch
func.func @copy(%x: !matrix {nki.name = "x"}, %y: !matrix {nki.name = "y", nki.shared = 0 : i64}) {
  %a = memref.reinterpret_cast %x to offset: [0], sizes: [64, 512], strides: [4096, 1] : !matrix to !tile
  %b = memref.reinterpret_cast %y to offset: [0], sizes: [64, 512], strides: [4096, 1] : !matrix to !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%a : !tile) outs(%b : !tile) {
  ^bb0(%in: bf16, %out: bf16):
    linalg.yield %in : bf16
  }
  return
}
