// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An operation computes with the number that fills a tile; one that has no other input reads the tile.
// RUN: nki-opt --forward-constants %s | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
!in = memref<16x64xf32, "hbm">
!tile = memref<16x64xf32, "sbuf">

// CHECK-LABEL: func.func @multiplied(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[Y:[a-z0-9]+]]:
// CHECK-NOT:     memref.alloc
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<1024xf32, strided<[1]>, "hbm">) outs(%{{.*}} : memref<1024xf32, strided<[1]>, "hbm">)
// CHECK-NEXT:    ^bb0(%[[A:[a-z0-9]+]]: f32, %{{[a-z0-9]+}}: f32):
// CHECK-NEXT:      %[[NUMBER:.*]] = arith.constant 2.500000e+00 : f32
// CHECK-NEXT:      "scalar.alu"(%[[A]], %[[NUMBER]]) {fn = "multiply"} : (f32, f32) -> f32
func.func @multiplied(%x: !in {nki.name = "x"}, %y: !in {nki.name = "y", nki.shared = 0 : i64}) {
  %tile = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%tile : !tile) {
  ^bb0(%old: f32):
    %0 = arith.constant 2.5 : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %tile : !in, !tile) outs(%y : !in) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %0 = "scalar.alu"(%a, %b) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %0 : f32
  }
  return
}

// CHECK-LABEL: func.func @copied(
// CHECK:         %[[TILE:.*]] = memref.alloc() : memref<1024xf32, "sbuf">
// CHECK:         linalg.copy ins(%[[TILE]] : memref<1024xf32, "sbuf">) outs(%{{.*}} : memref<1024xf32, strided<[1]>, "hbm">)
func.func @copied(%y: !in {nki.name = "y", nki.shared = 0 : i64}) {
  %tile = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%tile : !tile) {
  ^bb0(%old: f32):
    %0 = arith.constant 2.5 : f32
    linalg.yield %0 : f32
  }
  linalg.copy ins(%tile : !tile) outs(%y : !in)
  return
}
