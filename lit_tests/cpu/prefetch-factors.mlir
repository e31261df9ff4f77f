// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A loop multiplies the same rows by one panel of 64 columns after the other: each product prefetches the next panel. An
// iteration takes four positions of the summed axis, 16 lines, for which there are 16 tiles of six rows.
// RUN: nki-opt --prefetch-factors="least=65536" %s | FileCheck %s --check-prefix=%words-MARKS
// RUN: nki-opt --prefetch-factors="least=65536" --lower-to-vector %s | FileCheck %s --check-prefix=%words
// RUN: nki-opt --prefetch-factors="least=65537" %s | FileCheck %s --check-prefix=FEW

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
!left = memref<32x96xf32, "hbm">
!right = memref<256x64xf32, "hbm">
!b = memref<32x64xf32, strided<[64, 1], offset: ?>, "hbm">
!sums = memref<768x64xf32, "hbm">
!out = memref<96x64xf32, strided<[64, 1], offset: ?>, "hbm">

// WORDS-MARKS:      scf.for
// WORDS-MARKS:        linalg.generic {{.*}} attrs = {native.next = 8192 : i64} {
// WORDS:       //   add_96x64x32_float32_ahead_{{.*}}
// WORDS:       %[[TILE:.*]] = arith.divui %{{.*}}, %c6_i64 : i64
// WORDS:       %[[NUMBER:.*]] = arith.andi %[[TILE]], %c15_i64 : i64
// WORDS:       %[[LINE:.*]] = arith.muli %[[NUMBER]], %c64_i64{{.*}} : i64
// WORDS:       %[[NEXT:.*]] = arith.addi %[[LINE]], %c8192_i64 : i64
// WORDS:       scf.for %{{.*}} = %c0_i64{{.*}} to %c32_i64{{.*}} step %c4_i64
// WORDS:       %[[FAR:.*]] = llvm.getelementptr %{{.*}}[%[[NEXT]]] : (!llvm.ptr, i64) -> !llvm.ptr, i8
// WORDS-NEXT:  "llvm.intr.prefetch"(%[[FAR]])
// FEW-NOT:    native.next
// Tiles of other hosts are narrower than the panels.
// SPREAD-MARKS-NOT: native.next
// SPREAD-NOT: llvm.intr.prefetch
func.func @products(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"},
                    %y: !sums {nki.name = "y", nki.shared = 0 : i64}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %j = %c0 to %c8 step %c1 {
    %at_b = affine.apply affine_map<()[s0] -> (s0 * 2048)>()[%j]
    %at_y = affine.apply affine_map<()[s0] -> (s0 * 6144)>()[%j]
    %r = memref.reinterpret_cast %b to offset: [%at_b], sizes: [32, 64], strides: [64, 1] : !right to !b
    %o = memref.reinterpret_cast %y to offset: [%at_y], sizes: [96, 64], strides: [64, 1] : !sums to !out
    linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %r : !left, !b) outs(%o : !out) {
    ^bb0(%x: f32, %z: f32, %w: f32):
      %p = arith.mulf %x, %z : f32
      %s = arith.addf %w, %p : f32
      linalg.yield %s : f32
    }
  }
  return
}
