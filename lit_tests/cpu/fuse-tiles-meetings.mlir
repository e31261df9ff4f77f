// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --fuse-tiles %s | FileCheck %s

// What is read from shared memory before a barrier is not read behind it, where another core may have written it.

// CHECK-LABEL: func.func @before(
// CHECK:       linalg.generic
// CHECK:       "nisa.core_barrier"
// CHECK:       linalg.generic
// CHECK-SAME:    ins(%alloc

// CHECK-LABEL: func.func @no_barrier(
// CHECK:       linalg.generic
// CHECK-NOT:   linalg.generic

#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @before(%held: memref<2x4xf32, "hbm"> {nki.name = "held", nki.shared = 0 : i64},
                  %other: memref<2x4xf32, "hbm"> {nki.name = "other", nki.shared = 1 : i64},
                  %out: memref<2x4xf32, "hbm"> {nki.name = "out", nki.shared = 2 : i64})
    attributes {nki.grid = [2], nki.results = [2]} {
  %t = memref.alloc() : memref<2x4xf32, "sbuf">
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%held : memref<2x4xf32, "hbm">) outs(%t : memref<2x4xf32, "sbuf">) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.addf %a, %a : f32
    linalg.yield %b : f32
  }
  "nisa.core_barrier"(%other) {access = [#nki.access<f32, affine_map<() -> (0)>, [[4, 2], [1, 4]]>],
    cores = [0, 1], engine = "unknown", mask = affine_set<() : (0 == 0)>} : (memref<2x4xf32, "hbm">) -> ()
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : memref<2x4xf32, "sbuf">) outs(%out : memref<2x4xf32, "hbm">) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.mulf %a, %a : f32
    linalg.yield %b : f32
  }
  return
}

func.func @no_barrier(%held: memref<2x4xf32, "hbm"> {nki.name = "held", nki.shared = 0 : i64},
                      %out: memref<2x4xf32, "hbm"> {nki.name = "out", nki.shared = 1 : i64})
    attributes {nki.grid = [2], nki.results = [1]} {
  %t = memref.alloc() : memref<2x4xf32, "sbuf">
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%held : memref<2x4xf32, "hbm">) outs(%t : memref<2x4xf32, "sbuf">) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.addf %a, %a : f32
    linalg.yield %b : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : memref<2x4xf32, "sbuf">) outs(%out : memref<2x4xf32, "hbm">) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.mulf %a, %a : f32
    linalg.yield %b : f32
  }
  return
}
