// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --synchronize-engines --verify-diagnostics %s

func.func @unplaced() {
  // expected-error @+1 {{the buffer t has no address}}
  %t = memref.alloc() {nki.name = "t"} : memref<128x64xf32, "sbuf">
  "nisa.memset"(%t) {engine = "vector", mask = affine_set<() : (0 == 0)>, value = 0.0 : f64,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>]} : (memref<128x64xf32, "sbuf">) -> ()
  return
}
