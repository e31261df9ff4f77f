// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two products of 40 and of 24 positions of the summed axis follow each other: they are one product of 64 positions.
// RUN: env NKI_MLIR_NUM_THREADS=1 NKI_MLIR_CACHES=48K,2M,32M nki-opt --form-products="worth=1 tile-rows=4 tile-vectors=1" %s | FileCheck %s

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
!left = memref<64x16xf32, "hbm">
!right = memref<64x48xf32, "hbm">
!first_left = memref<40x16xf32, strided<[16, 1]>, "hbm">
!first_right = memref<40x48xf32, strided<[48, 1]>, "hbm">
!second_left = memref<24x16xf32, strided<[16, 1], offset: 640>, "hbm">
!second_right = memref<24x48xf32, strided<[48, 1], offset: 1920>, "hbm">
!tile = memref<16x48xf32, "psum">
!out = memref<16x48xf32, "hbm">

// CHECK-LABEL: func.func @sum(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: {{.*}}"a"}, %[[B:[a-z0-9]+]]: {{.*}}"b"}, %[[Y:[a-z0-9]+]]: {{.*}}native.notes = ["form-products: 16 x 48 x 64 in blocks
// CHECK-NOT:     psum
// CHECK:         "native.packed_product"(%{{.*}}, %{{.*}}, %[[Y]]) {depth = 64 : i64, fresh = true, line = 48 : i64,
// CHECK-NOT:     linalg.generic
func.func @sum(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %l = memref.reinterpret_cast %a to offset: [0], sizes: [40, 16], strides: [16, 1] : !left to !first_left
  %r = memref.reinterpret_cast %b to offset: [0], sizes: [40, 48], strides: [48, 1] : !right to !first_right
  %l2 = memref.reinterpret_cast %a to offset: [640], sizes: [24, 16], strides: [16, 1] : !left to !second_left
  %r2 = memref.reinterpret_cast %b to offset: [1920], sizes: [24, 48], strides: [48, 1] : !right to !second_right
  %t = memref.alloc() : !tile
  linalg.fill ins(%zero : f32) outs(%t : !tile)
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%l, %r : !first_left, !first_right) outs(%t : !tile) {
  ^bb0(%x: f32, %z: f32, %o: f32):
    %p = arith.mulf %x, %z : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%l2, %r2 : !second_left, !second_right) outs(%t : !tile) {
  ^bb0(%x: f32, %z: f32, %o: f32):
    %p = arith.mulf %x, %z : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  linalg.copy ins(%t : !tile) outs(%y : !out)
  return
}
