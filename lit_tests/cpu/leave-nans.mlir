// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arithmetic on bfloat16 has NaN whose lower half is 0: rounding keeps them. NaN of a float32 input are repaired, unless
// it is one number for a row: code shortens that one before the loop over the row.
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
// MARKS-LABEL: @scaled
// MARKS:       linalg.generic {{.*}} attrs = {native.nans} {

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

// APART-STORED: llvm.func internal @multiply_4x4096_bfloat16_float32_{{[0-9a-f]+}}(
// APART-STORED: %[[SCALE:[0-9]+]] = llvm.load %{{[0-9]+}} {{.*}} -> f32
// APART-STORED: arith.ori %{{[0-9]+}}, %{{[a-z0-9_]+}} : i32
// APART-STORED: arith.select %{{[0-9]+}}, %{{[0-9]+}}, %[[SCALE]] : f32
// APART-STORED: scf.for
// APART-STORED: arith.mulf
// APART-STORED-NOT: {{cmpf|call_intrinsic "llvm.x86.avx512.mask.fixupimm}}
// APART-STORED: llvm.return

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
#rows = affine_map<(d0, d1) -> (d0, d1)>
#scales = affine_map<(d0, d1) -> (d0)>
!rows = memref<4x4096xbf16, "hbm">
!scales = memref<4xf32, "hbm">
func.func @scaled(%x: !rows {nki.name = "x"}, %s: !scales {nki.name = "s"}, %z: !rows {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#rows, #scales, #rows], iterator_types = ["parallel", "parallel"]}
    ins(%x, %s : !rows, !scales) outs(%z : !rows) {
  ^bb0(%a: bf16, %scale: f32, %old: bf16):
    %0 = "scalar.convert"(%a) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.alu"(%0, %scale) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %2 = "scalar.convert"(%1) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %2 : bf16
  }
  return
}
