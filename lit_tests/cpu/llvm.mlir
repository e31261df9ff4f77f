// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// nki-opt prints what the engine compiles: routines in the LLVM dialect.
// RUN: nki-opt --lower-to-llvm %s | FileCheck %s

// CHECK:      // @zero(y)
// CHECK-NEXT: //   [[ZERO:set_64_float32_[0-9a-f]+]](y)
// CHECK:      llvm.func internal @[[ZERO]](%[[ARGS:[a-z0-9]+]]: !llvm.ptr) -> i64 attributes {passthrough = ["stackrealign"]} {
// CHECK-NOT:    scf.
// CHECK:        %[[END:.*]] = llvm.mlir.constant(64 : i64) : i64
// CHECK:        %[[LANES:.*]] = llvm.mlir.constant([[N:[0-9]+]] : i64) : i64
// CHECK:        %[[Y:.*]] = llvm.load %[[ARGS]] : !llvm.ptr -> !llvm.ptr
// CHECK:        llvm.br ^[[HEAD:bb[0-9]+]](%{{.*}} : i64)
// CHECK:      ^[[HEAD]](%[[I:.*]]: i64):
// CHECK-NEXT:   %[[MORE:.*]] = llvm.icmp "slt" %[[I]], %[[END]] : i64
// CHECK-NEXT:   llvm.cond_br %[[MORE]], ^[[BODY:bb[0-9]+]], ^[[DONE:bb[0-9]+]]
// CHECK-NEXT: ^[[BODY]]:
// CHECK-NEXT:   %[[TO:.*]] = llvm.getelementptr %[[Y]][%[[I]]] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK-NEXT:   %[[ZEROS:.*]] = llvm.mlir.constant(dense<0.000000e+00> : vector<[[N]]xf32>)
// CHECK-NEXT:   llvm.store %[[ZEROS]], %[[TO]] {alignment = 4 : i64} : vector<[[N]]xf32>, !llvm.ptr
// CHECK-NEXT:   %[[NEXT:.*]] = llvm.add %[[I]], %[[LANES]] : i64
// CHECK-NEXT:   llvm.br ^[[HEAD]](%[[NEXT]] : i64)
// CHECK-NEXT: ^[[DONE]]:
// CHECK-NEXT:   llvm.return %{{.*}} : i64
func.func @zero(%y: memref<64xf32, "hbm"> {nki.name = "y"}) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<64xf32, "hbm">)
  return
}
