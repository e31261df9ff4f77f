// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --linalg-to-nisa --verify-target %s | FileCheck %s

#same = affine_map<(d0, d1) -> (d0, d1)>

// A mask that is no box: the result is computed whole and copied where a predicate holds.
// CHECK-LABEL: func.func @compute
// CHECK:         "nisa.activation"(%[[V:[^,]*]], %{{[^,]*}})
// CHECK:         "nisa.memset"(%[[P:[^)]*]])
// CHECK-SAME:      value = 1.0
// CHECK:         "nisa.affine_select"(%[[P]], %[[P]])
// CHECK-SAME:      predicate = #[[BELOW:map[0-9]*]]
// CHECK:         "nisa.tensor_copy_predicated"(%{{[^,]*}}, %[[V]], %[[P]])
func.func @compute() {
  %x = memref.alloc() : memref<4x4xf32, "sbuf">
  %y = memref.alloc() : memref<4x4xf32, "sbuf">
  linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"],
                  nki.mask = affine_set<(d0, d1) : (d0 - d1 >= 0)>}
    ins(%x : memref<4x4xf32, "sbuf">) outs(%y : memref<4x4xf32, "sbuf">) {
  ^bb0(%p: f32, %r: f32):
    %e = "scalar.activation"(%p) {fn = "exp"} : (f32) -> f32
    linalg.yield %e : f32
  }
  return
}

// A transfer moves the active elements alone, a box at a time.
// CHECK-LABEL: func.func @store
// CHECK-COUNT-4: "nisa.dma_copy"(%arg0, %{{[^,]*}})
// CHECK-NOT:     nisa.
// CHECK:         return
func.func @store(%y: memref<4x4xf32, "hbm">) {
  %x = memref.alloc() : memref<4x4xf32, "sbuf">
  linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"],
                  nki.mask = affine_set<(d0, d1) : (d0 - d1 >= 0)>}
    ins(%x : memref<4x4xf32, "sbuf">) outs(%y : memref<4x4xf32, "hbm">) {
  ^bb0(%p: f32, %r: f32):
    linalg.yield %p : f32
  }
  return
}
