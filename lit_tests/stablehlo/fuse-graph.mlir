// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --fuse-graph %s | FileCheck %s
// RUN: nki-opt --fuse-graph --fuse-tiles %s | FileCheck --check-prefix=ONE %s

// A kernel that copies its operand in two tiles; the graph scales what it gets and adds to what it gives. That happens
// where the kernel loads and stores. After the tiles, too, are fused there is one operation, in the kernel's loop.
// CHECK:         scf.for
// CHECK:           linalg.generic
// CHECK:             arith.mulf
// CHECK:           linalg.generic
// CHECK:             arith.addf
// CHECK:         }
// CHECK-NOT:     linalg.generic

// ONE-LABEL: func.func @main
// ONE-SAME:    %[[A:arg0]]: memref<8x4xf32, "hbm">
// ONE:         scf.for
// ONE:           %[[PART:.*]] = memref.reinterpret_cast %[[A]]
// ONE:           linalg.generic {{.*}} ins(%[[PART]] : memref<4x4xf32, strided<[4, 1], offset: ?>, "hbm">)
// ONE:           arith.mulf
// ONE:           arith.addf
// ONE-NOT:     linalg.generic
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<()[s0] -> (s0 * 16)>
func.func @main(%a: memref<8x4xf32, "hbm">, %r: memref<8x4xf32, "hbm"> {nki.shared = 0 : i64}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %f = arith.constant 2.0 : f32
  %scaled = memref.alloc() : memref<8x4xf32, "hbm">
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%a : memref<8x4xf32, "hbm">) outs(%scaled : memref<8x4xf32, "hbm">) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %f : f32
    linalg.yield %0 : f32
  }
  %made = memref.alloc() : memref<8x4xf32, "hbm">
  scf.for %i = %c0 to %c2 step %c1 {
    %at = affine.apply #row()[%i]
    %tile = memref.alloc() : memref<4x4xf32, "sbuf">
    %from = memref.reinterpret_cast %scaled to offset: [%at], sizes: [4, 4], strides: [4, 1] : memref<8x4xf32, "hbm"> to memref<4x4xf32, strided<[4, 1], offset: ?>, "hbm">
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%from : memref<4x4xf32, strided<[4, 1], offset: ?>, "hbm">) outs(%tile : memref<4x4xf32, "sbuf">) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
    %to = memref.reinterpret_cast %made to offset: [%at], sizes: [4, 4], strides: [4, 1] : memref<8x4xf32, "hbm"> to memref<4x4xf32, strided<[4, 1], offset: ?>, "hbm">
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%tile : memref<4x4xf32, "sbuf">) outs(%to : memref<4x4xf32, strided<[4, 1], offset: ?>, "hbm">) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%made : memref<8x4xf32, "hbm">) outs(%r : memref<8x4xf32, "hbm">) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %f : f32
    linalg.yield %0 : f32
  }
  return
}
