// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// nki-opt prints what the engine compiles: routines in the LLVM dialect.
// RUN: nki-opt --lower-to-llvm %s | FileCheck %s

// CHECK:      // @zero(y)
// CHECK-NEXT: //   [[ZERO:set_64_float32_[0-9a-f]+]](y)
// CHECK:      llvm.func internal @[[ZERO]]
// CHECK-NOT:  scf.
// CHECK:        llvm.cond_br
// CHECK:        llvm.store %{{.*}} {alignment = 4 : i64} : vector<{{[0-9]+}}xf32>, !llvm.ptr
// CHECK:        llvm.br
// CHECK:        llvm.return
func.func @zero(%y: memref<64xf32, "hbm"> {nki.name = "y"}) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<64xf32, "hbm">)
  return
}
