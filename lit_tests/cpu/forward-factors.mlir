// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A product reads a factor where a tile has it, instead of from a transposed copy of a part of the tile.
// RUN: nki-opt --forward-factors %s | FileCheck %s
// RUN: nki-opt --forward-factors="most=0" %s | FileCheck %s --check-prefix=KEPT
// RUN: nki-opt --forward-factors="size=4095" %s | FileCheck %s --check-prefix=LARGE

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(i, j) -> (i, j)>
#turned = affine_map<(i, j) -> (j, i)>
!in = memref<16x64xf32, "hbm">
!tile = memref<16x64xf32, "sbuf">
!part = memref<16x32xf32, strided<[64, 1], offset: 32>, "sbuf">
!factor = memref<32x16xf32, "sbuf">
!right = memref<32x64xf32, "hbm">
!out = memref<16x64xf32, "hbm">

// CHECK-LABEL: func.func @mixed(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: {{.*}}"a"}, %[[B:[a-z0-9]+]]: {{.*}}"b"}, %[[Y:[a-z0-9]+]]:
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() : memref<1024xf32, "sbuf">
// CHECK-NOT:     memref.alloc
// CHECK:         %[[LEFT:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [32], sizes: [16, 32], strides: [64, 1]
// CHECK-NEXT:    %[[RIGHT:.*]] = memref.reinterpret_cast %[[B]] to offset: [0], sizes: [64, 32], strides: [1, 64]
// CHECK:         linalg.generic {{.*}} ins(%[[LEFT]], %[[RIGHT]] : {{.*}})
// CHECK:         return
// KEPT-LABEL:  func.func @mixed(
// KEPT:          memref.alloc() : memref<1024xf32, "sbuf">
// KEPT:          memref.alloc() : memref<512xf32, "sbuf">
func.func @mixed(%a: !in {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %tile = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !in) outs(%tile : !tile) {
  ^bb0(%x: f32, %old: f32):
    %0 = "scalar.activation"(%x) {fn = "exp"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  %factor = memref.alloc() : !factor
  %part = memref.reinterpret_cast %tile to offset: [32], sizes: [16, 32], strides: [64, 1] : !tile to !part
  linalg.generic {indexing_maps = [#id, #turned], iterator_types = ["parallel", "parallel"]} ins(%part : !part) outs(%factor : !factor) {
  ^bb0(%x: f32, %old: f32):
    linalg.yield %x : f32
  }
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%factor, %b : !factor, !right) outs(%y : !out) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// A copy that converts: the tile of rounded values is stored in float32.
!narrow = memref<16x64xbf16, "sbuf">
!narrow_part = memref<16x32xbf16, strided<[64, 1], offset: 32>, "sbuf">
// CHECK-LABEL: func.func @rounded(
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() : memref<1024xf32, "sbuf">
// CHECK-NOT:     memref.alloc
// CHECK:         linalg.generic {{.*}} outs(%[[TILE]] : memref<1024xf32, "sbuf">)
// CHECK:           "scalar.activation"(%{{.*}}) {fn = "exp"} : (f32) -> f32
// CHECK-NEXT:      %[[NARROW:.*]] = "scalar.convert"(%{{.*}}) : (f32) -> bf16
// CHECK-NEXT:      %[[WIDE:.*]] = "scalar.convert"(%[[NARROW]]) : (bf16) -> f32
// CHECK-NEXT:      linalg.yield %[[WIDE]] : f32
// CHECK:         %[[LEFT:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [32], sizes: [16, 32], strides: [64, 1]
// CHECK:         linalg.generic {{.*}} ins(%[[LEFT]], %{{.*}} : {{.*}})
// KEPT-LABEL:  func.func @rounded(
// KEPT:          memref.alloc() : memref<1024xbf16, "sbuf">
// KEPT:          memref.alloc() : memref<512xf32, "sbuf">
// LARGE-LABEL: func.func @rounded(
// LARGE:         memref.alloc() : memref<1024xbf16, "sbuf">
// LARGE:         memref.alloc() : memref<512xf32, "sbuf">
func.func @rounded(%a: !in {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %tile = memref.alloc() : !narrow
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !in) outs(%tile : !narrow) {
  ^bb0(%x: f32, %old: bf16):
    %0 = "scalar.activation"(%x) {fn = "exp"} : (f32) -> f32
    %1 = "scalar.convert"(%0) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %1 : bf16
  }
  %factor = memref.alloc() : !factor
  %part = memref.reinterpret_cast %tile to offset: [32], sizes: [16, 32], strides: [64, 1] : !narrow to !narrow_part
  linalg.generic {indexing_maps = [#id, #turned], iterator_types = ["parallel", "parallel"]} ins(%part : !narrow_part) outs(%factor : !factor) {
  ^bb0(%x: bf16, %old: f32):
    %0 = "scalar.convert"(%x) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%factor, %b : !factor, !right) outs(%y : !out) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
