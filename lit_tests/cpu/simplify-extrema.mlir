// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The difference is NaN wherever one of its terms is: the minimum of @arithmetic needs no repair. The sign of its zero
// shows in @arithmetic, where the difference is the result, and not in @hidden, where a maximum with 0 follows.
// The result of @stored is the minimum. @folded adds 0 to the maximum of a row, not to each partial result.
// RUN: nki-opt --simplify-extrema %s | FileCheck %s --check-prefix=MARKS
// RUN: nki-opt --simplify-extrema --lower-to-vector %s | FileCheck %s --check-prefix=CODE
// RUN: nki-opt --zero-unwritten --lower-to-vector %s | FileCheck %s --check-prefix=WITHOUT

// MARKS-LABEL: @arithmetic
// MARKS:       linalg.generic {{.*}} attrs = {native.extrema} {
// MARKS-LABEL: @hidden
// MARKS:       linalg.generic {{.*}} attrs = {native.extrema} {
// MARKS-LABEL: @stored
// MARKS-NOT:   native.extrema
// MARKS-LABEL: @folded
// MARKS:       linalg.generic {{.*}} attrs = {native.extrema} {

// CODE:        llvm.func internal @subtract_4096_float32_{{[0-9a-f]+}}(
// CODE:        %[[LESS:[0-9]+]] = arith.cmpf olt, %[[A:[0-9]+]], %[[B:[0-9]+]] : vector
// CODE-NEXT:   %[[LEAST:[0-9]+]] = arith.select %[[LESS]], %[[A]], %[[B]] : vector
// CODE-NEXT:   %[[CONSTANT:[a-z0-9_]+]] = arith.constant dense<0.000000e+00>
// CODE-NEXT:   %[[SUM:[0-9]+]] = arith.addf %[[LEAST]], %[[CONSTANT]] : vector
// CODE-NEXT:   arith.subf %[[SUM]], %[[A]] : vector
// CODE:        llvm.func internal @maximum_4096_float32_{{[0-9a-f]+}}(
// CODE:        %[[LESS:[0-9]+]] = arith.cmpf olt, %[[A:[0-9]+]], %[[B:[0-9]+]] : vector
// CODE-NEXT:   %[[LEAST:[0-9]+]] = arith.select %[[LESS]], %[[A]], %[[B]] : vector
// CODE-NEXT:   arith.subf %[[LEAST]], %[[A]] : vector
// CODE:        llvm.func internal @maximum_128x512_float32_{{[0-9a-f]+}}(
// CODE-NOT:    arith.addf
// CODE:        %[[LAST:[0-9]+]] = vector.extract %{{[0-9]+}}[0] : f32 from vector<1xf32>
// CODE-NOT:    arith.addf
// CODE:        arith.select %{{[0-9]+}}, %{{[0-9]+}}, %[[LAST]] : f32
// CODE:        %[[REPAIRED:[0-9]+]] = arith.addf %{{[0-9]+}}, %{{[a-z0-9_]+}} : f32
// CODE-NEXT:   llvm.store %[[REPAIRED]], %{{[0-9]+}}

// WITHOUT:     llvm.func internal @maximum_4096_float32_{{[0-9a-f]+}}(
// WITHOUT:     %[[LESS:[0-9]+]] = arith.cmpf olt, %[[A:[0-9]+]], %[[B:[0-9]+]] : vector
// WITHOUT-NEXT: %[[LEAST:[0-9]+]] = arith.select %[[LESS]], %[[A]], %[[B]] : vector
// WITHOUT-NOT: arith.subf %[[LEAST]]
// WITHOUT:     arith.subf %{{[0-9]+}}, %[[A]] : vector
#id = affine_map<(f) -> (f)>
!row = memref<4096xf32, "hbm">
func.func @arithmetic(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y"}, %z: !row {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : !row, !row)
      outs(%z : !row) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %0 = "scalar.alu"(%a, %b) {fn = "minimum", dtype = "float32"} : (f32, f32) -> f32
    %1 = "scalar.alu"(%0, %a) {fn = "subtract", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %1 : f32
  }
  return
}
func.func @hidden(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y"}, %z: !row {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : !row, !row)
      outs(%z : !row) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %0 = "scalar.alu"(%a, %b) {fn = "minimum", dtype = "float32"} : (f32, f32) -> f32
    %1 = "scalar.alu"(%0, %a) {fn = "subtract", dtype = "float32"} : (f32, f32) -> f32
    %2 = arith.constant 0.0 : f32
    %3 = "scalar.alu"(%1, %2) {fn = "maximum", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %3 : f32
  }
  return
}
func.func @stored(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y"}, %z: !row {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : !row, !row)
      outs(%z : !row) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %0 = "scalar.alu"(%a, %b) {fn = "minimum", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %0 : f32
  }
  return
}
func.func @folded(%x: memref<128x512xf32, "hbm"> {nki.name = "x"}, %y: memref<128xf32, "hbm"> {nki.name = "y"}) {
  linalg.generic {indexing_maps = [affine_map<(p, f) -> (p, f)>, affine_map<(p, f) -> (p)>],
                  iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<128x512xf32, "hbm">) outs(%y : memref<128xf32, "hbm">) {
  ^bb0(%a: f32, %old: f32):
    %0 = "scalar.alu"(%old, %a) {fn = "maximum", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %0 : f32
  }
  return
}
