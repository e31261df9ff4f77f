// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A function of a number in bfloat16 is computed by polynomials that have its bits, where the host rounds fast.
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --fit-functions="least=4096 gain=0" %s | FileCheck %s --check-prefix=%pairs-ALONE
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --fit-functions="least=4096 gain=0" --lower-to-vector %s | FileCheck %s --check-prefix=%pairs
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --fit-functions="least=4097 gain=0" --lower-to-vector %s | FileCheck %s --check-prefix=APART

#id = affine_map<(d0) -> (d0)>
!row = memref<4096xbf16, "hbm">

// The table of the function is followed by the numbers of its polynomials.
// PAIRS-ALONE-LABEL: func.func @function(
// PAIRS-ALONE-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[Y:[a-z0-9]+]]:
// PAIRS-ALONE-NEXT:    %[[TABLE:.*]] = "native.table"() ({
// PAIRS-ALONE:           "scalar.activation"(%{{.*}}) {fn = "gelu"} : (f32) -> f32
// PAIRS-ALONE:         }) : () -> memref<65828xbf16, "hbm">
// PAIRS-ALONE-NEXT:    %[[VALUES:.*]] = memref.reinterpret_cast %[[TABLE]] to offset: [0], sizes: [], strides: []
// PAIRS-ALONE-NEXT:    linalg.generic {{.*}} ins(%[[X]], %[[VALUES]] : {{.*}}) outs(%[[Y]] : {{.*}}) {
// PAIRS-ALONE-NEXT:    ^bb0(%[[IN:.*]]: bf16, %[[ENTRIES:.*]]: bf16, %{{.*}}: bf16):
// PAIRS-ALONE-NEXT:      "native.lookup"(%[[IN]], %[[ENTRIES]]) {fn = "fitted_zero_gelu"} : (bf16, bf16) -> bf16
// APART-ALONE-NOT:   native.table

// PAIRS:       // @function(x, y)
// PAIRS-NEXT:  //   fitted_zero_gelu_4096_bfloat16_{{[0-9a-f]+}}(x, constant0 + 0, y)
// PAIRS:       llvm.func internal @fitted_zero_gelu_4096_
// PAIRS:         [[TABLE:%[0-9]+]] = llvm.load %{{[0-9]+}} : !llvm.ptr -> !llvm.ptr
// The coefficients stay in registers. A sum rounds the argument to the number of its segment, which selects them.
// PAIRS:         %[[ROWS:[0-9]+]] = llvm.getelementptr [[TABLE]][65568] : (!llvm.ptr) -> !llvm.ptr, i16
// PAIRS:         %[[LOW:[0-9]+]] = llvm.load %[[ROWS]] {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
// PAIRS:         scf.for %{{.*}} = %{{.*}} to %{{.*}} step
// PAIRS:           %[[SUM:[0-9]+]] = math.fma %[[ARGUMENT:[0-9]+]], %{{[0-9]+}}, %{{[0-9]+}} : vector<16xf32>
// PAIRS:           %[[SEGMENT:[0-9]+]] = arith.minsi %{{[0-9]+}}, %{{[a-z_0-9]+}} : vector<16xi32>
// PAIRS:           %[[CONSTANT:[0-9]+]] = llvm.call_intrinsic "llvm.x86.avx512.vpermi2var.ps.512"(%[[LOW]], %[[SEGMENT]], %{{[0-9]+}})
// PAIRS:           %[[SLOPE:[0-9]+]] = math.fma %{{[0-9]+}}, %[[ARGUMENT]], %[[CONSTANT]] : vector<16xf32>
// PAIRS-NEXT:      %[[VALUE:[0-9]+]] = arith.mulf %[[SLOPE]], %[[ARGUMENT]] : vector<16xf32>
// PAIRS:           llvm.call_intrinsic "llvm.x86.avx512.fpclass.ps.512"(%[[VALUE]], %{{[a-z_0-9]+}})
// PAIRS:           scf.if %{{[0-9]+}} -> (vector<32xi16>) {
// PAIRS-NEXT:        scf.yield
// Elements without a polynomial are read from the table.
// PAIRS:             llvm.intr.ctpop(%{{[0-9]+}}) : (i64) -> i64
// PAIRS:             llvm.getelementptr [[TABLE]][%{{[0-9]+}}] : (!llvm.ptr, i64) -> !llvm.ptr, i16

// The function of fewer elements than ``least`` is computed.
// APART:       //   gelu_4096_bfloat16_{{[0-9a-f]+}}(x, y)
func.func @function(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y", nki.shared = 0 : i64}) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !row) outs(%y : !row) {
  ^bb0(%in: bf16, %out: bf16):
    %0 = "scalar.convert"(%in) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.activation"(%0) {fn = "gelu"} : (f32) -> f32
    %2 = "scalar.convert"(%1) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %2 : bf16
  }
  return
}
