// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --nisa-to-linalg --split-input-file --verify-diagnostics %s

!tile = memref<64x64xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>

// Tile operations are lowered by nki-to-linalg, before this pass.
func.func @tiles(%x: !tile) {
  // expected-error @+1 {{'nki.unary' is not legal at the waist level}}
  "nki.unary"(%x, %x) {access = [#tile, #tile], mask = #all, fn = "exp"} : (!tile, !tile) -> ()
  return
}
