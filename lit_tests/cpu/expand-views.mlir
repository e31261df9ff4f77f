// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --expand-views %s | FileCheck %s

!tile = memref<128x64xf32, strided<[512, 1], offset: ?>, "sbuf">
!column = memref<128xf32, strided<[512], offset: 7>, "sbuf">
!bytes = memref<128x512xui8, strided<[2048, 4], offset: 3>, "sbuf">
!part = memref<4x64xf32, strided<[64, 1], offset: ?>, "hbm">
#tile = #nki.access<f32, affine_map<()[i, j] -> (i, j * 64 - 64)>, [[1, 128], [1, 64]]>
#column = #nki.access<f32, affine_map<() -> (0, 7)>, [[1, 128], [1, 1]]>
#bytes = #nki.access<ui8, affine_map<() -> (0, 3)>, [[1, 128], [4, 512]]>
#before = #nki.access<f32, affine_map<() -> (-64)>, [[64, 4], [1, 64]]>
#set = affine_set<(d0, d1) : (d0 - 1 >= 0)>
#same = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-DAG: #[[TILE:map[0-9]*]] = affine_map<()[s0, s1] -> (s0 * 512 + s1 * 64 - 64)>
// CHECK-DAG: #[[BEFORE:map[0-9]*]] = affine_map<() -> (-64)>

// A partition is a row's length; where the element type changes, the buffer's bytes are seen as others first. Constants
// below 0, of views that a mask cuts, are values.
// CHECK-LABEL: func.func @views(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<129x512xf32, "sbuf">, %[[Y:[a-z0-9]+]]: memref<128x512xf32, "sbuf">,
// CHECK-SAME:    %[[H:[a-z0-9]+]]: memref<3x64xf32, "hbm">
// CHECK:         scf.for %[[I:[a-z0-9]+]] =
// CHECK-NEXT:      scf.for %[[J:[a-z0-9]+]] =
// CHECK-NEXT:        %[[AT:.*]] = affine.apply #[[TILE]]()[%[[I]], %[[J]]]
// CHECK-NEXT:        %[[A:.*]] = memref.reinterpret_cast %[[X]] to offset: [%[[AT]]], sizes: [128, 64], strides: [512, 1]
// CHECK-SAME:          to memref<128x64xf32, strided<[512, 1], offset: ?>, "sbuf">
// CHECK-NEXT:        linalg.fill ins(%{{.*}} : f32) outs(%[[A]] :
// CHECK:         %[[B:.*]] = memref.reinterpret_cast %[[Y]] to offset: [7], sizes: [128], strides: [512]
// CHECK-SAME:      to memref<128xf32, strided<[512], offset: 7>, "sbuf">
// CHECK-NEXT:    linalg.fill ins(%{{.*}} : f32) outs(%[[B]] :
// CHECK-NEXT:    %[[BUFFER:.*]] = "nki.reinterpret"(%[[Y]]) : (memref<128x512xf32, "sbuf">) -> memref<128x2048xui8, "sbuf">
// CHECK-NEXT:    %[[C:.*]] = memref.reinterpret_cast %[[BUFFER]] to offset: [3], sizes: [128, 512], strides: [2048, 4]
// CHECK:         linalg.generic {{.*}} outs(%[[C]] :
// CHECK:         %[[AT:.*]] = affine.apply #[[BEFORE]]()
// CHECK-NEXT:    %[[D:.*]] = memref.reinterpret_cast %[[H]] to offset: [%[[AT]]], sizes: [4, 64], strides: [64, 1]
// CHECK-NEXT:    linalg.generic {{.*}} outs(%[[D]] :
// CHECK-NOT:     nki.view
func.func @views(%x: memref<129x512xf32, "sbuf">, %y: memref<128x512xf32, "sbuf">, %h: memref<3x64xf32, "hbm">) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c9 = arith.constant 9 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %c0 to %c2 step %c1 {
    scf.for %j = %c1 to %c9 step %c1 {
      %a = "nki.view"(%x, %i, %j) {access = #tile} : (memref<129x512xf32, "sbuf">, index, index) -> !tile
      linalg.fill ins(%zero : f32) outs(%a : !tile)
    }
  }
  %b = "nki.view"(%y) {access = #column, dims = array<i64: 0>} : (memref<128x512xf32, "sbuf">) -> !column
  linalg.fill ins(%zero : f32) outs(%b : !column)
  %c = "nki.view"(%y) {access = #bytes} : (memref<128x512xf32, "sbuf">) -> !bytes
  linalg.generic {indexing_maps = [#same], iterator_types = ["parallel", "parallel"]} outs(%c : !bytes) {
  ^bb0(%old: ui8):
    linalg.yield %old : ui8
  }
  %d = "nki.view"(%h) {access = #before, masked} : (memref<3x64xf32, "hbm">) -> !part
  linalg.generic {indexing_maps = [#same], iterator_types = ["parallel", "parallel"]} outs(%d : !part)
      attrs = {nki.mask = #set} {
  ^bb0(%old: f32):
    linalg.yield %zero : f32
  }
  return
}
