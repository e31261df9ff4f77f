// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A function of a number in bfloat16 becomes a lookup in a constant table of its values.
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --tabulate-functions="least=4096 gain=0" %s | FileCheck %s --check-prefix=ALONE
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --tabulate-functions="least=4096 gain=0" --lower-to-vector %s | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --tabulate-functions="least=4096 gain=0" --lower-to-vector %s | FileCheck %s --check-prefix=%words-LOOKUP
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --tabulate-functions="least=4097 gain=0" --lower-to-vector %s | FileCheck %s --check-prefix=SMALL

#id = affine_map<(d0) -> (d0)>
!row = memref<4096xbf16, "hbm">

// ALONE-LABEL: func.func @function(
// ALONE-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[Y:[a-z0-9]+]]:
// ALONE-NEXT:    %[[TABLE:.*]] = "native.table"() ({
// ALONE-NEXT:    ^bb0(%[[ARGUMENT:.*]]: bf16):
// ALONE-NEXT:      %[[WIDE:.*]] = "scalar.convert"(%[[ARGUMENT]]) : (bf16) -> f32
// ALONE-NEXT:      %[[VALUE:.*]] = "scalar.activation"(%[[WIDE]]) {fn = "gelu"} : (f32) -> f32
// ALONE-NEXT:      "scalar.convert"(%[[VALUE]]) : (f32) -> bf16
// ALONE-NEXT:    }) : () -> memref<65537xbf16, "hbm">
// ALONE-NEXT:    %[[VALUES:.*]] = memref.reinterpret_cast %[[TABLE]] to offset: [0], sizes: [], strides: []
// ALONE-NEXT:    linalg.generic {{.*}} ins(%[[X]], %[[VALUES]] : {{.*}}) outs(%[[Y]] : {{.*}}) {
// ALONE-NEXT:    ^bb0(%[[IN:.*]]: bf16, %[[ENTRIES:.*]]: bf16, %{{.*}}: bf16):
// ALONE-NEXT:      "native.lookup"(%[[IN]], %[[ENTRIES]]) {fn = "tabulated_gelu"} : (bf16, bf16) -> bf16

// CHECK:       // @function(x, y)
// CHECK-NEXT:  //   tabulated_gelu_4096_bfloat16_{{[0-9a-f]+}}(x, constant0 + 0, y)
// CHECK:       llvm.func internal @tabulated_gelu_4096_
// CHECK:         [[TABLE:%[0-9]+]] = llvm.load %{{[0-9]+}} : !llvm.ptr -> !llvm.ptr
// CHECK:         scf.for %{{.*}} = %{{.*}} to %{{.*}} step
// CHECK-NOT:       math.fma
// WORDS-LOOKUP:  llvm.func internal @tabulated_gelu_4096_
// WORDS-LOOKUP:    [[TABLE:%[0-9]+]] = llvm.load %{{[0-9]+}} : !llvm.ptr -> !llvm.ptr
// WORDS-LOOKUP:    arith.extui %{{[0-9]+}} : vector<[[LANES:[0-9]+]]xi16> to vector<[[LANES]]xi32>
// WORDS-LOOKUP:    llvm.getelementptr [[TABLE]][%{{[0-9]+}}] : (!llvm.ptr, vector<{{[0-9]+}}xi32>) -> vector<{{[0-9]+}}x!llvm.ptr>, i16
// WORDS-LOOKUP:    llvm.intr.masked.gather %{{.*}}, %{{.*}}, %{{.*}} {alignment = 2 : i32} : (vector<{{[0-9]+}}x!llvm.ptr>
// With fewer lanes, each lane has a load, at an index that a shift and a mask separate from four.
// SPREAD-LOOKUP: llvm.func internal @tabulated_gelu_4096_
// SPREAD-LOOKUP-NOT: gather
// SPREAD-LOOKUP:   [[FOUR:%[0-9]+]] = vector.extract %{{[0-9]+}}[1] : i64 from vector<2xi64>
// SPREAD-LOOKUP:   [[SHIFTED:%[0-9]+]] = arith.shrui [[FOUR]], %c48_i64{{[_0-9]*}} : i64
// SPREAD-LOOKUP:   [[INDEX:%[0-9]+]] = arith.andi [[SHIFTED]], %c65535_i64{{[_0-9]*}} : i64
// SPREAD-LOOKUP:   [[PLACE:%[0-9]+]] = llvm.getelementptr %{{[0-9]+}}[[[INDEX]]] : (!llvm.ptr, i64) -> !llvm.ptr, i16
// SPREAD-LOOKUP:   [[ELEMENT:%[0-9]+]] = llvm.load [[PLACE]] {alignment = 2 : i64} : !llvm.ptr -> i16
// SPREAD-LOOKUP:   vector.insert [[ELEMENT]], %{{[0-9]+}} [7] : i16 into vector<8xi16>
// SPREAD-LOOKUP-NOT: gather
// The function of fewer elements than ``least`` is computed.
// SMALL:       //   gelu_4096_bfloat16_{{[0-9a-f]+}}(x, y)
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
