// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --spill-tiles %s | FileCheck %s
// RUN: nki-opt --spill-tiles=recompute=false %s | FileCheck --check-prefix=STORED %s

!hbm = memref<128x20000xf32, "hbm">
!tile = memref<128x20000xf32, "sbuf">
!half = memref<128x2048xf32, "psum">
!left = memref<128x512xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#hbm = #nki.access<f32, affine_map<() -> (0)>, [[20000, 128], [1, 20000]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 20000]]>
#wide = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 2048]]>
#first = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#left = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>

// Two of three tiles fit. The first, which is read last, leaves when the third needs room. HBM still has what the load
// brought, so that it is loaded then.
// CHECK-LABEL: func.func @three(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x20000xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<128x20000xf32, "hbm">
// CHECK-NOT:     memref<1x128x20000xf32, "hbm">
// CHECK:         "nisa.memset"(%[[B:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[B]])
// CHECK-NEXT:    "nisa.memset"(%[[C:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[C]], %[[C]], %[[B]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[A2:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[C]], %[[C]], %[[A2]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[C]])
// CHECK-NEXT:    return
// STORED-LABEL: func.func @three(
// STORED-SAME:    %[[X:[a-z0-9]+]]: memref<128x20000xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<128x20000xf32, "hbm">
// STORED:         %[[KEPT:[a-z0-9_]+]] = memref.alloc() {nki.name = "a.spilled"} : memref<1x128x20000xf32, "hbm">
// STORED:         "nisa.dma_copy"(%[[A:.*]], %[[X]])
// STORED-NEXT:    "nisa.dma_copy"(%[[KEPT]], %[[A]])
// STORED-NEXT:    "nisa.memset"(%[[B:[a-z0-9_]+]])
// STORED:         "nisa.tensor_tensor"(%[[C:[a-z0-9_]+]], %[[C]], %[[B]])
// STORED-NEXT:    "nisa.dma_copy"(%[[A2:[a-z0-9_]+]], %[[KEPT]])
// STORED-NEXT:    "nisa.tensor_tensor"(%[[C]], %[[C]], %[[A2]])
func.func @three(%x: !hbm, %y: !hbm) {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  %c = memref.alloc() {nki.name = "c"} : !tile
  "nisa.dma_copy"(%a, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.memset"(%b) {access = [#tile], engine = "vector", mask = #all, value = 1.0 : f64} : (!tile) -> ()
  "nisa.dma_copy"(%y, %b) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  "nisa.memset"(%c) {access = [#tile], engine = "vector", mask = #all, value = 2.0 : f64} : (!tile) -> ()
  "nisa.tensor_tensor"(%c, %c, %b) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"}
    : (!tile, !tile, !tile) -> ()
  "nisa.tensor_tensor"(%c, %c, %a) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"}
    : (!tile, !tile, !tile) -> ()
  "nisa.dma_copy"(%y, %c) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  return
}

// Sums of three halves of PSUM are open at once. The second, which is added to last, begins later; without computing
// again it goes to SBUF and comes back.
// CHECK-LABEL: func.func @open_sums(
// CHECK:         "nisa.nc_matmul"(%[[A:[a-z0-9_]+]], %[[L:.*]], %[[L]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[C:[a-z0-9_]+]], %[[L]], %[[L]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[A]], %[[L]], %[[L]]) {{.*}}accumulate = true
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[A]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[C]], %[[L]], %[[L]]) {{.*}}accumulate = true
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[C]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[B:[a-z0-9_]+]], %[[L]], %[[L]]) {{.*}}accumulate = false
// CHECK-NEXT:    "nisa.nc_matmul"(%[[B]], %[[L]], %[[L]]) {{.*}}accumulate = true
// CHECK-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[B]])
// CHECK-NEXT:    return
// STORED-LABEL: func.func @open_sums(
// STORED:         "nisa.nc_matmul"(%[[A:[a-z0-9_]+]], %[[L:.*]], %[[L]])
// STORED-NEXT:    "nisa.nc_matmul"(%[[B:[a-z0-9_]+]], %[[L]], %[[L]])
// STORED-NEXT:    "nisa.tensor_copy"(%[[KEPT:[a-z0-9_]+]], %[[B]])
// STORED-NEXT:    "nisa.nc_matmul"(%[[C:[a-z0-9_]+]], %[[L]], %[[L]])
// STORED-NEXT:    "nisa.nc_matmul"(%[[A]], %[[L]], %[[L]]) {{.*}}accumulate = true
// STORED-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[A]])
// STORED-NEXT:    "nisa.nc_matmul"(%[[C]], %[[L]], %[[L]]) {{.*}}accumulate = true
// STORED-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[C]])
// STORED-NEXT:    "nisa.tensor_copy"(%[[B2:[a-z0-9_]+]], %[[KEPT]])
// STORED-NEXT:    "nisa.nc_matmul"(%[[B2]], %[[L]], %[[L]]) {{.*}}accumulate = true
// STORED-NEXT:    "nisa.tensor_copy"(%{{.*}}, %[[B2]])
// STORED-NEXT:    return
func.func @open_sums() {
  %l = memref.alloc() : !left
  %t = memref.alloc() : memref<128x2048xf32, "sbuf">
  %a = memref.alloc() : !half
  %b = memref.alloc() : !half
  %c = memref.alloc() : !half
  "nisa.nc_matmul"(%a, %l, %l) {access = [#first, #left, #first], accumulate = false, engine = "tensor", mask = #all} : (!half, !left, !left) -> ()
  "nisa.nc_matmul"(%b, %l, %l) {access = [#first, #left, #first], accumulate = false, engine = "tensor", mask = #all} : (!half, !left, !left) -> ()
  "nisa.nc_matmul"(%c, %l, %l) {access = [#first, #left, #first], accumulate = false, engine = "tensor", mask = #all} : (!half, !left, !left) -> ()
  "nisa.nc_matmul"(%a, %l, %l) {access = [#first, #left, #first], accumulate = true, engine = "tensor", mask = #all} : (!half, !left, !left) -> ()
  "nisa.tensor_copy"(%t, %a) {access = [#wide, #wide], engine = "vector", mask = #all} : (memref<128x2048xf32, "sbuf">, !half) -> ()
  "nisa.nc_matmul"(%c, %l, %l) {access = [#first, #left, #first], accumulate = true, engine = "tensor", mask = #all} : (!half, !left, !left) -> ()
  "nisa.tensor_copy"(%t, %c) {access = [#wide, #wide], engine = "vector", mask = #all} : (memref<128x2048xf32, "sbuf">, !half) -> ()
  "nisa.nc_matmul"(%b, %l, %l) {access = [#first, #left, #first], accumulate = true, engine = "tensor", mask = #all} : (!half, !left, !left) -> ()
  "nisa.tensor_copy"(%t, %b) {access = [#wide, #wide], engine = "vector", mask = #all} : (memref<128x2048xf32, "sbuf">, !half) -> ()
  return
}

// The loop needs room for two tiles. What is used before it and after it is in HBM meanwhile.
// CHECK-LABEL: func.func @around_a_loop(
// CHECK-SAME:    %{{.*}}, %[[Y:[a-z0-9]+]]: memref<128x20000xf32, "hbm">
// CHECK-DAG:     %[[KEPT:[a-z0-9_]+]] = memref.alloc() {nki.name = "a.spilled"} : memref<1x128x20000xf32, "hbm">
// CHECK:         "nisa.memset"(%[[A:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[KEPT]], %[[A]])
// CHECK:         scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK:         "nisa.tensor_tensor"(%[[C:[a-z0-9_]+]], %[[C]], %{{.*}})
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[C]])
// CHECK-NEXT:    }
// CHECK-NEXT:    "nisa.dma_copy"(%[[A2:[a-z0-9_]+]], %[[KEPT]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[Y]], %[[A2]])
// CHECK-NEXT:    return
func.func @around_a_loop(%x: !hbm, %y: !hbm) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  %a = memref.alloc() {nki.name = "a"} : !tile
  "nisa.memset"(%a) {access = [#tile], engine = "vector", mask = #all, value = 1.0 : f64} : (!tile) -> ()
  scf.for %i = %zero to %four step %one {
    %b = memref.alloc() {nki.name = "b"} : !tile
    %c = memref.alloc() {nki.name = "c"} : !tile
    "nisa.dma_copy"(%b, %x) {access = [#tile, #hbm], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
    "nisa.memset"(%c) {access = [#tile], engine = "vector", mask = #all, value = 2.0 : f64} : (!tile) -> ()
    "nisa.tensor_tensor"(%c, %c, %b) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"}
      : (!tile, !tile, !tile) -> ()
    "nisa.dma_copy"(%y, %c) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  }
  "nisa.dma_copy"(%y, %a) {access = [#hbm, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  return
}
