// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --group-transposes %s | FileCheck %s
// RUN: nki-opt --group-transposes=together=1 %s | FileCheck %s --check-prefix=ALONE

!x = memref<64x128xf32, "hbm">
!rows = memref<64x64xf32, "sbuf">
!bank = memref<64x64xf32, "psum">
#all = affine_set<() : (0 == 0)>
#whole = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>
#left = #nki.access<f32, affine_map<() -> (0)>, [[128, 64], [1, 64]]>
#right = #nki.access<f32, affine_map<() -> (64)>, [[128, 64], [1, 64]]>

// Both transposes, with their loads and copies, come before the products.
// CHECK-LABEL: func.func @products(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<64x128xf32, "hbm">
// CHECK:         "nisa.dma_copy"(%[[A:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.nc_transpose"(%[[P:[a-z0-9_]+]], %[[A]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T:[a-z0-9_]+]], %[[P]])
// CHECK-NEXT:    "nisa.dma_copy"(%[[B:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.nc_transpose"(%[[Q:[a-z0-9_]+]], %[[B]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[U:[a-z0-9_]+]], %[[Q]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[R:[a-z0-9_]+]], %[[T]], %[[T]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[S:[a-z0-9_]+]], %[[U]], %[[U]])
// CHECK-NEXT:    return
// ALONE-LABEL: func.func @products(
// ALONE:         "nisa.tensor_copy"(%[[T:[a-z0-9_]+]], %{{.*}})
// ALONE-NEXT:    "nisa.nc_matmul"(%{{.*}}, %[[T]], %[[T]])
// ALONE-NEXT:    "nisa.dma_copy"(%{{.*}}, %{{.*}})
// ALONE-NEXT:    "nisa.nc_transpose"(%{{.*}}, %{{.*}})
func.func @products(%x: !x) {
  %a = memref.alloc() : !rows
  %p = memref.alloc() : !bank
  %t = memref.alloc() : !rows
  %r = memref.alloc() : !bank
  %b = memref.alloc() : !rows
  %q = memref.alloc() : !bank
  %u = memref.alloc() : !rows
  %s = memref.alloc() : !bank
  "nisa.dma_copy"(%a, %x) {access = [#whole, #left], engine = "sync", mask = #all} : (!rows, !x) -> ()
  "nisa.nc_transpose"(%p, %a) {access = [#whole, #whole], engine = "tensor", mask = #all} : (!bank, !rows) -> ()
  "nisa.tensor_copy"(%t, %p) {access = [#whole, #whole], engine = "vector", mask = #all} : (!rows, !bank) -> ()
  "nisa.nc_matmul"(%r, %t, %t) {accumulate = false, access = [#whole, #whole, #whole], engine = "tensor", mask = #all} : (!bank, !rows, !rows) -> ()
  "nisa.dma_copy"(%b, %x) {access = [#whole, #right], engine = "sync", mask = #all} : (!rows, !x) -> ()
  "nisa.nc_transpose"(%q, %b) {access = [#whole, #whole], engine = "tensor", mask = #all} : (!bank, !rows) -> ()
  "nisa.tensor_copy"(%u, %q) {access = [#whole, #whole], engine = "vector", mask = #all} : (!rows, !bank) -> ()
  "nisa.nc_matmul"(%s, %u, %u) {accumulate = false, access = [#whole, #whole, #whole], engine = "tensor", mask = #all} : (!bank, !rows, !rows) -> ()
  return
}

// The tensor engine transposes a tile that the DMA engines would transpose on its way from HBM.
// CHECK-LABEL: func.func @loaded(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<64x128xf32, "hbm">
// CHECK:         "nisa.dma_copy"(%[[ROWS:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.nc_transpose"(%[[P:[a-z0-9_]+]], %[[ROWS]]) {{.*}}engine = "tensor"
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T:[a-z0-9_]+]], %[[P]])
// CHECK-NEXT:    return
func.func @loaded(%x: !x) {
  %t = memref.alloc() : !rows
  "nisa.dma_transpose"(%t, %x) {access = [#whole, #left], engine = "sync", mask = #all, permutation = [1, 0]} : (!rows, !x) -> ()
  return
}

// A transpose of a product stays behind it.
// CHECK-LABEL: func.func @stays(
// CHECK:         "nisa.nc_transpose"(%[[P:[a-z0-9_]+]], %[[A:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T:[a-z0-9_]+]], %[[P]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[R:[a-z0-9_]+]], %[[T]], %[[T]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[B:[a-z0-9_]+]], %[[R]])
// CHECK-NEXT:    "nisa.nc_transpose"(%[[Q:[a-z0-9_]+]], %[[B]])
// CHECK-NEXT:    return
func.func @stays() {
  %a = memref.alloc() : !rows
  %p = memref.alloc() : !bank
  %t = memref.alloc() : !rows
  %r = memref.alloc() : !bank
  %b = memref.alloc() : !rows
  %q = memref.alloc() : !bank
  "nisa.nc_transpose"(%p, %a) {access = [#whole, #whole], engine = "tensor", mask = #all} : (!bank, !rows) -> ()
  "nisa.tensor_copy"(%t, %p) {access = [#whole, #whole], engine = "vector", mask = #all} : (!rows, !bank) -> ()
  "nisa.nc_matmul"(%r, %t, %t) {accumulate = false, access = [#whole, #whole, #whole], engine = "tensor", mask = #all} : (!bank, !rows, !rows) -> ()
  "nisa.tensor_copy"(%b, %r) {access = [#whole, #whole], engine = "vector", mask = #all} : (!rows, !bank) -> ()
  "nisa.nc_transpose"(%q, %b) {access = [#whole, #whole], engine = "tensor", mask = #all} : (!bank, !rows) -> ()
  return
}

// Instructions across which the kernel lets none move keep their order.
// CHECK-LABEL: func.func @ordered(
// CHECK:         "nisa.nc_transpose"(%[[P:[a-z0-9_]+]], %[[A:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.nc_matmul"(%{{.*}}, %[[A]], %[[A]]) {{.*}}nki.no_reorder
// CHECK-NEXT:    "nisa.nc_transpose"(%[[Q:[a-z0-9_]+]], %[[A]])
// CHECK-NEXT:    return
func.func @ordered() {
  %a = memref.alloc() : !rows
  %p = memref.alloc() : !bank
  %r = memref.alloc() : !bank
  %q = memref.alloc() : !bank
  "nisa.nc_transpose"(%p, %a) {access = [#whole, #whole], engine = "tensor", mask = #all} : (!bank, !rows) -> ()
  "nisa.nc_matmul"(%r, %a, %a) {accumulate = false, access = [#whole, #whole, #whole], engine = "tensor", mask = #all, nki.no_reorder} : (!bank, !rows, !rows) -> ()
  "nisa.nc_transpose"(%q, %a) {access = [#whole, #whole], engine = "tensor", mask = #all} : (!bank, !rows) -> ()
  return
}
