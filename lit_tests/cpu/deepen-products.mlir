// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A loop adds six products of 32 terms each. Three at a time are 96 terms, two at a time 64.
// RUN: nki-opt --deepen-products="depth=100" %s | FileCheck %s
// RUN: nki-opt --deepen-products="depth=95" %s | FileCheck %s --check-prefix=TWO

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
!left = memref<192x16xf32, "hbm">
!right = memref<192x64xf32, "hbm">
!a = memref<32x16xf32, strided<[16, 1], offset: ?>, "hbm">
!b = memref<32x64xf32, strided<[64, 1], offset: ?>, "hbm">
!out = memref<16x64xf32, "hbm">

// CHECK-LABEL: func.func @sum(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: {{.*}}"a"}, %[[B:[a-z0-9]+]]: {{.*}}"b"}, %[[Y:[a-z0-9]+]]:
// CHECK:         %[[STEP:.*]] = arith.constant 3 : index
// CHECK:         scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step %[[STEP]] {
// CHECK-NEXT:      %[[AT_A:.*]] = affine.apply #{{.*}}()[%[[J]]]
// CHECK-NEXT:      %[[L:.*]] = memref.reinterpret_cast %[[A]] to offset: [%[[AT_A]]], sizes: [16, 3, 32], strides: [1, 512, 16]
// CHECK-NEXT:      %[[AT_B:.*]] = affine.apply #{{.*}}()[%[[J]]]
// CHECK-NEXT:      %[[R:.*]] = memref.reinterpret_cast %[[B]] to offset: [%[[AT_B]]], sizes: [64, 3, 32], strides: [1, 2048, 64]
// CHECK-NEXT:      linalg.generic {{.*}}"reduction", "reduction"]} ins(%[[L]], %[[R]] : {{.*}}) outs(%[[Y]] : {{.*}})
// TWO-LABEL:   func.func @sum(
// TWO:           %[[STEP:.*]] = arith.constant 2 : index
// TWO:           scf.for %{{.*}} = %{{.*}} to %{{.*}} step %[[STEP]] {
// TWO:             sizes: [16, 2, 32], strides: [1, 512, 16]
func.func @sum(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  scf.for %j = %c0 to %c6 step %c1 {
    %at_a = affine.apply affine_map<()[s0] -> (s0 * 512)>()[%j]
    %at_b = affine.apply affine_map<()[s0] -> (s0 * 2048)>()[%j]
    %l = memref.reinterpret_cast %a to offset: [%at_a], sizes: [32, 16], strides: [16, 1] : !left to !a
    %r = memref.reinterpret_cast %b to offset: [%at_b], sizes: [32, 64], strides: [64, 1] : !right to !b
    linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%l, %r : !a, !b) outs(%y : !out) {
    ^bb0(%x: f32, %z: f32, %o: f32):
      %p = arith.mulf %x, %z : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    }
  }
  return
}
