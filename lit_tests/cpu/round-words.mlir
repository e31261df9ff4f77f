// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A body that reads a rounded value again rounds it by a sum of products of words, and clears the lower half.
// RUN: nki-opt --round-words %s | FileCheck %s --check-prefix=%dots-MARKS
// RUN: nki-opt --leave-nans --round-words --lower-to-vector %s | FileCheck %s --check-prefix=%dots
// RUN: nki-opt --leave-nans --lower-to-vector %s | FileCheck %s --check-prefix=WITHOUT

// DOTS-MARKS:      linalg.generic {{.*}} attrs = {native.dots} {
// APART-MARKS-NOT: native.dots

// DOTS:         %[[PRODUCT:[0-9]+]] = arith.mulf %{{[0-9]+}}, %{{[0-9]+}} : vector<32xf32>
// DOTS:         %[[BITS:[0-9]+]] = arith.bitcast %{{[0-9]+}} : vector<16xf32> to vector<16xi32>
// DOTS:         %[[EVEN:[0-9]+]] = llvm.call_intrinsic "llvm.x86.avx512.pternlog.d.512"(%[[BITS]],
// DOTS:         %[[HALVES:[0-9]+]] = vector.bitcast %[[EVEN]] : vector<16xi32> to vector<32xi16>
// DOTS:         %[[TOTAL:[0-9]+]] = llvm.call_intrinsic "llvm.x86.avx512.vpdpwssd.512"(%[[BITS]], %[[HALVES]],
// DOTS:         %[[ROUNDED:[0-9]+]] = arith.andi %[[TOTAL]], %{{[a-z0-9_]+}} : vector<16xi32>
// DOTS-NEXT:    arith.bitcast %[[ROUNDED]] : vector<16xi32> to vector<16xf32>
// APART-NOT:    llvm.x86

// WITHOUT:      arith.mulf %{{[0-9]+}}, %{{[0-9]+}} : vector<[[LANES:[0-9]+]]xf32>
// WITHOUT-NOT:  vpdpwssd
// WITHOUT:      arith.shrui %{{[0-9]+}}, %{{[a-z0-9_]+}} : vector<[[LANES]]xi32>
#id = affine_map<(f) -> (f)>
!row = memref<4096xbf16, "hbm">
func.func @chain(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y"}, %z: !row {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : !row, !row) outs(%z : !row) {
  ^bb0(%a: bf16, %b: bf16, %old: bf16):
    %0 = "scalar.convert"(%a) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.convert"(%b) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %2 = "scalar.alu"(%0, %1) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %3 = "scalar.convert"(%2) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    %4 = "scalar.convert"(%3) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %5 = "scalar.alu"(%4, %0) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    %6 = "scalar.convert"(%5) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %6 : bf16
  }
  return
}

// exp leaves the multipliers room; other functions do not.
// DOTS-MARKS-LABEL: func.func @powers(
// DOTS-MARKS:      linalg.generic {{.*}} attrs = {native.dots} {
// DOTS-MARKS:        "scalar.activation"(%{{.*}}) {fn = "exp"} : (f32) -> f32
// DOTS-MARKS-NOT:  native.dots
func.func @powers(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y"}) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !row) outs(%y : !row) {
  ^bb0(%a: bf16, %old: bf16):
    %0 = "scalar.convert"(%a) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.activation"(%0) {fn = "exp"} : (f32) -> f32
    %2 = "scalar.convert"(%1) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    %3 = "scalar.convert"(%2) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %4 = "scalar.alu"(%3, %0) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    %5 = "scalar.convert"(%4) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %5 : bf16
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !row) outs(%y : !row) {
  ^bb0(%a: bf16, %old: bf16):
    %0 = "scalar.convert"(%a) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.activation"(%0) {fn = "tanh"} : (f32) -> f32
    %2 = "scalar.convert"(%1) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    %3 = "scalar.convert"(%2) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %4 = "scalar.alu"(%3, %0) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    %5 = "scalar.convert"(%4) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %5 : bf16
  }
  return
}
