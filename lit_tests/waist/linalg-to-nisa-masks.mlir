// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --linalg-to-nisa --verify-target %s | FileCheck %s

#same = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-DAG: #[[BELOW:map[0-9]*]] = affine_map<(d0, d1) -> (d0 - d1)>
// CHECK-DAG: #[[ROW_0:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-DAG: #[[ROW_1:map[0-9]*]] = affine_map<() -> (1, 0)>
// CHECK-DAG: #[[ROW_2:map[0-9]*]] = affine_map<() -> (2, 0)>
// CHECK-DAG: #[[ROW_3:map[0-9]*]] = affine_map<() -> (3, 0)>
// CHECK-DAG: #[[HBM_0:map[0-9]*]] = affine_map<() -> (0)>
// CHECK-DAG: #[[HBM_4:map[0-9]*]] = affine_map<() -> (4)>
// CHECK-DAG: #[[HBM_8:map[0-9]*]] = affine_map<() -> (8)>
// CHECK-DAG: #[[HBM_12:map[0-9]*]] = affine_map<() -> (12)>

// A mask that is not a box: the result is computed whole and copied where a predicate holds.
// CHECK-LABEL: func.func @compute(
// CHECK-NEXT:    %[[X:.*]] = memref.alloc() : memref<4x4xf32, "sbuf">
// CHECK-NEXT:    %[[Y:.*]] = memref.alloc() : memref<4x4xf32, "sbuf">
// CHECK-NEXT:    %[[V:.*]] = memref.alloc() : memref<4x4xf32, "sbuf">
// CHECK-NEXT:    "nisa.activation"(%[[V]], %[[X]]) {{.*}} fn = "exp"
// CHECK-NEXT:    %[[P:.*]] = memref.alloc() : memref<4x4xui8, "sbuf">
// CHECK-NEXT:    "nisa.memset"(%[[P]]) {{.*}} value = 1.000000e+00 : f64
// CHECK-NEXT:    "nisa.affine_select"(%[[P]], %[[P]]) {{.*}} predicate = #[[BELOW]], value = 0.000000e+00 : f64
// CHECK-NEXT:    "nisa.tensor_copy_predicated"(%[[Y]], %[[V]], %[[P]]) {{.*}} reverse_pred = false
// CHECK-NEXT:    return
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

// A transfer moves the active elements alone, a box at a time: here a row.
// CHECK-LABEL: func.func @store(
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<4x4xf32, "hbm">
// CHECK-NEXT:    %[[X:.*]] = memref.alloc()
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[HBM_0]], {{\[\[}}1, 1], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ROW_0]], {{\[\[}}1, 1], [1, 1]]>]
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[HBM_4]], {{\[\[}}1, 1], [1, 2]]>,
// CHECK-SAME:                #nki.access<f32, #[[ROW_1]], {{\[\[}}1, 1], [1, 2]]>]
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[HBM_8]], {{\[\[}}1, 1], [1, 3]]>,
// CHECK-SAME:                #nki.access<f32, #[[ROW_2]], {{\[\[}}1, 1], [1, 3]]>]
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[HBM_12]], {{\[\[}}1, 1], [1, 4]]>,
// CHECK-SAME:                #nki.access<f32, #[[ROW_3]], {{\[\[}}1, 1], [1, 4]]>]
// CHECK-NEXT:    return
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
