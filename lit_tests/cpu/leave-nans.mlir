// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arithmetic on bfloat16 has NaN whose lower half is 0: rounding keeps them. NaN of a float32 input are repaired.
// RUN: nki-opt --leave-nans %s | FileCheck %s --check-prefix=MARKS
// RUN: nki-opt --leave-nans --lower-to-vector %s | FileCheck %s --check-prefix=CODE
// RUN: nki-opt --leave-nans --lower-to-vector %s | FileCheck %s --check-prefix=%pairs-STORED
// RUN: nki-opt --zero-unwritten --lower-to-vector %s | FileCheck %s --check-prefix=WITHOUT

// MARKS-LABEL: @short
// MARKS:       linalg.generic {{.*}} attrs = {native.nans} {
// MARKS-LABEL: @stored
// MARKS:       linalg.generic {{.*}} attrs = {native.nans} {
// MARKS-LABEL: @long
// MARKS-NOT:   native.nans

// CODE:        llvm.func internal @add_4096_bfloat16_{{[0-9a-f]+}}(
// CODE:        %[[PRODUCT:[0-9]+]] = arith.mulf %[[X:[0-9]+]], %[[X]] : vector
// CODE-NEXT:   %[[BITS:[0-9]+]] = arith.bitcast %[[PRODUCT]] : vector
// CODE:        %[[ODD:[0-9]+]] = arith.andi %{{[0-9]+}}, %{{[a-z0-9_]+}} : vector
// CODE:        %[[UPPER:[0-9]+]] = arith.andi %{{[0-9]+}}, %{{[a-z0-9_]+}} : vector
// CODE-NEXT:   %[[ROUNDED:[0-9]+]] = arith.bitcast %[[UPPER]] : vector
// CODE-NEXT:   arith.addf %[[ROUNDED]], %[[X]] : vector

// What is stored is rounded by a difference, if no instruction rounds it.
// APART-STORED: llvm.func internal @multiply_4096_bfloat16_{{[0-9a-f]+}}(
// APART-STORED: %[[PRODUCT:[0-9]+]] = arith.mulf %[[X:[0-9]+]], %[[X]] : vector
// APART-STORED-NEXT: %[[BITS:[0-9]+]] = arith.bitcast %[[PRODUCT]] : vector
// APART-STORED-NOT: {{cmpf|call_intrinsic}}
// APART-STORED: arith.subi %[[BITS]], %{{[0-9]+}} : vector
// APART-STORED-NOT: {{cmpf|call_intrinsic}}
// APART-STORED: llvm.store
// PAIRS-STORED: llvm.func internal @multiply_4096_bfloat16_{{[0-9a-f]+}}(

// WITHOUT:      llvm.func internal @add_4096_bfloat16_{{[0-9a-f]+}}(
// WITHOUT:      %[[PRODUCT:[0-9]+]] = arith.mulf %[[X:[0-9]+]], %[[X]] : vector
// WITHOUT:      %[[ODD:[0-9]+]] = arith.andi %{{[0-9]+}}, %{{[a-z0-9_]+}} : vector
// WITHOUT:      %[[UPPER:[0-9]+]] = arith.andi %{{[0-9]+}}, %{{[a-z0-9_]+}} : vector
// WITHOUT-NEXT: %[[ROUNDED:[0-9]+]] = arith.bitcast %[[UPPER]] : vector
// WITHOUT-NOT:  arith.addf %[[ROUNDED]], %[[X]] : vector
// WITHOUT:      arith.addf %[[REPAIRED:[0-9]+]], %[[X]] : vector
#id = affine_map<(f) -> (f)>
!row = memref<4096xbf16, "hbm">
!wide = memref<4096xf32, "hbm">
func.func @short(%x: !row {nki.name = "x"}, %z: !row {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !row) outs(%z : !row) {
  ^bb0(%a: bf16, %old: bf16):
    %0 = "scalar.convert"(%a) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.alu"(%0, %0) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %2 = "scalar.convert"(%1) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    %3 = "scalar.convert"(%2) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %4 = "scalar.alu"(%3, %0) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    %5 = "scalar.convert"(%4) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %5 : bf16
  }
  return
}
func.func @stored(%x: !row {nki.name = "x"}, %z: !row {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !row) outs(%z : !row) {
  ^bb0(%a: bf16, %old: bf16):
    %0 = "scalar.convert"(%a) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.alu"(%0, %0) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %2 = "scalar.convert"(%1) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %2 : bf16
  }
  return
}
func.func @long(%x: !wide {nki.name = "x"}, %z: !row {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !wide) outs(%z : !row) {
  ^bb0(%a: f32, %old: bf16):
    %1 = "scalar.alu"(%a, %a) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %2 = "scalar.convert"(%1) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    %3 = "scalar.convert"(%2) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %4 = "scalar.alu"(%3, %a) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    %5 = "scalar.convert"(%4) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %5 : bf16
  }
  return
}
