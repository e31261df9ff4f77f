// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fields of records are loaded together: whole vectors, whose lanes are sorted in registers.
// RUN: nki-opt --load-fields %s | FileCheck %s --check-prefix=ALONE
// RUN: nki-opt --load-fields --lower-to-vector %s | FileCheck %s
// RUN: nki-opt --parallelize --lower-to-vector %s | FileCheck %s --check-prefix=APART

#id = affine_map<(d0) -> (d0)>
!records = memref<8192xf32, "hbm">
!field = memref<4096xf32, strided<[2]>, "hbm">
!second = memref<4096xf32, strided<[2], offset: 1>, "hbm">
!row = memref<4096xf32, "hbm">

// CHECK:       // @fields(x, y)
// CHECK-NEXT:  //   add_4096_float32_{{.*}}(x, x + 4, y)
// CHECK:       scf.for %{{.*}} = %c0
// CHECK:         vector.shuffle %[[LOW:[0-9]+]], %[[HIGH:[0-9]+]] [0, 2
// CHECK-NEXT:    vector.shuffle %[[LOW]], %[[HIGH]] [1, 3
// CHECK-NEXT:    arith.addf %{{[0-9]+}}, %{{[0-9]+}} : vector
// ALONE:       linalg.generic {{.*}} attrs = {native.fields}
// Without the pass, each is loaded by itself.
// APART:       scf.for %{{.*}} = %c0
// APART:         llvm.load %[[FIRST:[0-9]+]]
// APART:         llvm.load %[[SECOND:[0-9]+]]
// APART-NOT:     [1, 3
// APART:         arith.addf %{{[0-9]+}}, %{{[0-9]+}} : vector
func.func @fields(%x: !records {nki.name = "x"}, %y: !row {nki.name = "y", nki.shared = 0 : i64}) {
  %a = memref.reinterpret_cast %x to offset: [0], sizes: [4096], strides: [2] : !records to !field
  %b = memref.reinterpret_cast %x to offset: [1], sizes: [4096], strides: [2] : !records to !second
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
    ins(%a, %b : !field, !second) outs(%y : !row) {
  ^bb0(%in: f32, %other: f32, %out: f32):
    %0 = arith.addf %in, %other : f32
    linalg.yield %0 : f32
  }
  return
}
