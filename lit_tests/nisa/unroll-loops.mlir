// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --unroll-loops %s | FileCheck %s
// RUN: nki-opt --unroll-loops="limit=4" %s | FileCheck --check-prefix=KEPT %s

!hbm = memref<512x64xf32, "hbm">
!tile = memref<128x64xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
// With program id and loop variable: the tile, and 128 rows.
#tile_ij = #nki.access<f32, affine_map<()[i, j] -> (0, 0)>, [[1, 128], [1, 64]]>
#rows_ij = #nki.access<f32, affine_map<()[i, j] -> (i * 16384 + j * 8192)>, [[64, 128], [1, 64]]>

// CHECK-DAG: #[[TILE:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-DAG: #[[ROWS_0:map[0-9]*]] = affine_map<() -> (0)>
// CHECK-DAG: #[[ROWS_1:map[0-9]*]] = affine_map<() -> (8192)>
// CHECK-DAG: #[[ROWS_2:map[0-9]*]] = affine_map<() -> (16384)>
// CHECK-DAG: #[[ROWS_3:map[0-9]*]] = affine_map<() -> (24576)>

// Each iteration has numbers for the loop variable and its own buffer; the grid's programs come one after the other.
// CHECK-LABEL: func.func @copy(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<512x64xf32, "hbm">,
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<512x64xf32, "hbm"> {nki.shared = 0 : i64})
// CHECK-SAME:    attributes {nki.grid = [], nki.results = [1]}
// CHECK-NEXT:    %[[T0:.*]] = memref.alloc() {nki.name = "t"} : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[T1:.*]] = memref.alloc() {nki.name = "t"} : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[T2:.*]] = memref.alloc() {nki.name = "t"} : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[T3:.*]] = memref.alloc() {nki.name = "t"} : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    "nisa.dma_copy"(%[[T0]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[TILE]], {{.*}}>, #nki.access<f32, #[[ROWS_0]],
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[T0]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ROWS_0]], {{.*}}>, #nki.access<f32, #[[TILE]],
// CHECK-NEXT:    "nisa.dma_copy"(%[[T1]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[TILE]], {{.*}}>, #nki.access<f32, #[[ROWS_1]],
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[T1]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ROWS_1]], {{.*}}>, #nki.access<f32, #[[TILE]],
// CHECK-NEXT:    "nisa.dma_copy"(%[[T2]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[TILE]], {{.*}}>, #nki.access<f32, #[[ROWS_2]],
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[T2]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ROWS_2]], {{.*}}>, #nki.access<f32, #[[TILE]],
// CHECK-NEXT:    "nisa.dma_copy"(%[[T3]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[TILE]], {{.*}}>, #nki.access<f32, #[[ROWS_3]],
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[T3]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ROWS_3]], {{.*}}>, #nki.access<f32, #[[TILE]],
// CHECK-NEXT:    return

// Over the limit a loop stays; here it is the grid's.
// KEPT-DAG: #[[TILE:map[0-9]*]] = affine_map<()[s0] -> (0, 0)>
// KEPT-DAG: #[[EVEN:map[0-9]*]] = affine_map<()[s0] -> (s0 * 16384)>
// KEPT-DAG: #[[ODD:map[0-9]*]] = affine_map<()[s0] -> (s0 * 16384 + 8192)>
// KEPT-LABEL: func.func @copy(
// KEPT-SAME:    %[[X:[a-z0-9]+]]: memref<512x64xf32, "hbm">,
// KEPT-SAME:    %[[Y:[a-z0-9]+]]: memref<512x64xf32, "hbm"> {nki.shared = 0 : i64})
// KEPT:         scf.for %[[P:[a-z0-9]+]] = %{{.*}} to %{{.*}} step
// KEPT-NEXT:      %[[T0:.*]] = memref.alloc()
// KEPT-NEXT:      %[[T1:.*]] = memref.alloc()
// KEPT-NEXT:      "nisa.dma_copy"(%[[T0]], %[[X]], %[[P]])
// KEPT-SAME:        access = [#nki.access<f32, #[[TILE]], {{.*}}>, #nki.access<f32, #[[EVEN]],
// KEPT-NEXT:      "nisa.dma_copy"(%[[Y]], %[[T0]], %[[P]])
// KEPT-SAME:        access = [#nki.access<f32, #[[EVEN]], {{.*}}>, #nki.access<f32, #[[TILE]],
// KEPT-NEXT:      "nisa.dma_copy"(%[[T1]], %[[X]], %[[P]])
// KEPT-SAME:        access = [#nki.access<f32, #[[TILE]], {{.*}}>, #nki.access<f32, #[[ODD]],
// KEPT-NEXT:      "nisa.dma_copy"(%[[Y]], %[[T1]], %[[P]])
// KEPT-SAME:        access = [#nki.access<f32, #[[ODD]], {{.*}}>, #nki.access<f32, #[[TILE]],
// KEPT-NEXT:    }
// KEPT-NEXT:    return
func.func @copy(%x: !hbm, %y: !hbm {nki.shared = 0 : i64}, %program: index {nki.program_id = 0 : i64})
    attributes {nki.grid = [2], nki.results = [1]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  scf.for %i = %c0 to %c2 step %c1 {
    %t = memref.alloc() {nki.name = "t"} : !tile
    "nisa.dma_copy"(%t, %x, %program, %i) {access = [#tile_ij, #rows_ij], engine = "sync", mask = #all}
      : (!tile, !hbm, index, index) -> ()
    "nisa.dma_copy"(%y, %t, %program, %i) {access = [#rows_ij, #tile_ij], engine = "sync", mask = #all}
      : (!hbm, !tile, index, index) -> ()
  }
  return
}

// A branch on the loop variable is decided in each iteration.
// CHECK-LABEL: func.func @branch(
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    "nisa.memset"(%[[T]]) {{.*}} value = 2.000000e+00 : f64
// CHECK-NEXT:    "nisa.memset"(%[[T]]) {{.*}} value = 1.000000e+00 : f64
// CHECK-NEXT:    return
func.func @branch() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %t = memref.alloc() : !tile
  scf.for %i = %c0 to %c2 step %c1 {
    %last = arith.cmpi sge, %i, %c1 : index
    scf.if %last {
      "nisa.memset"(%t) {access = [#tile], engine = "vector", mask = #all, value = 1.0 : f64} : (!tile) -> ()
    } else {
      "nisa.memset"(%t) {access = [#tile], engine = "vector", mask = #all, value = 2.0 : f64} : (!tile) -> ()
    }
  }
  return
}
