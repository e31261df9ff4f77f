// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --schedule-instructions %s | FileCheck %s

#zero = affine_map<() -> (0, 0)>
#start = affine_map<() -> (0)>
#all = affine_set<() : (0 == 0)>

// The second load does not wait behind the work on the first tile.
// CHECK-LABEL: func.func @overlap
// CHECK-DAG:     %[[A:.*]] = memref.alloc() {nki.name = "a"}
// CHECK-DAG:     %[[B:.*]] = memref.alloc() {nki.name = "b"}
// CHECK:         "nisa.dma_copy"(%[[A]], %arg0)
// CHECK-NEXT:    "nisa.dma_copy"(%[[B]], %arg1)
// CHECK-NEXT:    "nisa.activation"(%[[A]], %[[A]])
// CHECK-NEXT:    "nisa.dma_copy"(%arg0, %[[A]])
// CHECK-NEXT:    "nisa.activation"(%[[B]], %[[B]])
// CHECK-NEXT:    "nisa.dma_copy"(%arg1, %[[B]])
// CHECK-NEXT:    return
func.func @overlap(%x: memref<128x512xf32, "hbm">, %y: memref<128x512xf32, "hbm">) {
  %a = memref.alloc() {nki.name = "a"} : memref<128x512xf32, "sbuf">
  %b = memref.alloc() {nki.name = "b"} : memref<128x512xf32, "sbuf">
  "nisa.dma_copy"(%a, %x) {engine = "sync", mask = #all, access = [#nki.access<f32, #zero, [[1, 128], [1, 512]]>, #nki.access<f32, #start, [[512, 128], [1, 512]]>]} : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "hbm">) -> ()
  "nisa.activation"(%a, %a) {engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = #all, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, access = [#nki.access<f32, #zero, [[1, 128], [1, 512]]>, #nki.access<f32, #zero, [[1, 128], [1, 512]]>]} : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "sbuf">) -> ()
  "nisa.dma_copy"(%x, %a) {engine = "sync", mask = #all, access = [#nki.access<f32, #start, [[512, 128], [1, 512]]>, #nki.access<f32, #zero, [[1, 128], [1, 512]]>]} : (memref<128x512xf32, "hbm">, memref<128x512xf32, "sbuf">) -> ()
  "nisa.dma_copy"(%b, %y) {engine = "sync", mask = #all, access = [#nki.access<f32, #zero, [[1, 128], [1, 512]]>, #nki.access<f32, #start, [[512, 128], [1, 512]]>]} : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "hbm">) -> ()
  "nisa.activation"(%b, %b) {engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = #all, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, access = [#nki.access<f32, #zero, [[1, 128], [1, 512]]>, #nki.access<f32, #zero, [[1, 128], [1, 512]]>]} : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "sbuf">) -> ()
  "nisa.dma_copy"(%y, %b) {engine = "sync", mask = #all, access = [#nki.access<f32, #start, [[512, 128], [1, 512]]>, #nki.access<f32, #zero, [[1, 128], [1, 512]]>]} : (memref<128x512xf32, "hbm">, memref<128x512xf32, "sbuf">) -> ()
  return
}
