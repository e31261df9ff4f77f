// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A mask that is no box is a mask of lanes; bounds that were left to run time are checked first.
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

// CHECK: llvm.func internal @[[CHECK]]
// CHECK:   scf.for
// CHECK:     scf.for
// CHECK:       arith.cmpi sge
// CHECK:       arith.select

// CHECK: llvm.func internal @[[COPY]]
// CHECK:   %[[ACTIVE:.*]] = arith.cmpi sge, %{{.*}}, %{{.*}} : vector<[[LANES:[0-9]+]]xi64>
// CHECK:   %[[SOME:.*]] = vector.reduction <or>, %[[ACTIVE]]
// CHECK:   scf.if %[[SOME]]
// CHECK:     %[[IN:.*]] = llvm.intr.masked.load %{{.*}}, %[[ACTIVE]]
// CHECK:     llvm.intr.masked.store %[[IN]], %{{.*}}, %[[ACTIVE]]
