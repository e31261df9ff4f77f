// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A product of tiles keeps a tile of the result in registers over the summed axis.
// RUN: nki-opt --lower-to-vector %s | FileCheck %s

// CHECK: // [[PRODUCT:add_16x512x128_float32_bfloat16_[0-9a-f]+]](a, b, c)
func.func @product(%a: memref<128x16xbf16, "hbm"> {nki.name = "a"}, %b: memref<128x512xbf16, "hbm"> {nki.name = "b"},
                   %c: memref<16x512xf32, "hbm"> {nki.name = "c"}) {
  linalg.generic {indexing_maps = [affine_map<(k, m, n) -> (k, m)>, affine_map<(k, m, n) -> (k, n)>,
                                   affine_map<(k, m, n) -> (m, n)>],
                  iterator_types = ["reduction", "parallel", "parallel"]}
    ins(%a, %b : memref<128x16xbf16, "hbm">, memref<128x512xbf16, "hbm">) outs(%c : memref<16x512xf32, "hbm">) {
  ^bb0(%x: bf16, %y: bf16, %total: f32):
    %p = "scalar.convert"(%x) : (bf16) -> f32
    %q = "scalar.convert"(%y) : (bf16) -> f32
    %r = "scalar.alu"(%p, %q) {fn = "multiply"} : (f32, f32) -> f32
    %s = "scalar.alu"(%total, %r) {fn = "add"} : (f32, f32) -> f32
    linalg.yield %s : f32
  }
  return
}

// CHECK: llvm.func internal @[[PRODUCT]]
// Column blocks, then row blocks, then the summed axis with the whole tile as loop-carried values.
// CHECK:   scf.for
// CHECK:     scf.for
// CHECK:       %[[TILE:.*]]:{{[0-9]+}} = scf.for {{.*}} iter_args
// CHECK:         math.fma
// CHECK:         scf.yield
// CHECK:       llvm.store %[[TILE]]#0
// CHECK:       llvm.store %[[TILE]]#1
