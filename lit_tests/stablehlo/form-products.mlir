// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A product without loops is packed, too. The last rows and columns are narrower panels, the last block of the
// summed axis is shorter; the result is rounded when its sums are complete. Where the host multiplies pairs, rows of 257
// elements are copied to rows of 160 before registers transpose their words.
// REQUIRES: avx512
// RUN: env NKI_MLIR_NUM_THREADS=1 NKI_MLIR_CACHES=32K,2M,32M nki-opt --stablehlo-to-linalg --form-products="tile-rows=8 tile-vectors=2 pairs=0 amx=0 apart=1 high=1" %s | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=1 NKI_MLIR_CACHES=32K,2M,32M nki-opt --stablehlo-to-linalg --form-products="tile-rows=8 tile-vectors=2 pairs=1 amx=0 apart=1 high=1" %s | FileCheck %s --check-prefix=%pairs

// CHECK-LABEL: func.func @odd(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: {{.*}} %[[B:[a-z0-9]+]]: {{.*}} %[[OUT:[a-z0-9]+]]: {{.*}}native.notes = ["form-products: 300 x 333 x 257 in blocks of {{.*}} rows, 320 columns, depth 96, float32:
// CHECK:         scf.for %{{.*}} = %c0 to %c2 step %c1 {
// CHECK:         } {native.on_pool}
// CHECK:         "native.packed_product"({{.*}}) {depth = 96 : i64, fresh = true, line = 320 : i64, panels = array<i64: 18, 10>, sizes = array<i64: 16, 32>,
// CHECK:         "native.packed_product"({{.*}}) {depth = 96 : i64, fresh = true, line = 320 : i64, panels = array<i64: 1, 10>, sizes = array<i64: 12, 32>,
// CHECK:         "native.packed_product"({{.*}}) {depth = 65 : i64, fresh = false, line = 320 : i64,
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<{{.*}}xf32{{.*}}) outs(%{{.*}} : memref<{{.*}}xbf16
// CHECK:         "native.packed_product"({{.*}}) {depth = 96 : i64, fresh = true, line = 13 : i64, panels = array<i64: 18, 1>, sizes = array<i64: 16, 13>,
// CHECK:         "native.packed_product"({{.*}}) {depth = 65 : i64, fresh = false, line = 13 : i64,

// PAIRS-LABEL: func.func @odd(
// PAIRS-SAME:    %[[A:[a-z0-9]+]]:
// PAIRS:         scf.for %{{.*}} = %c0 to %c18 step %c1 {
// PAIRS:             linalg.copy {{.*}} ins(%{{.*}} : memref<16x160xui16, strided<[257, 1], offset: ?>, "hbm">) outs(%{{.*}} : memref<16x160xui16, strided<[160, 1]>, "sbuf">)
// PAIRS:             linalg.copy {{.*}} ins(%{{.*}} : memref<1x1x80x16xui32, strided<[80, 1280, 1, 80]>, "sbuf">) outs(%{{.*}} : memref<1x1x80x16xui32, strided<[1280, 1280, 16, 1], offset: ?>, "sbuf">)
// PAIRS:         "native.packed_product"({{.*}}) {depth = 80 : i64, fresh = true, line = 320 : i64, panels = array<i64: 18, 10>, sizes = array<i64: 16, 32>,
// APART-LABEL: func.func @odd(
func.func @odd(%a: tensor<300x257xbf16>, %b: tensor<257x333xbf16>) -> tensor<300x333xbf16> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<300x257xbf16>, tensor<257x333xbf16>) -> tensor<300x333xbf16>
  return %0 : tensor<300x333xbf16>
}
