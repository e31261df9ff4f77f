// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Folds are kept in registers over the reduced loops.
// RUN: nki-opt --lower-to-vector %s | FileCheck %s

#in = affine_map<(p, f) -> (p, f)>

// CHECK: // [[ROWS:add_8x32_float32_[0-9a-f]+]](x, y)
func.func @rows(%x: memref<8x32xf32, "hbm"> {nki.name = "x"}, %y: memref<8xf32, "hbm"> {nki.name = "y"}) {
  linalg.generic {indexing_maps = [#in, affine_map<(p, f) -> (p)>], iterator_types = ["parallel", "reduction"]}
    ins(%x : memref<8x32xf32, "hbm">) outs(%y : memref<8xf32, "hbm">) {
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
// CHECK:   scf.for %[[ROW:[a-z0-9]+]] =
// CHECK:     %[[TO:.*]] = llvm.getelementptr %{{.*}}[%[[ROW]]] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK:     %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<[[LANES:[0-9]+]]xf32>
// CHECK:     %[[SUMS:.*]] = scf.for %[[F:[a-z0-9]+]] = {{.*}} iter_args(%[[SO_FAR:.*]] = %[[ZERO]]) -> (vector<[[LANES]]xf32>)
// CHECK:       %[[AT:.*]] = llvm.getelementptr %{{.*}}[%[[F]]]
// CHECK:       %[[V:.*]] = llvm.load %[[AT]] {alignment = 4 : i64} : !llvm.ptr -> vector<[[LANES]]xf32>
// CHECK:       %[[NEXT:.*]] = arith.addf %[[SO_FAR]], %[[V]] : vector<[[LANES]]xf32>
// CHECK:       scf.yield %[[NEXT]]
// CHECK:     %[[LOW:.*]] = vector.shuffle %[[SUMS]], %[[SUMS]] [0, 1
// CHECK:     %[[HIGH:.*]] = vector.shuffle %[[SUMS]], %[[SUMS]] [
// CHECK:     %{{.*}} = arith.addf %[[LOW]], %[[HIGH]]
// CHECK:     %[[LAST:.*]] = arith.addf %{{.*}}, %{{.*}} : vector<1xf32>
// CHECK:     %[[SUM:.*]] = vector.extract %[[LAST]][0] : f32 from vector<1xf32>
// CHECK:     %[[OLD:.*]] = llvm.load %[[TO]] {alignment = 4 : i64} : !llvm.ptr -> f32
// CHECK:     %[[NEW:.*]] = arith.addf %[[OLD]], %[[SUM]] : f32
// CHECK:     llvm.store %[[NEW]], %[[TO]]

// Across rows, the lanes are columns: no step is between lanes. NaN stays, -0 becomes 0 at the end.
// CHECK: llvm.func internal @[[COLUMNS]]
// CHECK:   scf.for %[[F:[a-z0-9]+]] =
// CHECK:     %[[FROM:.*]] = llvm.getelementptr %{{.*}}[%[[F]]]
// CHECK:     %[[TO:.*]] = llvm.getelementptr %{{.*}}[%[[F]]]
// CHECK:     %[[START:.*]] = llvm.load %[[TO]] {alignment = 4 : i64} : !llvm.ptr -> vector<[[LANES]]xf32>
// CHECK:     %[[MAX:.*]] = scf.for %[[P:[a-z0-9]+]] = {{.*}} iter_args(%[[SO_FAR:.*]] = %[[START]])
// CHECK:       %[[AT:.*]] = llvm.getelementptr %[[FROM]][
// CHECK:       %[[V:.*]] = llvm.load %[[AT]] {alignment = 4 : i64} : !llvm.ptr -> vector<[[LANES]]xf32>
// CHECK:       %[[MORE:.*]] = arith.cmpf ogt, %[[SO_FAR]], %[[V]]
// CHECK:       %[[LARGER:.*]] = arith.select %[[MORE]], %[[SO_FAR]], %[[V]]
// CHECK:       %[[KEPT:[0-9]+]] = {{(arith.select %.*, %.*, |llvm.call_intrinsic .*fixupimm.*[(])}}%[[LARGER]]
// CHECK-NEXT:  scf.yield %[[KEPT]]
// CHECK:       %[[ZERO:.*]] = arith.constant dense<0.000000e+00>
// CHECK-NEXT:  %[[REPAIRED:.*]] = arith.addf %[[MAX]], %[[ZERO]]
// CHECK-NEXT:  llvm.store %[[REPAIRED]], %[[TO]]
// CHECK-NOT: vector.shuffle
