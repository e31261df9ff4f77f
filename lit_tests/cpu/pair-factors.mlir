// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Factors in bfloat16 become words of two neighbors of the summed axis, where the host has an instruction for them.
// RUN: nki-opt --pair-factors="pairs=1" --lower-to-vector %s | FileCheck %s --check-prefix=%pairs
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --pass-pipeline="pair-factors{pairs=1},spread-nests{worth=1}" --lower-to-vector %s | FileCheck %s --check-prefix=PARTS-%pairs
// RUN: nki-opt --pair-factors="pairs=0" --lower-to-vector %s | FileCheck %s --check-prefix=APART
// RUN: nki-opt --pair-factors="pairs=1 least=33" --lower-to-vector %s | FileCheck %s --check-prefix=APART

#k_m = affine_map<(m, n, k) -> (k, m)>
#k_n = affine_map<(m, n, k) -> (k, n)>
#m_n = affine_map<(m, n, k) -> (m, n)>
!left = memref<64x32xbf16, "hbm">
!right = memref<64x128xbf16, "hbm">
!sums = memref<32x128xf32, "hbm">
!odd_left = memref<65x32xbf16, "hbm">
!odd_right = memref<65x128xbf16, "hbm">

// PAIRS:       // @product(a, b, y)
// PAIRS-NEXT:  //   bitwise_or_32x32_uint32_uint16_{{.*}}(a, a + 64, [[A:.*]])
// PAIRS-NEXT:  //   bitwise_or_32x128_uint32_uint16_{{.*}}(b, b + 256, [[B:.*]])
// PAIRS-NEXT:  //   add_32x128x32_float32_pairs_{{[0-9a-f]+}}([[A]], [[B]], y)
// The last element of 65 is a pair with 0, after the 32 pairs of both factors.
// PAIRS:       // @odd(a, b, y)
// PAIRS-NEXT:  //   nki_zero([[ODD:memory]], 4224)
// PAIRS-NEXT:  //   bitwise_or_32x32_uint32_uint16_{{.*}}(a, a + 64, [[ODD]])
// PAIRS-NEXT:  //   copy_32_uint32_uint16_{{.*}}(a + 4096, [[ODD]] + 4096)
// PAIRS-NEXT:  //   nki_zero([[RIGHT:memory.*]], 16896)
// PAIRS-NEXT:  //   bitwise_or_32x128_uint32_uint16_{{.*}}(b, b + 256, [[RIGHT]])
// PAIRS-NEXT:  //   copy_128_uint32_uint16_{{.*}}(b + 16384, memory + {{[0-9]+}})
// PAIRS-NEXT:  //   add_32x128x33_float32_pairs_{{[0-9a-f]+}}([[ODD]], [[RIGHT]], y)
// PAIRS:       llvm.func internal @add_32x128x32_float32_pairs_
// PAIRS:       "llvm.x86.avx512bf16.dpbf16ps.512"
// The parts of a product that threads share multiply the same words.
// PARTS-PAIRS:      // @product(a, b, y)
// PARTS-PAIRS-NEXT: //   nki_spread(bitwise_or_16x32_uint32_uint16_{{.*}}, 2, 3, a, 2048, a + 64, 2048, [[A:.*]], 2048)
// PARTS-PAIRS-NEXT: //   nki_spread(bitwise_or_16x128_uint32_uint16_{{.*}}, 2, 3, b, 8192, b + 256, 8192, [[B:.*]], 8192)
// PARTS-PAIRS-NEXT: //   nki_spread(add_16x128x32_float32_pairs_{{[0-9a-f]+}}, 2, 3, [[A]], 64, [[B]], 0, y, 8192)
// PARTS-APART:      // @product(a, b, y)
// PARTS-APART-NEXT: //   nki_spread(add_16x128x64_float32_bfloat16_{{[0-9a-f]+}}, 2, 3, a, 32, b, 0, y, 8192)
// Factors stay where the host has none, where the option says so, and where a product reads elements seldom.
// APART:       // @product(a, b, y)
// APART-NEXT:  //   add_32x128x64_float32_bfloat16_{{.*}}(a, b, y)
// APART:       // @odd(a, b, y)
// APART-NEXT:  //   add_32x128x65_float32_bfloat16_{{.*}}(a, b, y)
func.func @product(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !sums {nki.name = "y"}) {
  linalg.generic {indexing_maps = [#k_m, #k_n, #m_n], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : !left, !right) outs(%y : !sums) {
  ^bb0(%x: bf16, %z: bf16, %old: f32):
    %0 = "scalar.convert"(%x) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.convert"(%z) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %2 = "scalar.alu"(%0, %1) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %3 = "scalar.alu"(%old, %2) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %3 : f32
  }
  return
}

func.func @odd(%a: !odd_left {nki.name = "a"}, %b: !odd_right {nki.name = "b"}, %y: !sums {nki.name = "y"}) {
  linalg.generic {indexing_maps = [#k_m, #k_n, #m_n], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : !odd_left, !odd_right) outs(%y : !sums) {
  ^bb0(%x: bf16, %z: bf16, %old: f32):
    %0 = "scalar.convert"(%x) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.convert"(%z) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %2 = "scalar.alu"(%0, %1) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %3 = "scalar.alu"(%old, %2) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %3 : f32
  }
  return
}
