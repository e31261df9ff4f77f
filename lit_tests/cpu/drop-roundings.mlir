// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An extremum of bfloat16 is one, so a body reads it without its rounding; a sum is rounded. A number times a truth
// value is the number or 0.
// RUN: nki-opt --drop-roundings %s | FileCheck %s
// RUN: nki-opt --drop-roundings --lower-to-vector %s | FileCheck %s --check-prefix=CODE

// CHECK:      ^bb0(%[[X:[a-z0-9_]+]]: bf16, %[[Y:[a-z0-9_]+]]: bf16
// CHECK-NEXT:   %[[A:[0-9]+]] = "scalar.convert"(%[[X]]) : (bf16) -> f32
// CHECK-NEXT:   %[[B:[0-9]+]] = "scalar.convert"(%[[Y]]) : (bf16) -> f32
// CHECK-NEXT:   %[[MOST:[0-9]+]] = "scalar.alu"(%[[A]], %[[B]]) {fn = "maximum"} : (f32, f32) -> f32
// CHECK-NEXT:   %[[SUM:[0-9]+]] = "scalar.alu"(%[[MOST]], %[[B]]) {fn = "add"} : (f32, f32) -> f32
// CHECK-NEXT:   %[[ROUNDED:[0-9]+]] = "scalar.convert"(%[[SUM]]) : (f32) -> bf16
// CHECK-NEXT:   %[[WIDE:[0-9]+]] = "scalar.convert"(%[[ROUNDED]]) : (bf16) -> f32
// CHECK-NEXT:   "scalar.alu"(%[[WIDE]], %[[MOST]]) {fn = "subtract"} : (f32, f32) -> f32

// CHECK-LABEL: @masked
// CHECK:        %[[A:[0-9]+]] = "scalar.convert"(%{{[a-z0-9_]+}}) : (bf16) -> f32
// CHECK-NEXT:   %[[TRUTH:[0-9]+]] = "scalar.convert"(%{{[a-z0-9_]+}}) : (i1) -> f32
// CHECK-NEXT:   %[[PRODUCT:[0-9]+]] = "scalar.alu"(%[[A]], %[[TRUTH]]) {fn = "multiply"} : (f32, f32) -> f32
// CHECK-NEXT:   "scalar.alu"(%[[PRODUCT]], %[[A]]) {fn = "add"} : (f32, f32) -> f32
// CODE:       %[[GREATEST:[0-9]+]] = arith.addf %{{[0-9]+}}, %{{[a-z0-9_]+}} : vector
// CODE:       arith.addf %[[GREATEST]], %{{[0-9]+}} : vector
#id = affine_map<(f) -> (f)>
!row = memref<4096xbf16, "hbm">
func.func @chain(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y"}, %z: !row {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : !row, !row) outs(%z : !row) {
  ^bb0(%a: bf16, %b: bf16, %old: bf16):
    %0 = "scalar.convert"(%a) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.convert"(%b) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %2 = "scalar.alu"(%0, %1) {fn = "maximum", dtype = "float32"} : (f32, f32) -> f32
    %3 = "scalar.convert"(%2) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    %4 = "scalar.convert"(%3) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %5 = "scalar.alu"(%4, %1) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    %6 = "scalar.convert"(%5) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    %7 = "scalar.convert"(%6) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %8 = "scalar.alu"(%7, %4) {fn = "subtract", dtype = "float32"} : (f32, f32) -> f32
    %9 = "scalar.convert"(%8) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %9 : bf16
  }
  return
}
!truth = memref<4096xi1, "hbm">
func.func @masked(%x: !row {nki.name = "x"}, %y: !truth {nki.name = "y"}, %z: !row {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : !row, !truth) outs(%z : !row) {
  ^bb0(%a: bf16, %b: i1, %old: bf16):
    %0 = "scalar.convert"(%a) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.convert"(%b) {frm = "bool", to = "float32"} : (i1) -> f32
    %2 = "scalar.alu"(%0, %1) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %3 = "scalar.convert"(%2) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    %4 = "scalar.convert"(%3) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %5 = "scalar.alu"(%4, %0) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    %6 = "scalar.convert"(%5) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %6 : bf16
  }
  return
}
