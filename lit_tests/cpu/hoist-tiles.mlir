// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each iteration of the outer loop copies the same four panels, which products read: one loop before it copies them.
// RUN: nki-opt --hoist-tiles %s | FileCheck %s
// RUN: nki-opt --hoist-tiles="most=32767" %s | FileCheck %s --check-prefix=LARGE

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
!left = memref<32x128xf32, "hbm">
!rows = memref<32x32xf32, strided<[128, 1], offset: ?>, "hbm">
!right = memref<32x256xf32, "hbm">
!panel = memref<32x64xf32, strided<[256, 1], offset: ?>, "hbm">
!tile = memref<32x64xf32, "sbuf">
!sums = memref<128x256xf32, "hbm">
!out = memref<32x64xf32, strided<[256, 1], offset: ?>, "hbm">

// CHECK-LABEL: func.func @repeated(
// CHECK:         %[[TILES:.*]] = memref.alloc() : memref<8192xf32, "sbuf">
// CHECK:         scf.for %[[K:.*]] = %c0 to %c4 step %c1 {
// CHECK-NEXT:      %[[FROM:.*]] = affine.apply #[[PANEL:.*]]()[%[[K]]]
// CHECK-NEXT:      %[[SOURCE:.*]] = memref.reinterpret_cast %arg1 to offset: [%[[FROM]]], sizes: [32, 64], strides: [256, 1]
// CHECK-NEXT:      %[[TO:.*]] = affine.apply #[[TILE:.*]]()[%[[K]]]
// CHECK-NEXT:      %[[TARGET:.*]] = memref.reinterpret_cast %[[TILES]] to offset: [%[[TO]]], sizes: [32, 64], strides: [64, 1]
// CHECK-NEXT:      linalg.copy ins(%[[SOURCE]] : {{.*}}) outs(%[[TARGET]] :
// CHECK-NEXT:    }
// CHECK-NEXT:    scf.for %{{.*}} = %c0 to %c4 step %c1 {
// CHECK-NOT:       memref.alloc
// CHECK:           scf.for %[[J:.*]] = %c0 to %c8 step %c2 {
// CHECK-NOT:         linalg.copy
// CHECK:             %[[AT:.*]] = affine.apply #[[HALF:.*]]()[%[[J]]]
// CHECK:             memref.reinterpret_cast %[[TILES]] to offset: [%[[AT]]], sizes: [64, 32], strides: [1, 64]
// There is no room for four panels.
// LARGE-LABEL: func.func @repeated(
// LARGE:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
// LARGE:           %[[TILE:.*]] = memref.alloc() : memref<2048xf32, "sbuf">
// LARGE:           scf.for %[[J:.*]] = %c0 to %c8 step %c2 {
// LARGE:             linalg.copy ins(%{{.*}} : {{.*}}) outs(%[[TILE]] :
func.func @repeated(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"},
                    %y: !sums {nki.name = "y", nki.shared = 0 : i64}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %tile = memref.alloc() : !tile
    scf.for %j = %c0 to %c8 step %c2 {
      %at_b = affine.apply affine_map<()[s0] -> (s0 * 32)>()[%j]
      %panel = memref.reinterpret_cast %b to offset: [%at_b], sizes: [32, 64], strides: [256, 1] : !right to !panel
      linalg.copy ins(%panel : !panel) outs(%tile : !tile)
      %at_a = affine.apply affine_map<()[s0] -> (s0 * 32)>()[%i]
      %rows = memref.reinterpret_cast %a to offset: [%at_a], sizes: [32, 32], strides: [128, 1] : !left to !rows
      %at_y = affine.apply affine_map<()[s0, s1] -> (s0 * 8192 + s1 * 32)>()[%i, %j]
      %o = memref.reinterpret_cast %y to offset: [%at_y], sizes: [32, 64], strides: [256, 1] : !sums to !out
      linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%rows, %tile : !rows, !tile) outs(%o : !out) {
      ^bb0(%x: f32, %z: f32, %w: f32):
        %p = arith.mulf %x, %z : f32
        %s = arith.addf %w, %p : f32
        linalg.yield %s : f32
      }
    }
  }
  return
}

// The kernel writes what it copies: the copy stays.
// CHECK-LABEL: func.func @written(
// CHECK:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
// CHECK-NEXT:      %[[TILE:.*]] = memref.alloc() : memref<2048xf32, "sbuf">
// CHECK:           linalg.copy ins(%{{.*}} : {{.*}}) outs(%[[TILE]] :
// CHECK:           linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : {{.*}}) outs(%arg1 :
func.func @written(%a: !left {nki.name = "a"}, %b: !tile {nki.name = "b"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %tile = memref.alloc() : !tile
    linalg.copy ins(%b : !tile) outs(%tile : !tile)
    %at_a = affine.apply affine_map<()[s0] -> (s0 * 32)>()[%i]
    %rows = memref.reinterpret_cast %a to offset: [%at_a], sizes: [32, 32], strides: [128, 1] : !left to !rows
    linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%rows, %tile : !rows, !tile) outs(%b : !tile) {
    ^bb0(%x: f32, %z: f32, %w: f32):
      %p = arith.mulf %x, %z : f32
      %s = arith.addf %w, %p : f32
      linalg.yield %s : f32
    }
  }
  return
}
