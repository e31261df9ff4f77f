// RUN: nki-opt --split-masked-loops --verify-diagnostics %s

func.func @outside(%x: memref<400x64xf32, "hbm">) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() : memref<128x64xf32, "sbuf">
    // expected-error @+1 {{an index is 11 elements outside its dimension wherever this operation runs}}
    "nki.load"(%t, %x, %i) {
      access = [#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 64]]>,
                #nki.access<f32, affine_map<()[s0] -> (s0 * 8192)>, [[64, 128], [1, 64]]>],
      mask = affine_set<(d0, d1)[s0] : (s0 * -128 - d0 + 410 >= 0)>,
      nki.limits = affine_set<(d0, d1)[s0] : (s0 * -128 - d0 + 399 >= 0)>}
      : (memref<128x64xf32, "sbuf">, memref<400x64xf32, "hbm">, index) -> ()
  }
  return
}
