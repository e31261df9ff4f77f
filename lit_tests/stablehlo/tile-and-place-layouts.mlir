// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place="layouts=0" %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --stablehlo-to-linalg --forward-moves --tile-and-place %s | FileCheck %s

// A transpose with arithmetic: rows of the result go along the partitions, and the load transposes, which DMA engines do in
// runs. The store of the other layout writes single elements.
// BEFORE-LABEL:  func.func @negated(
// BEFORE:        linalg.generic {{.*}} ins(%{{.*}} : memref<101x50xf32, {{.*}}"hbm">) outs(%[[TILE_0:.*]] : memref<101x50xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_0]] : memref<101x50xf32, {{.*}}"sbuf">) outs(%[[TILE_1:.*]] : memref<101x50xf32, {{.*}}"sbuf">)
// BEFORE:        linalg.generic {{.*}} ins(%[[TILE_1]] : memref<101x50xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<101x50xf32, strided<[1, 101]>, "hbm">)
// BEFORE-NOT:    linalg.generic
// BEFORE:        return
// CHECK-LABEL:   func.func @negated(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : memref<50x101xf32, strided<[1, 50]>, "hbm">) outs(%[[TILE_0:.*]] : memref<50x101xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_0]] : memref<50x101xf32, {{.*}}"sbuf">) outs(%[[TILE_1:.*]] : memref<50x101xf32, {{.*}}"sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[TILE_1]] : memref<50x101xf32, {{.*}}"sbuf">) outs(%{{.*}} : memref<50x101xf32, {{.*}}"hbm">)
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @negated(%a: tensor<101x50xf32>) -> tensor<50x101xf32> {
  %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<101x50xf32>) -> tensor<50x101xf32>
  %1 = stablehlo.negate %0 : tensor<50x101xf32>
  return %1 : tensor<50x101xf32>
}
