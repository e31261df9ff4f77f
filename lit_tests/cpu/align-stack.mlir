// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions that compute vectors begin their stack at a line of the cache: vectors that leave registers lie in lines.
// RUN: nki-opt --lower-to-llvm --mlir-print-ir-after=align-stack %s 2>&1 | FileCheck %s
// RUN: nki-opt --align-stack %s | FileCheck %s --check-prefix=BEFORE

// CHECK:      IR Dump After align-stack
// CHECK:      llvm.func internal @add_4096_float32_{{[0-9a-f]+}}(%{{.*}}: !llvm.ptr) -> i64 attributes {passthrough = ["stackrealign"]} {
// CHECK:        scf.for %[[I:[a-z0-9]+]] =
// CHECK-NEXT:     llvm.getelementptr %{{[0-9]+}}[%[[I]]]
// The routine of one number has no vectors.
// CHECK:      llvm.func internal @add_1_float32_{{[0-9a-f]+}}(%{{.*}}: !llvm.ptr) -> i64 {

// A module whose nests are not code yet stays as it is.
// BEFORE:     func.func @doubled(%[[X:[a-z0-9]+]]: memref<4096xf32, "hbm"> {nki.name = "x"}
// BEFORE-NOT: stackrealign
#id = affine_map<(f) -> (f)>
func.func @doubled(%x: memref<4096xf32, "hbm"> {nki.name = "x"}, %y: memref<4096xf32, "hbm"> {nki.name = "y"},
                   %z: memref<1xf32, "hbm"> {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%x : memref<4096xf32, "hbm">) outs(%y : memref<4096xf32, "hbm">) {
  ^bb0(%a: f32, %old: f32):
    %v = "scalar.alu"(%a, %a) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %v : f32
  }
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%z : memref<1xf32, "hbm">) {
  ^bb0(%old: f32):
    %v = "scalar.alu"(%old, %old) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %v : f32
  }
  return
}
