// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tile in bfloat16 that a product reads many times is stored in float32, rounded as before.
// RUN: nki-opt --widen-tiles %s | FileCheck %s
// RUN: nki-opt --widen-tiles="most=4096" --lower-to-vector %s | FileCheck %s --check-prefix=LARGE

#k_m = affine_map<(m, n, k) -> (k, m)>
#k_n = affine_map<(m, n, k) -> (k, n)>
#m_n = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(d0, d1) -> (d0, d1)>
!left = memref<64x32xf32, "hbm">
!right = memref<64x128xbf16, "hbm">
!tile = memref<64x32xbf16, "sbuf">
!other = memref<64x128xbf16, "sbuf">
!sums = memref<32x128xf32, "hbm">

// CHECK-LABEL: func.func @product(
// CHECK:         %[[TILE:.*]] = memref.alloc() : memref<2048xf32, "sbuf">
// CHECK:         linalg.generic {{.*}} outs(%[[TILE]] : memref<2048xf32, "sbuf">)
// CHECK:           "scalar.activation"(%{{.*}}) {fn = "exp"} : (f32) -> f32
// CHECK-NEXT:      "scalar.convert"(%{{.*}}) : (f32) -> bf16
// CHECK-NEXT:      "scalar.convert"(%{{.*}}) : (bf16) -> f32
// CHECK-NEXT:      linalg.yield
// CHECK:         %[[OTHER:.*]] = memref.alloc() : memref<8192xf32, "sbuf">
// CHECK:         linalg.generic {{.*}} outs(%[[OTHER]] : memref<8192xf32, "sbuf">)
// CHECK:         %[[LEFT:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [0], sizes: [32, 64], strides: [1, 32]
// CHECK-NEXT:    %[[RIGHT:.*]] = memref.reinterpret_cast %[[OTHER]] to offset: [0], sizes: [128, 64], strides: [1, 128]
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[LEFT]], %[[RIGHT]] :
// CHECK-NEXT:    ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      "scalar.alu"(%[[A]], %[[B]]) {fn = "multiply"}
// Tiles that are larger stay.
// LARGE:       exp_2048_bfloat16_float32_
// LARGE:       add_32x128x64_float32_bfloat16_
func.func @product(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !sums {nki.name = "y"}) {
  %tile = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !left) outs(%tile : !tile) {
  ^bb0(%x: f32, %old: bf16):
    %0 = "scalar.activation"(%x) {fn = "exp"} : (f32) -> f32
    %1 = "scalar.convert"(%0) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %1 : bf16
  }
  %other = memref.alloc() : !other
  linalg.copy ins(%b : !right) outs(%other : !other)
  linalg.generic {indexing_maps = [#k_m, #k_n, #m_n], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%tile, %other : !tile, !other) outs(%y : !sums) {
  ^bb0(%x: bf16, %z: bf16, %old: f32):
    %0 = "scalar.convert"(%x) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.convert"(%z) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %2 = "scalar.alu"(%0, %1) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %3 = "scalar.alu"(%old, %2) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %3 : f32
  }
  return
}

// A tile that a computation updates in place stays: its old elements are narrow.
// CHECK-LABEL: func.func @updated(
// CHECK:         memref.alloc() : memref<{{.*}}xbf16, "sbuf">
// CHECK:         "scalar.activation"(%{{.*}}) {fn = "exp"} : (f32) -> f32
// CHECK:         "scalar.convert"(%{{.*}}) : (f32) -> bf16
func.func @updated(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !sums {nki.name = "y"}) {
  %tile = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !left) outs(%tile : !tile) {
  ^bb0(%x: f32, %old: bf16):
    %0 = "scalar.activation"(%x) {fn = "exp"} : (f32) -> f32
    %1 = "scalar.convert"(%0) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %1 : bf16
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !left) outs(%tile : !tile) {
  ^bb0(%x: f32, %old: bf16):
    %0 = "scalar.convert"(%old) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.alu"(%x, %0) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    %2 = "scalar.convert"(%1) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %2 : bf16
  }
  linalg.generic {indexing_maps = [#k_m, #k_n, #m_n], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%tile, %b : !tile, !right) outs(%y : !sums) {
  ^bb0(%x: bf16, %z: bf16, %old: f32):
    %0 = "scalar.convert"(%x) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.convert"(%z) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %2 = "scalar.alu"(%0, %1) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %3 = "scalar.alu"(%old, %2) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %3 : f32
  }
  return
}

!values = memref<256x128xbf16, "hbm">
!all = memref<256x128xbf16, "sbuf">
!half = memref<128x128xbf16, strided<[128, 1], offset: ?>, "sbuf">
!query = memref<128x32xf32, "hbm">
// A part of a tile that the iterations of an outer loop read again, and one that each iteration computes.
// CHECK-LABEL: func.func @parts(
// CHECK:         %[[ALL:.*]] = memref.alloc() : memref<32768xf32, "sbuf">
// CHECK:         linalg.generic {{.*}} outs(%[[ALL]] : memref<32768xf32, "sbuf">)
// CHECK:         scf.for %{{.*}} = %c0 to %c2 step %c1 {
// CHECK:           %[[NEW:.*]] = memref.alloc() : memref<32768xbf16, "sbuf">
// CHECK:           scf.for %[[J:.*]] =
// CHECK:             %[[START:.*]] = affine.apply #{{.*}}()[%[[J]]]
// CHECK:             %[[HALF:.*]] = memref.reinterpret_cast %[[ALL]] to offset: [%[[START]]], sizes: [128, 128], strides: [1, 128]
// CHECK-NEXT:        linalg.generic {{.*}} ins(%{{.*}}, %[[HALF]] :
func.func @parts(%q: !query {nki.name = "q"}, %v: !values {nki.name = "v"}, %y: !sums {nki.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %all = memref.alloc() : !all
  linalg.copy ins(%v : !values) outs(%all : !all)
  scf.for %i = %c0 to %c2 step %c1 {
    %new = memref.alloc() : !all
    linalg.copy ins(%v : !values) outs(%new : !all)
    scf.for %j = %c0 to %c2 step %c1 {
      %start = affine.apply affine_map<(d0) -> (d0 * 16384)>(%j)
      %half = memref.reinterpret_cast %all to offset: [%start], sizes: [128, 128], strides: [128, 1] : !all to !half
      linalg.generic {indexing_maps = [#k_m, #k_n, #m_n], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %half : !query, !half) outs(%y : !sums) {
      ^bb0(%x: f32, %z: bf16, %old: f32):
        %1 = "scalar.convert"(%z) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
        %2 = "scalar.alu"(%x, %1) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
        %3 = "scalar.alu"(%old, %2) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
        linalg.yield %3 : f32
      }
      %new_half = memref.reinterpret_cast %new to offset: [%start], sizes: [128, 128], strides: [128, 1] : !all to !half
      linalg.generic {indexing_maps = [#k_m, #k_n, #m_n], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%q, %new_half : !query, !half) outs(%y : !sums) {
      ^bb0(%x: f32, %z: bf16, %old: f32):
        %1 = "scalar.convert"(%z) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
        %2 = "scalar.alu"(%x, %1) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
        %3 = "scalar.alu"(%old, %2) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
        linalg.yield %3 : f32
      }
    }
  }
  return
}
