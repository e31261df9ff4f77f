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

// CHECK:      llvm.func internal @[[TWICE]](%[[ARGS:[a-z0-9]+]]: !llvm.ptr) -> i64 attributes {passthrough = ["stackrealign"]} {
// CHECK:        %[[X:.*]] = llvm.load %[[ARGS]] : !llvm.ptr -> !llvm.ptr
// CHECK:        %[[SECOND:.*]] = llvm.getelementptr %[[ARGS]][1]
// CHECK:        %[[Y:.*]] = llvm.load %[[SECOND]] : !llvm.ptr -> !llvm.ptr
// CHECK:        %[[TWO:.*]] = arith.constant 2.000000e+00 : f32
// CHECK:        scf.for %[[I:[a-z0-9]+]] =
// CHECK:          %[[FROM:.*]] = llvm.getelementptr %[[X]][%[[I]]] : (!llvm.ptr, i64) -> !llvm.ptr, i16
// CHECK:          %[[TO:.*]] = llvm.getelementptr %[[Y]][%[[I]]] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK:          %[[IN:.*]] = llvm.load %[[FROM]] {alignment = 2 : i64} : !llvm.ptr -> vector<[[LANES:[0-9]+]]xi16>
// A bfloat16 is the upper half of a float32.
// CHECK:          %[[WIDE:.*]] = arith.extui %[[IN]] : vector<[[LANES]]xi16> to vector<[[LANES]]xi32>
// CHECK:          %[[HALF:.*]] = arith.constant dense<16> : vector<[[LANES]]xi32>
// CHECK:          %[[UPPER:.*]] = arith.shli %[[WIDE]], %[[HALF]]
// CHECK:          %[[V:.*]] = arith.bitcast %[[UPPER]] : vector<[[LANES]]xi32> to vector<[[LANES]]xf32>
// CHECK:          %[[TWOS:.*]] = vector.broadcast %[[TWO]] : f32 to vector<[[LANES]]xf32>
// CHECK:          %[[OUT:.*]] = arith.mulf %[[V]], %[[TWOS]]
// CHECK:          llvm.store %[[OUT]], %[[TO]] {alignment = 4 : i64} : vector<[[LANES]]xf32>, !llvm.ptr

// CHECK:      llvm.func internal @[[ADD]](%[[ARGS:[a-z0-9]+]]: !llvm.ptr) -> i64 attributes {passthrough = ["stackrealign"]} {
// The row's own element is loaded before the vectors of the row.
// CHECK:        scf.for %[[ROW:[a-z0-9]+]] =
// CHECK:          %[[S_AT:.*]] = llvm.getelementptr %{{.*}}[%[[ROW]]] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK:          %[[S:.*]] = llvm.load %[[S_AT]] {alignment = 4 : i64} : !llvm.ptr -> f32
// CHECK:          %[[V:.*]] = llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr -> vector<[[LANES]]xf32>
// CHECK:          %[[ALL:.*]] = vector.broadcast %[[S]] : f32 to vector<[[LANES]]xf32>
// CHECK:          %[[SUM:.*]] = arith.addf %[[V]], %[[ALL]]
// CHECK:          llvm.store %[[SUM]], %{{.*}} {alignment = 4 : i64} : vector<[[LANES]]xf32>, !llvm.ptr
// What is left of the row is neither read nor written beyond its end: three lanes of the last vector.
// CHECK:          %[[LEFT:.*]] = arith.constant dense<[true, true, true, false{{.*}}]> : vector<[[LANES]]xi1>
// CHECK:          %[[V:.*]] = llvm.intr.masked.load %{{.*}}, %[[LEFT]], %{{.*}} {alignment = 4 : i32}
// CHECK:          %[[ALL:.*]] = vector.broadcast %[[S]] : f32 to vector<[[LANES]]xf32>
// CHECK:          %[[SUM:.*]] = arith.addf %[[V]], %[[ALL]]
// CHECK:          llvm.intr.masked.store %[[SUM]], %{{.*}}, %[[LEFT]] {alignment = 4 : i32}
