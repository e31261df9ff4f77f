// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exponentials of sums of products lie over the sums, which nothing reads again. Where something does, they keep their
// tile.
// RUN: nki-opt --reuse-tiles="least=1" %s | FileCheck %s
// RUN: nki-opt --reuse-tiles %s | FileCheck %s --check-prefix=KEPT

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(i, j) -> (i, j)>
!left = memref<32x16xf32, "hbm">
!right = memref<32x64xf32, "hbm">
!tile = memref<16x64xf32, "sbuf">
!out = memref<16x64xf32, "hbm">

// CHECK-LABEL: func.func @last(
// CHECK-SAME:    %{{[a-z0-9]+}}: {{.*}}"a"}, %{{[a-z0-9]+}}: {{.*}}"b"}, %[[Y:[a-z0-9]+]]:
// CHECK-NEXT:    %[[SUMS:.*]] = memref.alloc() : memref<1024xf32, "sbuf">
// CHECK-NOT:     memref.alloc
// CHECK:         linalg.generic {{.*}} ins(%[[SUMS]] : memref<1024xf32, "sbuf">) outs(%[[SUMS]] : memref<1024xf32, "sbuf">)
// CHECK:         "scalar.activation"(%{{.*}}) {fn = "exp"}
// CHECK:         linalg.copy ins(%[[SUMS]] : {{.*}}) outs(%{{.*}} : {{.*}})
// KEPT-LABEL:  func.func @last(
// KEPT:          %[[SUMS:.*]] = memref.alloc()
// KEPT:          %[[POWERS:.*]] = memref.alloc()
func.func @last(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %sums = memref.alloc() : !tile
  %powers = memref.alloc() : !tile
  linalg.fill ins(%zero : f32) outs(%sums : !tile)
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : !left, !right) outs(%sums : !tile) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%sums : !tile) outs(%powers : !tile) {
  ^bb0(%x: f32, %old: f32):
    %0 = "scalar.activation"(%x) {fn = "exp"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  memref.copy %powers, %y : !tile to !out
  return
}

// CHECK-LABEL: func.func @read_again(
// CHECK-NEXT:    %[[SUMS:.*]] = memref.alloc() : memref<1024xf32, "sbuf">
// CHECK-NEXT:    %[[POWERS:.*]] = memref.alloc() : memref<1024xf32, "sbuf">
// CHECK:         linalg.generic {{.*}} ins(%[[SUMS]] : memref<1024xf32, "sbuf">) outs(%[[POWERS]] : memref<1024xf32, "sbuf">)
func.func @read_again(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64},
                      %z: !out {nki.name = "z", nki.shared = 1 : i64}) {
  %zero = arith.constant 0.0 : f32
  %sums = memref.alloc() : !tile
  %powers = memref.alloc() : !tile
  linalg.fill ins(%zero : f32) outs(%sums : !tile)
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : !left, !right) outs(%sums : !tile) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%sums : !tile) outs(%powers : !tile) {
  ^bb0(%x: f32, %old: f32):
    %0 = "scalar.activation"(%x) {fn = "exp"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  memref.copy %powers, %y : !tile to !out
  memref.copy %sums, %z : !tile to !out
  return
}

// A search reads the exponentials, too: it names their tile.
// CHECK-LABEL: func.func @searched(
// CHECK-NEXT:    %[[SUMS:.*]] = memref.alloc() : memref<1024xf32, "sbuf">
// CHECK-NEXT:    %[[POWERS:.*]] = memref.alloc() : memref<16x64xf32, "sbuf">
// CHECK:         %[[FLAT:.*]] = memref.reinterpret_cast %[[POWERS]] to offset: [0], sizes: [1024], strides: [1]
// CHECK:         linalg.generic {{.*}} ins(%[[SUMS]] : memref<1024xf32, "sbuf">) outs(%[[FLAT]] :
// CHECK:         "nisa.max8"(%{{.*}}, %[[POWERS]])
#rows = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 16], [1, 64]]>
#eight = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 16], [1, 8]]>
#all = affine_set<() : (0 == 0)>
!eight = memref<16x8xf32, "sbuf">
!largest = memref<16x8xf32, "hbm">
func.func @searched(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"},
                    %y: !largest {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %sums = memref.alloc() : !tile
  %powers = memref.alloc() : !tile
  %largest = memref.alloc() : !eight
  linalg.fill ins(%zero : f32) outs(%sums : !tile)
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : !left, !right) outs(%sums : !tile) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%sums : !tile) outs(%powers : !tile) {
  ^bb0(%x: f32, %old: f32):
    %0 = "scalar.activation"(%x) {fn = "exp"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  "nisa.max8"(%largest, %powers) {access = [#eight, #rows], mask = #all, engine = "vector"} : (!eight, !tile) -> ()
  memref.copy %largest, %y : !eight to !largest
  return
}
