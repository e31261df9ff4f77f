// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A product of tiles keeps a tile of the result in registers over the summed axis.
// RUN: nki-opt --lower-to-vector --cpu-passes=zero-unwritten %s | FileCheck %s

// CHECK: // [[PRODUCT:add_16x512x128_float32_bfloat16_[0-9a-f]+]](a, b, c)
func.func @product(%a: memref<128x16xbf16, "hbm"> {nki.name = "a"}, %b: memref<128x512xbf16, "hbm"> {nki.name = "b"},
                   %c: memref<16x512xf32, "hbm"> {nki.name = "c"}) {
  linalg.generic {indexing_maps = [affine_map<(k, m, n) -> (k, m)>, affine_map<(k, m, n) -> (k, n)>,
                                   affine_map<(k, m, n) -> (m, n)>],
                  iterator_types = ["reduction", "parallel", "parallel"]}
    ins(%a, %b : memref<128x16xbf16, "hbm">, memref<128x512xbf16, "hbm">) outs(%c : memref<16x512xf32, "hbm">) {
  ^bb0(%x: bf16, %y: bf16, %total: f32):
    %p = "scalar.convert"(%x) : (bf16) -> f32
    %q = "scalar.convert"(%y) : (bf16) -> f32
    %r = "scalar.alu"(%p, %q) {fn = "multiply"} : (f32, f32) -> f32
    %s = "scalar.alu"(%total, %r) {fn = "add"} : (f32, f32) -> f32
    linalg.yield %s : f32
  }
  return
}

// Column blocks, then row blocks, then the summed axis with the whole tile as loop-carried values.
// CHECK: llvm.func internal @[[PRODUCT]]
// CHECK:   scf.for %[[N:[a-z0-9]+]] = %c0_i64 to %c512_i64
// CHECK:     %[[B:.*]] = llvm.getelementptr %{{.*}}[%[[N]]] : (!llvm.ptr, i64) -> !llvm.ptr, i16
// CHECK:     %[[C:.*]] = llvm.getelementptr %{{.*}}[%[[N]]] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK:     scf.for %[[M:[a-z0-9]+]] = %c0_i64 to %c{{[0-9]+}}_i64
// CHECK:       %[[A:.*]] = llvm.getelementptr %{{.*}}[%[[M]]] : (!llvm.ptr, i64) -> !llvm.ptr, i16
// CHECK:       %[[ROW:.*]] = arith.muli %[[M]], %c512_i64
// CHECK:       %[[TO:.*]] = llvm.getelementptr %[[C]][%[[ROW]]]
// CHECK:       %[[OLD:.*]] = llvm.load %[[TO]] {alignment = 4 : i64} : !llvm.ptr -> vector<[[LANES:[0-9]+]]xf32>
// CHECK:       %[[TILE:[a-z0-9]+]]:{{[0-9]+}} = scf.for %[[K:[a-z0-9]+]] = %c0_i64 to %c128_i64 step %c4_i64
// CHECK-SAME:      iter_args(%[[SUM:[a-z0-9]+]] = %[[OLD]], %[[NEIGHBOR:[a-z0-9]+]] =
// A number of A for each row, times vectors of B, added to the row's vectors.
// CHECK:         %[[COLUMN:.*]] = llvm.getelementptr %[[A]][%{{.*}}] : (!llvm.ptr, i64) -> !llvm.ptr, i16
// CHECK:         %[[LINE:.*]] = llvm.getelementptr %[[B]][%{{.*}}] : (!llvm.ptr, i64) -> !llvm.ptr, i16
// CHECK:         llvm.load %[[LINE]] {alignment = 2 : i64} : !llvm.ptr -> vector<[[LANES]]xi16>
// CHECK:         llvm.load %[[COLUMN]] {alignment = 2 : i64} : !llvm.ptr -> i16
// CHECK:         %[[X:.*]] = vector.broadcast %{{.*}} : f32 to vector<[[LANES]]xf32>
// CHECK-NEXT:    %[[FIRST:.*]] = math.fma %[[X]], %{{.*}}, %[[SUM]] : vector<[[LANES]]xf32>
// CHECK-NEXT:    %[[SECOND:.*]] = math.fma %[[X]], %{{.*}}, %[[NEIGHBOR]] : vector<[[LANES]]xf32>
// The other three positions of an iteration add to these sums, in order.
// CHECK:         %[[THIRD:.*]] = math.fma %{{.*}}, %{{.*}}, %[[FIRST]] : vector<[[LANES]]xf32>
// CHECK-NEXT:    %[[FOURTH:.*]] = math.fma %{{.*}}, %{{.*}}, %[[SECOND]] : vector<[[LANES]]xf32>
// CHECK:         %[[FIFTH:.*]] = math.fma %{{.*}}, %{{.*}}, %[[THIRD]] : vector<[[LANES]]xf32>
// CHECK-NEXT:    %[[SIXTH:.*]] = math.fma %{{.*}}, %{{.*}}, %[[FOURTH]] : vector<[[LANES]]xf32>
// CHECK:         %[[TOTAL:.*]] = math.fma %{{.*}}, %{{.*}}, %[[FIFTH]] : vector<[[LANES]]xf32>
// CHECK-NEXT:    %[[NEXT:.*]] = math.fma %{{.*}}, %{{.*}}, %[[SIXTH]] : vector<[[LANES]]xf32>
// CHECK:         scf.yield %[[TOTAL]], %[[NEXT]],
// CHECK:       llvm.store %[[TILE]]#0, %[[TO]]
// CHECK:       llvm.store %[[TILE]]#1
