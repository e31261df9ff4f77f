// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products whose sums start from 0 begin in registers, and are stored where a copy puts them.
// RUN: nki-opt --store-products %s | FileCheck %s

#a = affine_map<(k, m, n) -> (k, m)>
#b = affine_map<(k, m, n) -> (k, n)>
#c = affine_map<(k, m, n) -> (m, n)>
!left = memref<32x16xf32, "hbm">
!right = memref<32x64xf32, "hbm">
!sums = memref<16x64xf32, "psum">
!rows = memref<16x128xf32, "sbuf">
!half = memref<16x64xf32, strided<[128, 1], offset: 64>, "sbuf">
!out = memref<16x128xf32, "hbm">
!large = memref<32x128xf32, "psum">
!corner = memref<16x64xf32, strided<[128, 1]>, "psum">
!below = memref<15x64xf32, strided<[128, 1], offset: 128>, "psum">
!lower = memref<15x64xf32, strided<[128, 1], offset: 256>, "psum">
!part = memref<15x64xf32, strided<[128, 1]>, "hbm">

// The fill is a part of the product.
// CHECK-LABEL: func.func @stored(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: {{.*}}"a"}, %[[B:[a-z0-9]+]]: {{.*}}"b"}, %[[Y:[a-z0-9]+]]:
// CHECK-NEXT:    %[[ROWS:.*]] = memref.alloc() : memref<2048xf32, "sbuf">
// CHECK-NEXT:    %[[LEFT:.*]] = memref.reinterpret_cast %[[A]] to offset: [0], sizes: [16, 32], strides: [1, 16]
// CHECK-NEXT:    %[[RIGHT:.*]] = memref.reinterpret_cast %[[B]] to offset: [0], sizes: [64, 32], strides: [1, 64]
// CHECK-NEXT:    %[[HALF:.*]] = memref.reinterpret_cast %[[ROWS]] to offset: [64], sizes: [16, 64], strides: [128, 1]
// CHECK-NEXT:    %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    linalg.fill {native.fresh} ins(%[[ZERO]] : f32) outs(%[[HALF]] : {{.*}})
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[LEFT]], %[[RIGHT]] : {{.*}}) outs(%[[HALF]] : {{.*}}) attrs = {native.fresh}
// CHECK:         %[[TO:.*]] = memref.reinterpret_cast %[[Y]] to offset: [0], sizes: [2048], strides: [1]
// CHECK-NEXT:    linalg.copy ins(%[[ROWS]] : {{.*}}) outs(%[[TO]] : {{.*}})
// CHECK-NEXT:    return
func.func @stored(%x: !left {nki.name = "a"}, %w: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %rows = memref.alloc() : !rows
  %sums = memref.alloc() : !sums
  linalg.fill ins(%zero : f32) outs(%sums : !sums)
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["reduction", "parallel", "parallel"]}
    ins(%x, %w : !left, !right) outs(%sums : !sums) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  %half = memref.reinterpret_cast %rows to offset: [64], sizes: [16, 64], strides: [128, 1] : !rows to !half
  linalg.copy ins(%sums : !sums) outs(%half : !half)
  linalg.copy ins(%rows : !rows) outs(%y : !out)
  return
}

// The product writes a box of the tile. The first copy stays inside of it; the second one reads a row of zeros.
// CHECK-LABEL: func.func @in_a_box(
// CHECK:         %[[TILE:.*]] = memref.alloc() : memref<4096xf32, "sbuf">
// CHECK:         %[[BOX:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [0], sizes: [16, 64], strides: [128, 1]
// CHECK:         linalg.fill {native.fresh} ins(%{{.*}} : f32) outs(%[[BOX]] : {{.*}})
// CHECK-NEXT:    linalg.generic {{.*}} outs(%[[BOX]] : {{.*}}) attrs = {native.fresh}
// CHECK-LABEL: func.func @beyond_a_box(
// CHECK:         %[[ALL:.*]] = memref.alloc() : memref<4096xf32, "sbuf">
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[ALL]] : {{.*}})
// CHECK:         %[[CORNER:.*]] = memref.reinterpret_cast %[[ALL]] to offset: [0], sizes: [16, 64], strides: [128, 1]
// CHECK-NEXT:    linalg.generic {{.*}} outs(%[[CORNER]] : memref<16x64xf32, strided<[128, 1]>, "sbuf">) {
func.func @in_a_box(%x: !left {nki.name = "a"}, %w: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : !large
  linalg.fill ins(%zero : f32) outs(%t : !large)
  %sums = memref.reinterpret_cast %t to offset: [0], sizes: [16, 64], strides: [128, 1] : !large to !corner
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["reduction", "parallel", "parallel"]}
    ins(%x, %w : !left, !right) outs(%sums : !corner) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  %from = memref.reinterpret_cast %t to offset: [128], sizes: [15, 64], strides: [128, 1] : !large to !below
  %to = memref.reinterpret_cast %y to offset: [0], sizes: [15, 64], strides: [128, 1] : !out to !part
  linalg.copy ins(%from : !below) outs(%to : !part)
  return
}
func.func @beyond_a_box(%x: !left {nki.name = "a"}, %w: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : !large
  linalg.fill ins(%zero : f32) outs(%t : !large)
  %sums = memref.reinterpret_cast %t to offset: [0], sizes: [16, 64], strides: [128, 1] : !large to !corner
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["reduction", "parallel", "parallel"]}
    ins(%x, %w : !left, !right) outs(%sums : !corner) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  %from = memref.reinterpret_cast %t to offset: [256], sizes: [15, 64], strides: [128, 1] : !large to !lower
  %to = memref.reinterpret_cast %y to offset: [0], sizes: [15, 64], strides: [128, 1] : !out to !part
  linalg.copy ins(%from : !lower) outs(%to : !part)
  return
}
