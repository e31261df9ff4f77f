// RUN: nki-opt --verify-target %s | FileCheck %s

// Rows may move between the quadrants of the partitions, and a transfer starts anywhere.
// CHECK-LABEL: func.func @legal
// CHECK:         "nisa.tensor_copy"
// CHECK:         "nisa.dma_copy"
module attributes {nki.target = "trn2"} {
  func.func @legal() {
    %x = memref.alloc() : memref<128x64xf32, "sbuf">
    %y = memref.alloc() : memref<128x64xf32, "sbuf">
    "nisa.tensor_copy"(%y, %x) {
      access = [#nki.access<f32, affine_map<() -> (32, 0)>, [[1, 20], [1, 64]]>,
                #nki.access<f32, affine_map<() -> (96, 0)>, [[1, 20], [1, 64]]>],
      engine = "vector", mask = affine_set<() : (0 == 0)>}
      : (memref<128x64xf32, "sbuf">, memref<128x64xf32, "sbuf">) -> ()
    "nisa.dma_copy"(%y, %x) {
      access = [#nki.access<f32, affine_map<() -> (7, 0)>, [[1, 20], [1, 64]]>,
                #nki.access<f32, affine_map<() -> (5, 0)>, [[1, 20], [1, 64]]>],
      engine = "sync", mask = affine_set<() : (0 == 0)>}
      : (memref<128x64xf32, "sbuf">, memref<128x64xf32, "sbuf">) -> ()
    return
  }
}
