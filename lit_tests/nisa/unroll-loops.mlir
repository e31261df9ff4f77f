// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --unroll-loops %s | FileCheck %s
// RUN: nki-opt --unroll-loops="limit=4" %s | FileCheck --check-prefix=KEPT %s

// Each iteration has numbers for the loop variable and a buffer of its own; the grid's programs come one after the other.
// CHECK-LABEL: func.func @copy
// CHECK-SAME:  nki.grid = []
// CHECK-COUNT-4: memref.alloc() {nki.name = "t"} : memref<128x64xf32, "sbuf">
// CHECK:         "nisa.dma_copy"(%[[T0:.*]], %arg0) {access = [#nki.access<f32, #[[ZERO:.*]], {{.*}}>, #nki.access<f32, #[[A:.*]], [{{.*}}
// CHECK:         "nisa.dma_copy"(%arg1, %[[T0]])
// CHECK-NOT:     scf.for
// CHECK:         return

// Over the limit a loop stays; here it is the grid's.
// KEPT-LABEL: func.func @copy
// KEPT-COUNT-1: scf.for
// KEPT-COUNT-2: memref.alloc
// KEPT:         return
func.func @copy(%x: memref<512x64xf32, "hbm">,
                %y: memref<512x64xf32, "hbm"> {nki.shared = 0 : i64},
                %program: index {nki.program_id = 0 : i64}) attributes {nki.grid = [2], nki.results = [1]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  scf.for %i = %c0 to %c2 step %c1 {
    %t = memref.alloc() {nki.name = "t"} : memref<128x64xf32, "sbuf">
    "nisa.dma_copy"(%t, %x, %program, %i) {engine = "sync", mask = affine_set<() : (0 == 0)>,
      access = [#nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>, [[1, 128], [1, 64]]>,
                #nki.access<f32, affine_map<()[s0, s1] -> (s0 * 16384 + s1 * 8192)>, [[64, 128], [1, 64]]>]}
      : (memref<128x64xf32, "sbuf">, memref<512x64xf32, "hbm">, index, index) -> ()
    "nisa.dma_copy"(%y, %t, %program, %i) {engine = "sync", mask = affine_set<() : (0 == 0)>,
      access = [#nki.access<f32, affine_map<()[s0, s1] -> (s0 * 16384 + s1 * 8192)>, [[64, 128], [1, 64]]>,
                #nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>, [[1, 128], [1, 64]]>]}
      : (memref<512x64xf32, "hbm">, memref<128x64xf32, "sbuf">, index, index) -> ()
  }
  return
}

// A branch on the loop variable is decided in each iteration.
// CHECK-LABEL: func.func @branch
// CHECK-NOT:     scf.if
// CHECK:         "nisa.memset"{{.*}} value = 2.0
// CHECK-NEXT:    "nisa.memset"{{.*}} value = 1.0
// CHECK-NEXT:    return
func.func @branch() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %t = memref.alloc() : memref<128x64xf32, "sbuf">
  scf.for %i = %c0 to %c2 step %c1 {
    %last = arith.cmpi sge, %i, %c1 : index
    scf.if %last {
      "nisa.memset"(%t) {engine = "vector", mask = affine_set<() : (0 == 0)>, value = 1.0 : f64,
        access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>]} : (memref<128x64xf32, "sbuf">) -> ()
    } else {
      "nisa.memset"(%t) {engine = "vector", mask = affine_set<() : (0 == 0)>, value = 2.0 : f64,
        access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>]} : (memref<128x64xf32, "sbuf">) -> ()
    }
  }
  return
}
