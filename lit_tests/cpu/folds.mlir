// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Folds are kept in registers over the reduced loops.
// RUN: nki-opt --lower-to-vector %s | FileCheck %s

#in = affine_map<(p, f) -> (p, f)>

// CHECK: // [[ROWS:add_8x64_float32_[0-9a-f]+]](x, y)
func.func @rows(%x: memref<8x64xf32, "hbm"> {nki.name = "x"}, %y: memref<8xf32, "hbm"> {nki.name = "y"}) {
  linalg.generic {indexing_maps = [#in, affine_map<(p, f) -> (p)>], iterator_types = ["parallel", "reduction"]}
    ins(%x : memref<8x64xf32, "hbm">) outs(%y : memref<8xf32, "hbm">) {
  ^bb0(%a: f32, %total: f32):
    %r = "scalar.alu"(%total, %a) {fn = "add"} : (f32, f32) -> f32
    linalg.yield %r : f32
  }
  return
}

// CHECK: // [[COLUMNS:maximum_64x8_float32_[0-9a-f]+]](x, y)
func.func @columns(%x: memref<8x64xf32, "hbm"> {nki.name = "x"}, %y: memref<64xf32, "hbm"> {nki.name = "y"}) {
  linalg.generic {indexing_maps = [#in, affine_map<(p, f) -> (f)>], iterator_types = ["reduction", "parallel"]}
    ins(%x : memref<8x64xf32, "hbm">) outs(%y : memref<64xf32, "hbm">) {
  ^bb0(%a: f32, %total: f32):
    %r = "scalar.alu"(%total, %a) {fn = "maximum"} : (f32, f32) -> f32
    linalg.yield %r : f32
  }
  return
}

// Along a row, every lane has a partial sum; the lanes are added by halves, then the destination's old value.
// CHECK: llvm.func internal @[[ROWS]]
// CHECK:   %[[SUMS:.*]] = scf.for {{.*}} iter_args
// CHECK:     arith.addf %{{.*}}, %{{.*}} : vector<
// CHECK:   vector.shuffle %[[SUMS]], %[[SUMS]]
// CHECK:   vector.extract
// CHECK:   %[[OLD:.*]] = llvm.load %{{.*}} : !llvm.ptr -> f32
// CHECK:   %[[NEW:.*]] = arith.addf %[[OLD]], %{{.*}} : f32
// CHECK:   llvm.store %[[NEW]]

// Across rows, the lanes are columns: no step is between lanes.
// CHECK: llvm.func internal @[[COLUMNS]]
// CHECK:   scf.for
// CHECK:     %[[START:.*]] = llvm.load %{{.*}} -> vector<
// CHECK:     %[[MAX:.*]] = scf.for {{.*}} iter_args({{.*}} = %[[START]])
// CHECK:     llvm.store %[[MAX]]
// CHECK-NOT: vector.shuffle
