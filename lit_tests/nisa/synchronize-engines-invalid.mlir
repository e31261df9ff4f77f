// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --synchronize-engines --verify-diagnostics %s

!tile = memref<128x64xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
func.func @unplaced() {
  // expected-error @+1 {{the buffer t has no address}}
  %t = memref.alloc() {nki.name = "t"} : !tile
  "nisa.memset"(%t) {access = [#tile], engine = "vector", mask = #all, value = 0.0 : f64} : (!tile) -> ()
  return
}
