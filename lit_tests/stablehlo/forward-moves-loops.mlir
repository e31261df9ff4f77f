// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --forward-moves %s | FileCheck %s

// A product in a loop writes the carried buffer, which stays allocated around the loop.
// CHECK-LABEL: func.func @carried(
// CHECK:         %[[CARRIED:.*]] = memref.alloc() : memref<4x16xf32, "hbm">
// CHECK:         linalg.generic {{.*}} outs(%[[CARRIED]] :
// CHECK:         scf.for %{{.*}} = %{{.*}} to %{{.*}} {
// CHECK-NOT:       memref.alloc
// CHECK:           linalg.generic {{.*}} ins(%[[CARRIED]] :
// CHECK:           %[[FILL:.*]] = memref.reinterpret_cast %[[CARRIED]]
// CHECK:           linalg.generic {{.*}} ins(%{{.*}} : f32) outs(%[[FILL]] :
// CHECK:           %[[SUMS:.*]] = memref.reinterpret_cast %[[CARRIED]]
// CHECK:           linalg.generic {{.*}} "reduction"]} {{.*}} outs(%[[SUMS]] :
// CHECK-NOT:       linalg.generic
// CHECK:         }
#whole = affine_map<(d0, d1) -> (d0, d1)>
#number = affine_map<(d0, d1) -> ()>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#sums = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @carried(%x: memref<4x16xf32, "hbm"> {nki.name = "x"}, %w: memref<16x16xf32, "hbm"> {nki.name = "w"},
                   %r: memref<3x4x16xf32, "hbm"> {nki.name = "r", nki.shared = 0 : i64}) attributes {nki.results = [2]} {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %carried = memref.alloc() : memref<4x16xf32, "hbm">
  linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]} ins(%x : memref<4x16xf32, "hbm">) outs(%carried : memref<4x16xf32, "hbm">) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  scf.for %i = %c0 to %c3 step %c1 {
    %part = memref.subview %r[%i, 0, 0] [1, 4, 16] [1, 1, 1] : memref<3x4x16xf32, "hbm"> to memref<4x16xf32, strided<[16, 1], offset: ?>, "hbm">
    linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]} ins(%carried : memref<4x16xf32, "hbm">) outs(%part : memref<4x16xf32, strided<[16, 1], offset: ?>, "hbm">) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
    %product = memref.alloc() : memref<4x16xf32, "hbm">
    linalg.generic {indexing_maps = [#number, #whole], iterator_types = ["parallel", "parallel"]} ins(%zero : f32) outs(%product : memref<4x16xf32, "hbm">) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
    linalg.generic {indexing_maps = [#left, #right, #sums], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : memref<4x16xf32, "hbm">, memref<16x16xf32, "hbm">) outs(%product : memref<4x16xf32, "hbm">) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %0 = "scalar.alu"(%a, %b) {fn = "multiply"} : (f32, f32) -> f32
      %1 = "scalar.alu"(%0, %out) {fn = "add"} : (f32, f32) -> f32
      linalg.yield %1 : f32
    }
    linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]} ins(%product : memref<4x16xf32, "hbm">) outs(%carried : memref<4x16xf32, "hbm">) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
  }
  return
}
