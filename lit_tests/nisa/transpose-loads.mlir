// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --transpose-loads %s | FileCheck %s
// RUN: nki-opt --transpose-loads=stated=true %s | FileCheck %s --check-prefix=STATED

!half = memref<64x128xf16, "hbm">
!half_tile = memref<128x64xf16, "sbuf">
!hbm = memref<64x128xf32, "hbm">
!tile = memref<128x64xf32, "sbuf">
!narrow = memref<128x64xbf16, "sbuf">
#all = affine_set<() : (0 == 0)>
#some = affine_set<(d0, d1) : (99 - d0 >= 0)>
#columns = #nki.access<f32, affine_map<() -> (0)>, [[1, 128], [128, 64]]>
#rows = #nki.access<f32, affine_map<() -> (0)>, [[64, 128], [1, 64]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#half_columns = #nki.access<f16, affine_map<() -> (0)>, [[1, 128], [128, 64]]>
#half_tile = #nki.access<f16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#narrow = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>

// Neighboring partitions get neighboring elements: the DMA engines read rows of x and transpose.
// CHECK-LABEL: func.func @columns(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<64x128xf32, "hbm">
// CHECK:         %[[T:.*]] = memref.alloc()
// CHECK-NEXT:    "nisa.dma_transpose"(%[[T]], %[[X]]) {access = [{{.*}}, #nki.access<f32, {{.*}}, {{\[\[}}128, 64], [1, 128]]>], engine = "sync", {{.*}}permutation = [1, 0]}
// CHECK-NEXT:    return
// STATED-LABEL: func.func @columns(
// STATED:         "nisa.dma_copy"(%[[T:[a-z0-9_]+]], %[[X:[a-z0-9]+]])
// STATED-NEXT:    return
func.func @columns(%x: !hbm) {
  %t = memref.alloc() : !tile
  "nisa.dma_copy"(%t, %x) {access = [#tile, #columns], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  return
}

// Rows stay copies, as do a load that converts, one of some partitions, one that the scalar engine triggers, a store.
// CHECK-LABEL: func.func @stays(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<64x128xf32, "hbm">
// CHECK:         "nisa.dma_copy"(%[[T:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[N:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[T]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[T]], %[[X]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[X]], %[[T]])
// CHECK-NEXT:    return
func.func @stays(%x: !hbm) {
  %t = memref.alloc() : !tile
  %n = memref.alloc() : !narrow
  "nisa.dma_copy"(%t, %x) {access = [#tile, #rows], engine = "sync", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%n, %x) {access = [#narrow, #columns], engine = "sync", mask = #all} : (!narrow, !hbm) -> ()
  "nisa.dma_copy"(%t, %x) {access = [#tile, #columns], engine = "sync", mask = #some} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%t, %x) {access = [#tile, #columns], engine = "scalar", mask = #all} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%x, %t) {access = [#columns, #tile], engine = "sync", mask = #all} : (!hbm, !tile) -> ()
  return
}

// The kernel states transposes: of these the vendor's compiler leaves those of 2 bytes to the DMA engines, and floats of
// 4 bytes to the tensor engine.
// STATED-LABEL: func.func @stated(
// STATED-SAME:    %[[X:[a-z0-9]+]]: memref<64x128xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<64x128xf16, "hbm">
// STATED:         %[[ROWS:.*]] = memref.alloc() {{.*}}: memref<64x128xf32, "sbuf">
// STATED:         %[[RESULT:.*]] = memref.alloc() {{.*}}: memref<128x64xf32, "psum">
// STATED-NEXT:    "nisa.dma_copy"(%[[ROWS]], %[[X]])
// STATED-NEXT:    "nisa.nc_transpose"(%[[RESULT]], %[[ROWS]]) {{.*}}engine = "tensor"
// STATED-NEXT:    "nisa.tensor_copy"(%[[T:[a-z0-9_]+]], %[[RESULT]])
// STATED-NEXT:    "nisa.dma_transpose"(%[[H:[a-z0-9_]+]], %[[Y]])
// STATED-NEXT:    return
func.func @stated(%x: !hbm, %y: !half) {
  %t = memref.alloc() : !tile
  %h = memref.alloc() : !half_tile
  "nisa.dma_copy"(%t, %x) {access = [#tile, #columns], engine = "sync", mask = #all, nki.transposes} : (!tile, !hbm) -> ()
  "nisa.dma_copy"(%h, %y) {access = [#half_tile, #half_columns], engine = "sync", mask = #all, nki.transposes} : (!half_tile, !half) -> ()
  return
}
