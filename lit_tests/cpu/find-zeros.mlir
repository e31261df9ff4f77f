// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The host's instruction rounds denormals to 0: code looks for them only where a result is 0.
// RUN: nki-opt --find-zeros %s | FileCheck %s --check-prefix=%pairs-MARKS
// RUN: nki-opt --find-zeros --lower-to-vector %s | FileCheck %s --check-prefix=%pairs
// RUN: nki-opt --zero-unwritten --lower-to-vector %s | FileCheck %s --check-prefix=%pairs-WITHOUT

// PAIRS-MARKS:     linalg.generic {{.*}} ins(%{{.*}} : memref<64xf32, "hbm">) outs(%{{.*}} : memref<64xbf16, "hbm">) attrs = {native.zeros} {
// APART-MARKS-NOT: native.zeros

// Two registers of results are compared with 0, without their signs.
// PAIRS:       %[[ROUNDED:[0-9]+]] = llvm.call_intrinsic "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
// PAIRS:       %[[MAGNITUDES:[0-9]+]] = arith.andi %{{[0-9]+}}, %{{.*}} : vector<32xi16>
// PAIRS:       arith.cmpi eq, %[[MAGNITUDES]], %{{.*}} : vector<32xi16>
// PAIRS:       scf.if %{{.*}} -> (vector<{{[0-9]+}}xi16>) {
// PAIRS:       } else {
// PAIRS:         llvm.call_intrinsic "llvm.x86.avx512.fpclass.ps.512"
// APART-NOT:   llvm.x86.avx512bf16

// Without the pass all arguments are tested.
// PAIRS-WITHOUT:       llvm.call_intrinsic "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
// PAIRS-WITHOUT-NOT:   arith.cmpi {{.*}} vector<32xi16>
// PAIRS-WITHOUT:       llvm.call_intrinsic "llvm.x86.avx512.fpclass.ps.512"
// PAIRS-WITHOUT:       scf.if %{{.*}} -> (vector<{{[0-9]+}}xi16>) {
// APART-WITHOUT-NOT:   llvm.x86.avx512bf16
func.func @rounded(%x: memref<64xf32, "hbm"> {nki.name = "x"}, %y: memref<64xbf16, "hbm"> {nki.name = "y"}) {
  linalg.generic {indexing_maps = [affine_map<(f) -> (f)>, affine_map<(f) -> (f)>], iterator_types = ["parallel"]}
    ins(%x : memref<64xf32, "hbm">) outs(%y : memref<64xbf16, "hbm">) {
  ^bb0(%a: f32, %old: bf16):
    %v = "scalar.convert"(%a) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %v : bf16
  }
  return
}
