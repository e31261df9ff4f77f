// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tile of 32 rows of 128 floats, of which a product reads the right half, becomes four panels of 32 rows of 32 floats.
// RUN: nki-opt --divide-columns="least=1 width=32" %s | FileCheck %s
// RUN: nki-opt --divide-columns="width=32" %s | FileCheck %s --check-prefix=KEPT
// RUN: nki-opt --divide-columns="least=1 width=32 rows=17" %s | FileCheck %s --check-prefix=KEPT

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(i, j) -> (i, j)>
!left = memref<32x16xf32, "hbm">
!right = memref<32x128xf32, "hbm">
!tile = memref<32x128xf32, "sbuf">
!part = memref<32x64xf32, strided<[128, 1], offset: 64>, "sbuf">
!out = memref<16x64xf32, "hbm">

// CHECK-LABEL: func.func @product(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: {{.*}}"a"}, %[[B:[a-z0-9]+]]: {{.*}}"b"}, %[[Y:[a-z0-9]+]]:
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() : memref<4096xf32, "sbuf">
// CHECK-NEXT:    %[[FROM:.*]] = memref.reinterpret_cast %[[B]] to offset: [0], sizes: [32, 4, 32], strides: [128, 32, 1]
// CHECK-NEXT:    %[[PANELS:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [0], sizes: [32, 4, 32], strides: [32, 1024, 1]
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[FROM]] : {{.*}}) outs(%[[PANELS]] : {{.*}})
// CHECK:         %[[LEFT:.*]] = memref.reinterpret_cast %[[A]] to offset: [0], sizes: [16, 32], strides: [1, 16]
// CHECK-NEXT:    %[[HALF:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [2048], sizes: [2, 32, 32], strides: [1024, 1, 32]
// CHECK-NEXT:    %[[OUT:.*]] = memref.reinterpret_cast %[[Y]] to offset: [0], sizes: [16, 2, 32], strides: [64, 32, 1]
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[LEFT]], %[[HALF]] : {{.*}}) outs(%[[OUT]] : {{.*}})
// KEPT-LABEL:  func.func @product(
// KEPT:          memref.reinterpret_cast %{{.*}} to offset: [64], sizes: [64, 32], strides: [1, 128]
func.func @product(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %tile = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%b : !right) outs(%tile : !tile) {
  ^bb0(%x: f32, %old: f32):
    %0 = "scalar.activation"(%x) {fn = "exp"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  %part = memref.reinterpret_cast %tile to offset: [64], sizes: [32, 64], strides: [128, 1] : !tile to !part
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %part : !left, !part) outs(%y : !out) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
