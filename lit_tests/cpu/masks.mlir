// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A mask that is not a box is a mask of lanes; bounds that were left to run time are checked first.
// RUN: nki-opt --lower-to-vector %s | FileCheck %s

// CHECK:      // @lower(x, y)
// CHECK-NEXT: //   [[CHECK:limits_32x64_[0-9a-f]+]](1)
// CHECK-NEXT: //   [[COPY:copy_32x64_float32_[0-9a-f]+]](x, y)
func.func @lower(%x: memref<32x64xf32, "hbm"> {nki.name = "x"}, %y: memref<32x64xf32, "hbm"> {nki.name = "y"}) {
  linalg.generic {indexing_maps = [affine_map<(p, f) -> (p, f)>, affine_map<(p, f) -> (p, f)>],
                  iterator_types = ["parallel", "parallel"],
                  nki.mask = affine_set<(p, f) : (p - f >= 0)>, nki.limits = affine_set<(p, f) : (31 - f >= 0)>}
    ins(%x : memref<32x64xf32, "hbm">) outs(%y : memref<32x64xf32, "hbm">) {
  ^bb0(%a: f32, %old: f32):
    linalg.yield %a : f32
  }
  return
}

// The least that 31 - f is where the mask holds; below zero it is reported with the number of the check, 1.
// CHECK: llvm.func internal @[[CHECK]](%[[ARGS:[a-z0-9]+]]: !llvm.ptr) -> i64 {
// CHECK:   %[[NUMBER:.*]] = llvm.load %[[ARGS]] : !llvm.ptr -> i64
// CHECK:   %[[LEAST:.*]] = scf.for %[[P:[a-z0-9]+]] =
// CHECK:     scf.for %[[F:[a-z0-9]+]] = {{.*}} iter_args(%[[SO_FAR:.*]] =
// CHECK:       %[[MINUS_F:.*]] = arith.muli %[[F]], %c-1_i64
// CHECK:       %[[ROOM:.*]] = arith.addi %[[MINUS_F]], %c31_i64
// CHECK:       %[[LESS:.*]] = arith.minsi %[[SO_FAR]], %[[ROOM]]
// CHECK:       %[[MINUS_F:.*]] = arith.muli %[[F]], %c-1_i64
// CHECK:       %[[ABOVE:.*]] = arith.addi %[[P]], %[[MINUS_F]]
// CHECK:       %[[ACTIVE:.*]] = arith.cmpi sge, %[[ABOVE]], %{{.*}}
// CHECK:       %[[NEXT:.*]] = arith.select %[[ACTIVE]], %[[LESS]], %[[SO_FAR]]
// CHECK:       scf.yield %[[NEXT]]
// CHECK:   %[[REPORT:.*]] = arith.ori %{{.*}}, %[[NUMBER]]
// CHECK:   %[[OUTSIDE:.*]] = arith.cmpi slt, %[[LEAST]], %{{.*}}
// CHECK:   %[[RESULT:.*]] = arith.select %[[OUTSIDE]], %[[REPORT]], %{{.*}}
// CHECK:   llvm.return %[[RESULT]]

// Lanes whose p - f is not negative are active; a vector that has none is left out.
// CHECK: llvm.func internal @[[COPY]]
// CHECK:   scf.for %[[P:[a-z0-9]+]] =
// CHECK:     scf.for %[[F:[a-z0-9]+]] =
// CHECK:       %[[FROM:.*]] = llvm.getelementptr %{{.*}}[%[[F]]]
// CHECK:       %[[TO:.*]] = llvm.getelementptr %{{.*}}[%[[F]]]
// CHECK:       %[[MINUS_F:.*]] = arith.muli %[[F]], %c-1_i64
// CHECK:       %[[FIRST:.*]] = arith.addi %[[P]], %[[MINUS_F]]
// CHECK:       %[[FIRSTS:.*]] = vector.broadcast %[[FIRST]] : i64 to vector<[[LANES:[0-9]+]]xi64>
// CHECK:       %[[STEPS:.*]] = arith.constant dense<[0, -1, {{.*}}]> : vector<[[LANES]]xi64>
// CHECK:       %[[ABOVE:.*]] = arith.addi %[[FIRSTS]], %[[STEPS]]
// CHECK:       %[[ACTIVE:.*]] = arith.cmpi sge, %[[ABOVE]], %{{.*}} : vector<[[LANES]]xi64>
// CHECK:       %[[SOME:.*]] = vector.reduction <or>, %[[ACTIVE]] : vector<[[LANES]]xi1> into i1
// CHECK:       scf.if %[[SOME]] {
// CHECK:         %[[IN:.*]] = llvm.intr.masked.load %[[FROM]], %[[ACTIVE]], %{{.*}} {alignment = 4 : i32}
// CHECK:         llvm.intr.masked.store %[[IN]], %[[TO]], %[[ACTIVE]] {alignment = 4 : i32}
