// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each iteration of the outer loop converts the same parts of a tile to float32: one loop before it converts them.
// RUN: nki-opt --hoist-factors %s | FileCheck %s
// RUN: nki-opt --hoist-tiles %s | FileCheck %s --check-prefix=TILES

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
!left = memref<32x128xf32, "hbm">
!rows = memref<32x32xf32, strided<[128, 1], offset: ?>, "hbm">
!right = memref<32x256xf16, "hbm">
!tile = memref<32x256xf16, "sbuf">
!panel = memref<32x64xf16, strided<[256, 1], offset: ?>, "sbuf">
!factor = memref<32x64xf32, "sbuf">
#id = affine_map<(p, f) -> (p, f)>
!sums = memref<128x256xf32, "hbm">
!out = memref<32x64xf32, strided<[256, 1], offset: ?>, "hbm">

// CHECK-LABEL: func.func @repeated(
// CHECK:         linalg.copy ins(%{{.*}} : {{.*}}) outs(%[[TILE:[a-z]+]] :
// CHECK:         %[[FACTORS:.*]] = memref.alloc() : memref<8192xf32, "sbuf">
// CHECK:         scf.for %[[K:.*]] = %c0 to %c4 step %c1 {
// CHECK:           %[[SOURCE:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [%{{.*}}], sizes: [32, 64], strides: [256, 1]
// CHECK:           %[[TARGET:.*]] = memref.reinterpret_cast %[[FACTORS]] to offset: [%{{.*}}], sizes: [32, 64], strides: [64, 1]
// CHECK:           linalg.generic {{.*}} ins(%[[SOURCE]] : {{.*}}) outs(%[[TARGET]] : {{.*}}) {
// CHECK:             "scalar.convert"(%{{.*}}) : (f16) -> f32
// CHECK:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
// CHECK-NOT:       "scalar.convert"
// CHECK:           scf.for %[[J:.*]] = %c0 to %c4 step %c1 {
// CHECK-NOT:         "scalar.convert"
// CHECK:             memref.reinterpret_cast %[[FACTORS]] to offset: [%{{.*}}], sizes: [64, 32], strides: [1, 64]
// The tile is not an input.
// TILES-LABEL: func.func @repeated(
// TILES:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
// TILES-NEXT:      scf.for %{{.*}} = %c0 to %c4 step %c1 {
// TILES:             "scalar.convert"(%{{.*}}) : (f16) -> f32
func.func @repeated(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"},
                    %y: !sums {nki.name = "y", nki.shared = 0 : i64}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %tile = memref.alloc() : !tile
  linalg.copy ins(%b : !right) outs(%tile : !tile)
  scf.for %i = %c0 to %c4 step %c1 {
    scf.for %j = %c0 to %c4 step %c1 {
      %at_b = affine.apply affine_map<()[s0] -> (s0 * 64)>()[%j]
      %panel = memref.reinterpret_cast %tile to offset: [%at_b], sizes: [32, 64], strides: [256, 1] : !tile to !panel
      %at_a = affine.apply affine_map<()[s0] -> (s0 * 32)>()[%i]
      %rows = memref.reinterpret_cast %a to offset: [%at_a], sizes: [32, 32], strides: [128, 1] : !left to !rows
      %at_y = affine.apply affine_map<()[s0, s1] -> (s0 * 8192 + s1 * 64)>()[%i, %j]
      %o = memref.reinterpret_cast %y to offset: [%at_y], sizes: [32, 64], strides: [256, 1] : !sums to !out
      %factor = memref.alloc() : !factor
      linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%panel : !panel) outs(%factor : !factor) {
      ^bb0(%z: f16, %old: f32):
        %0 = "scalar.convert"(%z) {frm = "float16", to = "float32"} : (f16) -> f32
        linalg.yield %0 : f32
      }
      linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%rows, %factor : !rows, !factor) outs(%o : !out) {
      ^bb0(%x: f32, %z: f32, %w: f32):
        %p = arith.mulf %x, %z : f32
        %s = arith.addf %w, %p : f32
        linalg.yield %s : f32
      }
    }
  }
  return
}

// The loop changes the tile: the conversion stays.
// CHECK-LABEL: func.func @written(
// CHECK:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
// CHECK:           "scalar.convert"(%{{.*}}) : (f16) -> f32
func.func @written(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"},
                   %y: !sums {nki.name = "y", nki.shared = 0 : i64}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %tile = memref.alloc() : !tile
  linalg.copy ins(%b : !right) outs(%tile : !tile)
  scf.for %i = %c0 to %c4 step %c1 {
    %at_b = arith.constant 64 : index
    %panel = memref.reinterpret_cast %tile to offset: [%at_b], sizes: [32, 64], strides: [256, 1] : !tile to !panel
    %at_a = affine.apply affine_map<()[s0] -> (s0 * 32)>()[%i]
    %rows = memref.reinterpret_cast %a to offset: [%at_a], sizes: [32, 32], strides: [128, 1] : !left to !rows
    %at_y = affine.apply affine_map<()[s0] -> (s0 * 8192)>()[%i]
    %o = memref.reinterpret_cast %y to offset: [%at_y], sizes: [32, 64], strides: [256, 1] : !sums to !out
    %factor = memref.alloc() : !factor
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%panel : !panel) outs(%factor : !factor) {
    ^bb0(%z: f16, %old: f32):
      %0 = "scalar.convert"(%z) {frm = "float16", to = "float32"} : (f16) -> f32
      linalg.yield %0 : f32
    }
    linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%rows, %factor : !rows, !factor) outs(%o : !out) {
    ^bb0(%x: f32, %z: f32, %w: f32):
      %p = arith.mulf %x, %z : f32
      %s = arith.addf %w, %p : f32
      linalg.yield %s : f32
    }
    linalg.copy ins(%b : !right) outs(%tile : !tile)
  }
  return
}
