// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --fuse-graph %s | FileCheck %s
// RUN: nki-opt --fuse-graph --fuse-tiles %s | FileCheck --check-prefix=ONE %s

// A kernel that copies its operand in two tiles; the graph scales what it gets and adds to what it gives. That happens
// where the kernel loads and stores. After the tiles, too, are fused there is one operation, in the kernel's loop.
// CHECK:       #[[ROWS:map[0-9]*]] = affine_map<()[s0] -> (s0 * 16)>
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<8x4xf32, "hbm">, %[[R:[a-z0-9]+]]: memref<8x4xf32, "hbm">
// CHECK:         %[[TWO:.*]] = arith.constant 2.0
// CHECK:         scf.for %[[I:[a-z0-9]+]] =
// CHECK-NEXT:      %[[AT:.*]] = affine.apply #[[ROWS]]()[%[[I]]]
// CHECK-NEXT:      %[[TILE:.*]] = memref.alloc() : memref<4x4xf32, "sbuf">
// CHECK-NEXT:      %[[FROM:.*]] = memref.reinterpret_cast %[[A]] to offset: [%[[AT]]], sizes: [4, 4], strides: [4, 1]
// CHECK-NEXT:      linalg.generic {{.*}} ins(%[[FROM]] : {{.*}}) outs(%[[TILE]] :
// CHECK-NEXT:      (%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:        %[[SCALED:.*]] = arith.mulf %[[IN]], %[[TWO]]
// CHECK-NEXT:        linalg.yield %[[SCALED]]
// CHECK:           %[[TO:.*]] = memref.reinterpret_cast %[[R]] to offset: [%[[AT]]], sizes: [4, 4], strides: [4, 1]
// CHECK-NEXT:      linalg.generic {{.*}} ins(%[[TILE]] : {{.*}}) outs(%[[TO]] :
// CHECK-NEXT:      (%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:        %[[SUM:.*]] = arith.addf %[[IN]], %[[TWO]]
// CHECK-NEXT:        linalg.yield %[[SUM]]
// CHECK-NOT:     linalg.generic

// ONE-LABEL: func.func @main(
// ONE-SAME:    %[[A:[a-z0-9]+]]: memref<8x4xf32, "hbm">, %[[R:[a-z0-9]+]]: memref<8x4xf32, "hbm">
// ONE:         %[[TWO:.*]] = arith.constant 2.0
// ONE-NOT:     memref.alloc
// ONE:         scf.for %[[I:[a-z0-9]+]] =
// ONE-NEXT:      %[[AT:.*]] = affine.apply #{{.*}}()[%[[I]]]
// ONE-NEXT:      %[[FROM:.*]] = memref.reinterpret_cast %[[A]] to offset: [%[[AT]]], sizes: [4, 4], strides: [4, 1]
// ONE-NEXT:      %[[TO:.*]] = memref.reinterpret_cast %[[R]] to offset: [%[[AT]]], sizes: [4, 4], strides: [4, 1]
// ONE-NEXT:      linalg.generic {{.*}} ins(%[[FROM]] : {{.*}}) outs(%[[TO]] :
// ONE-NEXT:      (%[[IN:.*]]: f32, %{{.*}}: f32):
// ONE-NEXT:        %[[SCALED:.*]] = arith.mulf %[[IN]], %[[TWO]]
// ONE-NEXT:        %[[SUM:.*]] = arith.addf %[[SCALED]], %[[TWO]]
// ONE-NEXT:        linalg.yield %[[SUM]]
// ONE-NOT:     linalg.generic
#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<()[i] -> (i * 16)>
!hbm = memref<8x4xf32, "hbm">
!part = memref<4x4xf32, strided<[4, 1], offset: ?>, "hbm">
!tile = memref<4x4xf32, "sbuf">
func.func @main(%a: !hbm, %r: !hbm {nki.shared = 0 : i64}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %f = arith.constant 2.0 : f32
  %scaled = memref.alloc() : !hbm
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%a : !hbm) outs(%scaled : !hbm) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %f : f32
    linalg.yield %0 : f32
  }
  %made = memref.alloc() : !hbm
  scf.for %i = %c0 to %c2 step %c1 {
    %at = affine.apply #rows()[%i]
    %tile = memref.alloc() : !tile
    %from = memref.reinterpret_cast %scaled to offset: [%at], sizes: [4, 4], strides: [4, 1] : !hbm to !part
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%from : !part) outs(%tile : !tile) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
    %to = memref.reinterpret_cast %made to offset: [%at], sizes: [4, 4], strides: [4, 1] : !hbm to !part
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%tile : !tile) outs(%to : !part) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%made : !hbm) outs(%r : !hbm) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %f : f32
    linalg.yield %0 : f32
  }
  return
}
