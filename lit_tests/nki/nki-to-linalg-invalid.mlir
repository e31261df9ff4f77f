// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --nki-to-linalg --split-input-file --verify-diagnostics %s

// The pass reads the tile level.
func.func @lowered(%x: memref<64x64xf32, "sbuf">, %c: f32) {
  // expected-error @+1 {{'linalg.fill' is not legal at the nki level}}
  linalg.fill ins(%c : f32) outs(%x : memref<64x64xf32, "sbuf">)
  return
}

// -----

// Two views of a buffer's bytes have the same size.
func.func @bytes(%x: memref<64x10xf32, "sbuf">) {
  // expected-error @+1 {{'nki.reinterpret' op changes (memory, partitions, bytes) ('sbuf', 64, 40) to ('sbuf', 64, 38)}}
  %y = "nki.reinterpret"(%x) : (memref<64x10xf32, "sbuf">) -> memref<64x19xbf16, "sbuf">
  return
}

// -----

func.func @view(%x: memref<64x10xf32, strided<[20, 1]>, "sbuf">) {
  // expected-error @+1 {{'nki.reinterpret' op takes contiguous memrefs of the language's element types}}
  %y = "nki.reinterpret"(%x) : (memref<64x10xf32, strided<[20, 1]>, "sbuf">) -> memref<64x20xbf16, "sbuf">
  return
}
