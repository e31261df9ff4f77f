// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --linalg-to-nisa=pieces=3 --split-input-file --verify-diagnostics %s

#same = affine_map<(d0, d1) -> (d0, d1)>

func.func @pieces(%y: memref<4x4xf32, "hbm">) {
  %x = memref.alloc() : memref<4x4xf32, "sbuf">
  // expected-error @+1 {{a transfer or product under a mask of more than 3 boxes is not supported}}
  linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"],
                  nki.mask = affine_set<(d0, d1) : (d0 - d1 >= 0)>}
    ins(%x : memref<4x4xf32, "sbuf">) outs(%y : memref<4x4xf32, "hbm">) {
  ^bb0(%p: f32, %r: f32):
    linalg.yield %p : f32
  }
  return
}

// -----

#same = affine_map<(d0, d1) -> (d0, d1)>

func.func @integers() {
  %x = memref.alloc() : memref<4x4xi32, "sbuf">
  %y = memref.alloc() : memref<4x4xi32, "sbuf">
  // expected-error @+1 {{'maximum' computed in int32 as an engine instruction is not supported}}
  linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<4x4xi32, "sbuf">) outs(%y : memref<4x4xi32, "sbuf">) {
  ^bb0(%p: i32, %r: i32):
    %e = "scalar.alu"(%p, %r) {fn = "maximum"} : (i32, i32) -> i32
    linalg.yield %e : i32
  }
  return
}
