// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Elementwise operations are loops over vectors: contiguous axes become one, the rest of a row is a masked vector.
// RUN: nki-opt --lower-to-vector %s | FileCheck %s

// Both axes are one of 64 elements, which fill whole vectors.
// CHECK-LABEL: // @contiguous(x, y)
// CHECK-NEXT:  //   [[TWICE:multiply_64_float32_bfloat16_[0-9a-f]+]](x, y)
// CHECK-NEXT:  //   end
func.func @contiguous(%x: memref<4x16xbf16, "hbm"> {nki.name = "x"}, %y: memref<4x16xf32, "hbm"> {nki.name = "y"}) {
  linalg.generic {indexing_maps = [affine_map<(p, f) -> (p, f)>, affine_map<(p, f) -> (p, f)>],
                  iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<4x16xbf16, "hbm">) outs(%y : memref<4x16xf32, "hbm">) {
  ^bb0(%a: bf16, %old: f32):
    %v = "scalar.convert"(%a) : (bf16) -> f32
    %two = arith.constant 2.0 : f32
    %r = "scalar.alu"(%v, %two) {fn = "multiply"} : (f32, f32) -> f32
    linalg.yield %r : f32
  }
  return
}

// One element of `s` is for a whole row; rows have 19 elements.
// CHECK-LABEL: // @row_by_row(x, s, y)
// CHECK-NEXT:  //   [[ADD:add_4x19_float32_[0-9a-f]+]](x, s, y)
func.func @row_by_row(%x: memref<4x19xf32, "hbm"> {nki.name = "x"}, %s: memref<4xf32, "hbm"> {nki.name = "s"},
                      %y: memref<4x19xf32, "hbm"> {nki.name = "y"}) {
  linalg.generic {indexing_maps = [affine_map<(p, f) -> (p, f)>, affine_map<(p, f) -> (p)>, affine_map<(p, f) -> (p, f)>],
                  iterator_types = ["parallel", "parallel"]}
    ins(%x, %s : memref<4x19xf32, "hbm">, memref<4xf32, "hbm">) outs(%y : memref<4x19xf32, "hbm">) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %r = "scalar.alu"(%a, %b) {fn = "add"} : (f32, f32) -> f32
    linalg.yield %r : f32
  }
  return
}

// CHECK:      llvm.func internal @[[TWICE]]
// CHECK:        scf.for
// CHECK:          %[[IN:.*]] = llvm.load %{{.*}} {alignment = 2 : i64} : !llvm.ptr -> vector<[[LANES:[0-9]+]]xbf16>
// CHECK:          arith.shli
// CHECK:          %[[OUT:.*]] = arith.mulf
// CHECK:          llvm.store %[[OUT]], %{{.*}} {alignment = 4 : i64} : vector<[[LANES]]xf32>, !llvm.ptr

// CHECK:      llvm.func internal @[[ADD]]
// The row's own element is loaded before the vectors of the row.
// CHECK:        scf.for
// CHECK:          %[[S:.*]] = llvm.load %{{.*}} : !llvm.ptr -> f32
// CHECK:          llvm.load %{{.*}} -> vector<[[LANES]]xf32>
// CHECK:          vector.broadcast %[[S]] : f32 to vector<[[LANES]]xf32>
// CHECK:          arith.addf
// What is left of the row is neither read nor written beyond its end.
// CHECK:          llvm.intr.masked.load
// CHECK:          arith.addf
// CHECK:          llvm.intr.masked.store
