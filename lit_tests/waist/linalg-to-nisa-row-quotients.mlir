// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --linalg-to-nisa="row-quotients=0" --verify-target %s | FileCheck --check-prefix=BEFORE %s
// RUN: nki-opt --linalg-to-nisa --verify-target %s | FileCheck %s

#whole = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#rows = affine_map<(d0, d1, d2) -> (d0, d1)>

// A quotient of two tiles takes seven cycles an element, one by a number for each partition half a cycle.
// BEFORE-LABEL: func.func @quotients(
// BEFORE:         "nisa.tensor_tensor"({{.*}}op = "divide"
// BEFORE-NOT:     "nisa.tensor_scalar"
// CHECK-LABEL:  func.func @quotients(
// CHECK:          %[[X:.*]] = memref.alloc() : memref<128x2x200xf32, "sbuf">
// CHECK-NEXT:     %[[S:.*]] = memref.alloc() : memref<128x2xf32, "sbuf">
// CHECK-NEXT:     %[[Y:.*]] = memref.alloc() : memref<128x2x200xbf16, "sbuf">
// CHECK-NEXT:     "nisa.tensor_scalar"(%[[Y]], %[[X]], %[[S]]) {{.*}}op0 = "divide"
// CHECK-NEXT:     "nisa.tensor_scalar"(%[[Y]], %[[X]], %[[S]]) {{.*}}op0 = "divide"
// CHECK-NEXT:     return
func.func @quotients() {
  %x = memref.alloc() : memref<128x2x200xf32, "sbuf">
  %s = memref.alloc() : memref<128x2xf32, "sbuf">
  %y = memref.alloc() : memref<128x2x200xbf16, "sbuf">
  linalg.generic {indexing_maps = [#whole, #rows, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x, %s : memref<128x2x200xf32, "sbuf">, memref<128x2xf32, "sbuf">) outs(%y : memref<128x2x200xbf16, "sbuf">) {
  ^bb0(%a: f32, %b: f32, %out: bf16):
    %q = "scalar.alu"(%a, %b) {fn = "divide"} : (f32, f32) -> f32
    %r = "scalar.convert"(%q) : (f32) -> bf16
    linalg.yield %r : bf16
  }
  return
}
