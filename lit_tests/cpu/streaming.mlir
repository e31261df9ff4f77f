// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An output that no cache holds is stored past the caches, where it lies at a multiple of a vector.
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --lower-to-llvm %s | FileCheck %s

// CHECK:      // @doubled(x, y)
// CHECK:      llvm.func internal @[[DOUBLED:add_1073741824_float32_streamed_[0-9a-f]+]](%[[ARGS:[a-z0-9]+]]: !llvm.ptr) -> i64 attributes {passthrough = ["stackrealign"{{.*}}]} {
// CHECK:        %[[WORD:.*]] = llvm.getelementptr %[[ARGS]][1] : (!llvm.ptr) -> !llvm.ptr, i64
// CHECK:        %[[ADDRESS:.*]] = llvm.load %{{.*}} : !llvm.ptr -> i64
// CHECK:        %[[BITS:.*]] = llvm.and %[[ADDRESS]], %{{.*}} : i64
// CHECK:        %[[ALIGNED:.*]] = llvm.icmp "eq" %{{.*}}, %{{.*}} : i64
// CHECK:        llvm.cond_br %[[ALIGNED]], ^[[STREAMED:bb[0-9]+]], ^[[PLAIN:bb[0-9]+]]
// CHECK:        llvm.store %{{.*}}, %{{.*}} {alignment = {{16|32|64}} : i64, nontemporal} : vector<{{[0-9]+}}xf32>, !llvm.ptr
// CHECK:        llvm.fence seq_cst
// CHECK-NOT:    nontemporal
// CHECK:        llvm.store %{{.*}}, %{{.*}} {alignment = 4 : i64} : vector<{{[0-9]+}}xf32>, !llvm.ptr
// CHECK-NOT:    llvm.fence
// CHECK:        llvm.return %{{.*}} : i64
func.func @doubled(%x: memref<1073741824xf32, "hbm"> {nki.name = "x"},
                   %y: memref<1073741824xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64}) {
  linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
    ins(%x : memref<1073741824xf32, "hbm">) outs(%y : memref<1073741824xf32, "hbm">) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %in : f32
    linalg.yield %0 : f32
  }
  return
}
