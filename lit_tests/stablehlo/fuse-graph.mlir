// RUN: nki-opt --fuse-graph %s | FileCheck %s
// RUN: nki-opt --fuse-graph="tiles=false" %s | FileCheck --check-prefix=PARTS %s

// A kernel that copies its operand in two tiles; the graph scales what it gets and adds to what it gives. In the end
// there is one operation, in the kernel's loop.
// CHECK-LABEL: func.func @main
// CHECK-SAME:    %[[A:arg0]]: memref<8x4xf32, "hbm">
// CHECK:         scf.for
// CHECK:           %[[PART:.*]] = memref.reinterpret_cast %[[A]]
// CHECK:           linalg.generic {{.*}} ins(%[[PART]] : memref<4x4xf32, strided<[4, 1], offset: ?>, "hbm">)
// CHECK:           arith.mulf
// CHECK:           arith.addf
// CHECK-NOT:     linalg.generic

// PARTS:         scf.for
// PARTS:           linalg.generic
// PARTS:             arith.mulf
// PARTS:           linalg.generic
// PARTS:             arith.addf
// PARTS:         }
// PARTS-NOT:     linalg.generic
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
