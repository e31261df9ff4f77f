// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --split-masked-loops --verify-diagnostics %s

!x = memref<400x64xf32, "hbm">
!tile = memref<128x64xf32, "sbuf">
#tile_i = #nki.access<f32, affine_map<()[i] -> (0, 0)>, [[1, 128], [1, 64]]>
#rows_i = #nki.access<f32, affine_map<()[i] -> (i * 8192)>, [[64, 128], [1, 64]]>
#below_411 = affine_set<(p, f)[i] : (i * -128 - p + 410 >= 0)>
#below_400 = affine_set<(p, f)[i] : (i * -128 - p + 399 >= 0)>
func.func @outside(%x: !x) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() : !tile
    // expected-error @+1 {{an index is 11 elements outside its dimension wherever this operation runs}}
    "nki.load"(%t, %x, %i) {access = [#tile_i, #rows_i], mask = #below_411, nki.limits = #below_400}
      : (!tile, !x, index) -> ()
  }
  return
}
