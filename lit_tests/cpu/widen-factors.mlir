// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A factor in float16 is converted to float32 once, not each time that a register tile reads it.
// RUN: nki-opt --widen-factors --lower-to-vector %s | FileCheck %s
// RUN: nki-opt --widen-factors="most=1024" --lower-to-vector %s | FileCheck %s --check-prefix=LARGE

#k_m = affine_map<(m, n, k) -> (k, m)>
#k_n = affine_map<(m, n, k) -> (k, n)>
#m_n = affine_map<(m, n, k) -> (m, n)>
!left = memref<64x32xf16, "hbm">
!right = memref<64x128xf16, "hbm">
!sums = memref<32x128xf32, "hbm">

// CHECK:       // @product(a, b, y)
// CHECK-NEXT:  //   copy_2048_float32_float16_{{.*}}(a, [[A:.*]])
// CHECK-NEXT:  //   copy_8192_float32_float16_{{.*}}(b, [[B:.*]])
// CHECK-NEXT:  //   add_32x128x64_float32_{{[0-9a-f]+}}([[A]], [[B]], y)
// CHECK:       llvm.func internal @add_32x128x64_
// CHECK-NOT:   f16
// Factors that are larger stay.
// LARGE:       //   add_32x128x64_float32_float16_{{.*}}(a, b, y)
func.func @product(%a: !left {nki.name = "a"}, %b: !right {nki.name = "b"}, %y: !sums {nki.name = "y"}) {
  linalg.generic {indexing_maps = [#k_m, #k_n, #m_n], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : !left, !right) outs(%y : !sums) {
  ^bb0(%x: f16, %z: f16, %old: f32):
    %0 = "scalar.convert"(%x) {frm = "float16", to = "float32"} : (f16) -> f32
    %1 = "scalar.convert"(%z) {frm = "float16", to = "float32"} : (f16) -> f32
    %2 = "scalar.alu"(%0, %1) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %3 = "scalar.alu"(%old, %2) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %3 : f32
  }
  return
}
