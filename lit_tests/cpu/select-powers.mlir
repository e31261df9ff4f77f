// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// exp(x) = 2^n 2^(j/16) exp(r): one instruction selects the sixteenth of a power by the lowest bits of a sum.
// RUN: nki-opt --select-powers %s | FileCheck %s --check-prefix=%words-MARKS
// RUN: nki-opt --select-powers --lower-to-vector %s | FileCheck %s --check-prefix=%words
// RUN: nki-opt --zero-unwritten --lower-to-vector %s | FileCheck %s --check-prefix=WITHOUT

// WORDS-MARKS:     linalg.generic {{.*}} ins(%{{.*}} : memref<32xf32, "hbm">) outs(%{{.*}} : memref<32xf32, "hbm">) attrs = {native.powers} {
// SPREAD-MARKS-NOT: native.powers

// WORDS:       llvm.func internal @exp_32_float32
// WORDS:         %[[X:[0-9]+]] = llvm.load {{.*}} -> vector<32xf32>
// WORDS:         %[[SUM:[0-9]+]] = math.fma %[[X]], %{{.*}}, %{{.*}} : vector<32xf32>
// WORDS:         %[[N:[0-9]+]] = arith.subf %[[SUM]], %{{.*}} : vector<32xf32>
// What is left is bounded, so that far arguments and infinities need no test.
// WORDS:         llvm.call_intrinsic "llvm.x86.avx512.mask.range.ps.512"
// WORDS:         arith.bitcast %[[SUM]] : vector<32xf32> to vector<32xi32>
// WORDS:         %[[POWER:[0-9]+]] = llvm.call_intrinsic "llvm.x86.avx512.permvar.sf.512"
// WORDS:         llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"

// Other hosts bound the argument, and multiply a polynomial on half of ln(2) by the power.
// SPREAD:      llvm.func internal @exp_32_float32
// SPREAD-NOT:  llvm.x86
// SPREAD:      arith.fptosi %{{.*}} : vector<

// So does code without the pass.
// WITHOUT:     llvm.func internal @exp_32_float32
// WITHOUT-NOT: permvar
// WITHOUT:     %[[LOW:[0-9]+]] = arith.select
// WITHOUT:     arith.cmpf ogt, %[[LOW]], %{{.*}} : vector<[[LANES:[0-9]+]]xf32>
// WITHOUT:     %[[BOUNDED:[0-9]+]] = arith.select %{{[0-9]+}}, %{{.*}}, %[[LOW]]
// WITHOUT:     math.fma %[[BOUNDED]], %{{.*}}, %{{.*}} : vector<[[LANES]]xf32>
func.func @exponential(%x: memref<32xf32, "hbm"> {nki.name = "x"}, %y: memref<32xf32, "hbm"> {nki.name = "y"}) {
  linalg.generic {indexing_maps = [affine_map<(f) -> (f)>, affine_map<(f) -> (f)>], iterator_types = ["parallel"]}
    ins(%x : memref<32xf32, "hbm">) outs(%y : memref<32xf32, "hbm">) {
  ^bb0(%a: f32, %old: f32):
    %v = "scalar.activation"(%a) {fn = "exp"} : (f32) -> f32
    linalg.yield %v : f32
  }
  return
}
