// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --fuse-tiles %s | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#all = affine_set<() : (0 == 0)>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[4, 2], [1, 4]]>
!hbm = memref<2x4xf32, "hbm">
!tile = memref<2x4xf32, "sbuf">

// What is read from shared memory before a barrier is not read after it, where another core may have written it.
// CHECK-LABEL: func.func @before(
// CHECK-SAME:    %[[HELD:[a-z0-9]+]]: {{.*}}, %[[OTHER:[a-z0-9]+]]: {{.*}}, %[[OUT:[a-z0-9]+]]: memref
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<2x4xf32, "sbuf">
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[HELD]] : {{.*}}) outs(%[[T]] :
// CHECK:           arith.addf %in, %in : f32
// CHECK:         "nisa.core_barrier"(%[[OTHER]])
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[T]] : {{.*}}) outs(%[[OUT]] :
// CHECK:           arith.mulf %in, %in : f32
func.func @before(%held: !hbm {nki.name = "held", nki.shared = 0 : i64},
                  %other: !hbm {nki.name = "other", nki.shared = 1 : i64},
                  %out: !hbm {nki.name = "out", nki.shared = 2 : i64})
    attributes {nki.grid = [2], nki.results = [2]} {
  %t = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%held : !hbm) outs(%t : !tile) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.addf %a, %a : f32
    linalg.yield %b : f32
  }
  "nisa.core_barrier"(%other) {access = [#hbm], cores = [0, 1], engine = "unknown", mask = #all} : (!hbm) -> ()
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : !tile) outs(%out : !hbm) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.mulf %a, %a : f32
    linalg.yield %b : f32
  }
  return
}

// Without one, the two are one.
// CHECK-LABEL: func.func @no_barrier(
// CHECK-SAME:    %[[HELD:[a-z0-9]+]]: {{.*}}, %[[OUT:[a-z0-9]+]]: memref
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[HELD]] : {{.*}}) outs(%[[OUT]] :
// CHECK-NEXT:    (%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[SUM:.*]] = arith.addf %[[IN]], %[[IN]]
// CHECK-NEXT:      %[[PRODUCT:.*]] = arith.mulf %[[SUM]], %[[SUM]]
// CHECK-NEXT:      linalg.yield %[[PRODUCT]]
// CHECK-NOT:     linalg.generic
func.func @no_barrier(%held: !hbm {nki.name = "held", nki.shared = 0 : i64},
                      %out: !hbm {nki.name = "out", nki.shared = 1 : i64})
    attributes {nki.grid = [2], nki.results = [1]} {
  %t = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%held : !hbm) outs(%t : !tile) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.addf %a, %a : f32
    linalg.yield %b : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : !tile) outs(%out : !hbm) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.mulf %a, %a : f32
    linalg.yield %b : f32
  }
  return
}
