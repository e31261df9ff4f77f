// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --tile-and-place="kernel-rows=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --tile-and-place %s | FileCheck %s

// A kernel loads 96 rows of what a graph's operation computes. The operation has tiles of the same rows, so that
// forward-stores drops the load; other tiles would fill all partitions.
// BEFORE-LABEL: func.func @main(
// BEFORE:         linalg.generic {{.*}} outs(%{{.*}} : memref<128x48xf32, {{.*}}"sbuf">)
// BEFORE:         scalar.activation{{.*}}exp
// CHECK-LABEL:  func.func @main(
// CHECK-NOT:      128x48
// CHECK:          linalg.generic {{.*}} outs(%{{.*}} : memref<96x64xf32, {{.*}}"sbuf">)
// CHECK:          scalar.activation{{.*}}exp
!hbm = memref<96x64xf32, "hbm">
!tile = memref<96x64xf32, "sbuf">
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: !hbm, %y: !hbm) attributes {nki.grid = [], nki.results = [1]} {
  %t = memref.alloc() : !hbm
  linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%x : !hbm) outs(%t : !hbm) {
  ^bb0(%in: f32, %out: f32):
    %0 = "scalar.activation"(%in) {fn = "exp"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  %a = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%t : !hbm) outs(%a : !tile) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%a : !tile) outs(%y : !hbm) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  return
}
