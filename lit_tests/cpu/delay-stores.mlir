// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An iteration rounds and stores the results of the one before; the first one is computed before the loop.
// RUN: nki-opt --delay-stores %s | FileCheck %s --check-prefix=MARKS
// RUN: nki-opt --delay-stores="least=1000" %s | FileCheck %s --check-prefix=SHORT
// RUN: nki-opt --delay-stores="functions=0" %s | FileCheck %s --check-prefix=ALL
// RUN: nki-opt --delay-stores --lower-to-vector %s | FileCheck %s --check-prefix=CODE

// MARKS:     linalg.generic {{.*}} ins(%{{.*}} : memref<4096xf32, "hbm">) outs(%{{.*}} : memref<4096xbf16, "hbm">) attrs = {native.delays} {
// Bodies without a function gain nothing.
// MARKS-NOT: native.delays
// SHORT-NOT: native.delays
// ALL:       linalg.generic {{.*}} ins(%{{.*}} : memref<4096xf32, "hbm">) outs(%{{.*}} : memref<4096xbf16, "hbm">) attrs = {native.delays} {
// ALL:       linalg.generic {{.*}} ins(%{{.*}} : memref<4096xf32, "hbm">) outs(%{{.*}} : memref<4096xbf16, "hbm">) attrs = {native.delays} {

// CODE:      llvm.func internal @exp_4096_bfloat16_float32
// CODE-NOT:    llvm.store
// CODE:        scf.for %[[I:[a-z0-9]+]] = %{{.*}} iter_args(%{{[a-z0-9]+}} = %{{[0-9]+}}) -> (vector<[[LANES:[0-9]+]]xf32>)
// CODE:          %[[EARLIER:[0-9]+]] = arith.subi %[[I]], %{{.*}} : i64
// CODE:          %[[AT:[0-9]+]] = llvm.getelementptr %{{[0-9]+}}[%[[EARLIER]]] : (!llvm.ptr, i64) -> !llvm.ptr, i16
// CODE:          llvm.store %{{[0-9]+}}, %[[AT]] {alignment = 2 : i64} : vector<[[LANES]]xi16>, !llvm.ptr
// CODE:          scf.yield %{{[0-9]+}} : vector<[[LANES]]xf32>
// CODE:        llvm.store %{{[0-9]+}}, %{{[0-9]+}} {alignment = 2 : i64} : vector<[[LANES]]xi16>, !llvm.ptr
#id = affine_map<(f) -> (f)>
func.func @rounded(%x: memref<4096xf32, "hbm"> {nki.name = "x"}, %y: memref<4096xbf16, "hbm"> {nki.name = "y"},
                   %z: memref<4096xbf16, "hbm"> {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%x : memref<4096xf32, "hbm">) outs(%y : memref<4096xbf16, "hbm">) {
  ^bb0(%a: f32, %old: bf16):
    %e = "scalar.activation"(%a) {fn = "exp"} : (f32) -> f32
    %v = "scalar.convert"(%e) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %v : bf16
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%x : memref<4096xf32, "hbm">) outs(%z : memref<4096xbf16, "hbm">) {
  ^bb0(%a: f32, %old: bf16):
    %e = "scalar.alu"(%a, %a) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %v = "scalar.convert"(%e) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %v : bf16
  }
  return
}
