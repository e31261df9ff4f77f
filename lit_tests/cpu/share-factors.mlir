// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two products multiply by the same tile: one conversion to float32 serves both.
// RUN: nki-opt --share-factors %s | FileCheck %s
// RUN: nki-opt --share-factors="most=8192" %s | FileCheck %s
// The factor is too large, or read too seldom.
// RUN: nki-opt --share-factors="most=8191" %s | FileCheck %s --check-prefix=KEPT
// RUN: nki-opt --share-factors="least=200" %s | FileCheck %s --check-prefix=KEPT

#a = affine_map<(m, n, k) -> (k, m)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(p, f) -> (p, f)>
!left = memref<32x128xf32, "hbm">
!right_hbm = memref<32x64xf16, "hbm">
!right = memref<32x64xf16, "sbuf">
!factor = memref<32x64xf32, "sbuf">
!sums = memref<128x64xf32, "hbm">

// CHECK-LABEL: func.func @repeated(
// CHECK:         %[[FACTOR:.*]] = memref.alloc() : memref<2048xf32, "sbuf">
// CHECK:         "scalar.convert"(%{{.*}}) : (f16) -> f32
// CHECK:         %[[COLUMNS:.*]] = memref.reinterpret_cast %[[FACTOR]] to
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %[[COLUMNS]] : {{.*}}) outs(%{{.*}} : memref<128x64xf32
// CHECK-NOT:     "scalar.convert"
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %[[COLUMNS]] : {{.*}}) outs(%{{.*}} : memref<128x64xf32
// KEPT-LABEL: func.func @repeated(
// KEPT:          "scalar.convert"(%{{.*}}) : (f16) -> f32
// KEPT:          "scalar.convert"(%{{.*}}) : (f16) -> f32
func.func @repeated(%a: !left {nki.name = "a"}, %d: !left {nki.name = "d"}, %source: !right_hbm {nki.name = "b"},
                 %y: !sums {nki.name = "y", nki.shared = 0 : i64}, %z: !sums {nki.name = "z", nki.shared = 1 : i64}) {
  %b = memref.alloc() : !right
  linalg.copy ins(%source : !right_hbm) outs(%b : !right)
  %factor = memref.alloc() : !factor
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%b : !right) outs(%factor : !factor) {
  ^bb0(%narrow: f16, %old: f32):
    %0 = "scalar.convert"(%narrow) {frm = "float16", to = "float32"} : (f16) -> f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %factor : !left, !factor) outs(%y : !sums) {
  ^bb0(%left: f32, %right: f32, %sum: f32):
    %p = arith.mulf %left, %right : f32
    %s = arith.addf %sum, %p : f32
    linalg.yield %s : f32
  }
  %again = memref.alloc() : !factor
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%b : !right) outs(%again : !factor) {
  ^bb0(%narrow: f16, %old: f32):
    %0 = "scalar.convert"(%narrow) {frm = "float16", to = "float32"} : (f16) -> f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%d, %again : !left, !factor) outs(%z : !sums) {
  ^bb0(%left: f32, %right: f32, %sum: f32):
    %p = arith.mulf %left, %right : f32
    %s = arith.addf %sum, %p : f32
    linalg.yield %s : f32
  }
  return
}

// The tile changes before the second conversion, which stays.
// CHECK-LABEL: func.func @written(
// CHECK:         "scalar.convert"(%{{.*}}) : (f16) -> f32
// CHECK:         "scalar.convert"(%{{.*}}) : (f16) -> f32
func.func @written(%a: !left {nki.name = "a"}, %d: !left {nki.name = "d"}, %source: !right_hbm {nki.name = "b"},
                 %y: !sums {nki.name = "y", nki.shared = 0 : i64}, %z: !sums {nki.name = "z", nki.shared = 1 : i64}) {
  %b = memref.alloc() : !right
  linalg.copy ins(%source : !right_hbm) outs(%b : !right)
  %factor = memref.alloc() : !factor
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%b : !right) outs(%factor : !factor) {
  ^bb0(%narrow: f16, %old: f32):
    %0 = "scalar.convert"(%narrow) {frm = "float16", to = "float32"} : (f16) -> f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %factor : !left, !factor) outs(%y : !sums) {
  ^bb0(%left: f32, %right: f32, %sum: f32):
    %p = arith.mulf %left, %right : f32
    %s = arith.addf %sum, %p : f32
    linalg.yield %s : f32
  }
  linalg.copy ins(%source : !right_hbm) outs(%b : !right)
  %again = memref.alloc() : !factor
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%b : !right) outs(%again : !factor) {
  ^bb0(%narrow: f16, %old: f32):
    %0 = "scalar.convert"(%narrow) {frm = "float16", to = "float32"} : (f16) -> f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%d, %again : !left, !factor) outs(%z : !sums) {
  ^bb0(%left: f32, %right: f32, %sum: f32):
    %p = arith.mulf %left, %right : f32
    %s = arith.addf %sum, %p : f32
    linalg.yield %s : f32
  }
  return
}
