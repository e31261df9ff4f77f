// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A body that reads a rounded value again rounds two registers by one instruction, and tests results for zeros after it.
// RUN: nki-opt --round-pairs="always=1" %s | FileCheck %s --check-prefix=%pairs-MARKS
// RUN: nki-opt --find-zeros --round-pairs="always=1" --lower-to-vector %s | FileCheck %s --check-prefix=%pairs
// RUN: nki-opt --round-pairs %s | FileCheck %s --check-prefix=APART-MARKS
// RUN: nki-opt --zero-unwritten --lower-to-vector %s | FileCheck %s --check-prefix=WITHOUT

// PAIRS-MARKS:     linalg.generic {{.*}} attrs = {native.rounds} {
// APART-MARKS-NOT: native.rounds

// PAIRS:         %[[ROUNDED:[0-9]+]] = llvm.call_intrinsic "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
// PAIRS:         %[[BELOW:[a-z0-9_]+]] = arith.constant dense<0> : vector<32xi16>
// PAIRS:         vector.shuffle %[[WORDS:[0-9]+]], %[[BELOW]] [32, 0, 32, 1, 32, 2,
// PAIRS:         vector.shuffle %[[WORDS]], %[[BELOW]] [32, 16, 32, 17, 32, 18,
// PAIRS:         %[[SUM:[0-9]+]] = arith.addf %{{[0-9]+}}, %{{[0-9]+}} : vector<32xf32>
// PAIRS:         %[[TOTAL:[0-9]+]] = scf.if %{{[0-9]+}} -> (vector<32xf32>) {
// PAIRS-NEXT:      scf.yield %[[SUM]] : vector<32xf32>
// PAIRS-NEXT:    } else {
// PAIRS:           llvm.call_intrinsic "llvm.x86.avx512.fpclass.ps.512"
// The body once more, for denormals.
// PAIRS:           arith.mulf %{{[0-9]+}}, %{{[0-9]+}} : vector<32xf32>
// APART-NOT:     avx512bf16

// WITHOUT:       arith.mulf %{{[0-9]+}}, %{{[0-9]+}} : vector<[[LANES:[0-9]+]]xf32>
// WITHOUT-NOT:   scf.if
// WITHOUT:       arith.addf %{{[0-9]+}}, %{{[0-9]+}} : vector<[[LANES]]xf32>
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
