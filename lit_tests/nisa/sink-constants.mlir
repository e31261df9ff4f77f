// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --sink-constants %s | FileCheck %s

// The constant of %a is written right before its first use, that of %b, which is overwritten, not at all.
// CHECK-LABEL: func.func @constants
// CHECK:         %[[A:.*]] = memref.alloc() {nki.name = "a"}
// CHECK:         %[[B:.*]] = memref.alloc() {nki.name = "b"}
// CHECK-NOT:     "nisa.memset"
// CHECK:         "nisa.tensor_copy"(%[[B]], %{{.*}})
// CHECK-NEXT:    "nisa.memset"(%[[A]])
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[A]])
// CHECK-NOT:     "nisa.memset"
func.func @constants() {
  %a = memref.alloc() {nki.name = "a"} : memref<128x16xf32, "sbuf">
  %b = memref.alloc() {nki.name = "b"} : memref<128x16xf32, "sbuf">
  "nisa.memset"(%a) {engine = "vector", mask = affine_set<() : (0 == 0)>, value = 1.0 : f64,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>]} : (memref<128x16xf32, "sbuf">) -> ()
  "nisa.memset"(%b) {engine = "vector", mask = affine_set<() : (0 == 0)>, value = 0.0 : f64,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>]} : (memref<128x16xf32, "sbuf">) -> ()
  %u = memref.alloc() {nki.name = "u"} : memref<128x16xf32, "sbuf">
  "nisa.tensor_copy"(%b, %u) {engine = "vector", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>]}
    : (memref<128x16xf32, "sbuf">, memref<128x16xf32, "sbuf">) -> ()
  "nisa.tensor_copy"(%u, %a) {engine = "vector", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>]}
    : (memref<128x16xf32, "sbuf">, memref<128x16xf32, "sbuf">) -> ()
  return
}
