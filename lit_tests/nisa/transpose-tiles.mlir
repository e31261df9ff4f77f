// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --transpose-tiles %s | FileCheck %s
// RUN: nki-opt --transpose-tiles=percent=50 %s | FileCheck %s --check-prefix=HALF

!x = memref<128x1024xbf16, "sbuf">
!bank = memref<128x256xbf16, "psum">
!tile = memref<128x256xbf16, "sbuf">
!wide = memref<128x256xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#first = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>
#second = #nki.access<bf16, affine_map<() -> (0, 128)>, [[1, 128], [1, 128]]>
#third = #nki.access<bf16, affine_map<() -> (0, 256)>, [[1, 128], [1, 128]]>
#fourth = #nki.access<bf16, affine_map<() -> (0, 384)>, [[1, 128], [1, 128]]>
#tile = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 256]]>
#wide = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 256]]>

// Two transposes into a bank and its copy become one transpose in the DMA engines, with an axis for the two parts. Of
// two copies, half is replaced: the last one stays.
// CHECK-LABEL: func.func @tiles(
// CHECK-NEXT:    %[[X:.*]] = memref.alloc() : memref<128x1024xbf16, "sbuf">
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<128x256xbf16, "sbuf">
// CHECK-NEXT:    %[[U:.*]] = memref.alloc() : memref<128x256xbf16, "sbuf">
// CHECK-NEXT:    "nisa.dma_transpose"(%[[T]], %[[X]]) {{.*}}{{\[\[}}1, 128], [128, 2], [1, 128]]>, {{.*}}{{\[\[}}1, 128], [128, 2], [1, 128]]>], engine = "unknown", {{.*}}permutation = [2, 1, 0]
// CHECK-NEXT:    "nisa.dma_transpose"(%[[U]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[T]], %[[U]])
// CHECK-NEXT:    return
// HALF-LABEL: func.func @tiles(
// HALF:         "nisa.dma_transpose"(%[[T:[a-z0-9_]+]], %[[X:[a-z0-9_]+]])
// HALF-NEXT:    "nisa.nc_transpose"(%[[Q:[a-z0-9_]+]], %[[X]])
// HALF-NEXT:    "nisa.nc_transpose"(%[[Q]], %[[X]])
// HALF-NEXT:    "nisa.tensor_copy"(%[[U:[a-z0-9_]+]], %[[Q]])
// HALF-NEXT:    "nisa.tensor_tensor"(%[[T]], %[[T]], %[[U]])
func.func @tiles() {
  %x = memref.alloc() : !x
  %p = memref.alloc() : !bank
  %t = memref.alloc() : !tile
  %q = memref.alloc() : !bank
  %u = memref.alloc() : !tile
  "nisa.nc_transpose"(%p, %x) {access = [#first, #first], engine = "unknown", mask = #all} : (!bank, !x) -> ()
  "nisa.nc_transpose"(%p, %x) {access = [#second, #second], engine = "unknown", mask = #all} : (!bank, !x) -> ()
  "nisa.tensor_copy"(%t, %p) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !bank) -> ()
  "nisa.nc_transpose"(%q, %x) {access = [#first, #third], engine = "unknown", mask = #all} : (!bank, !x) -> ()
  "nisa.nc_transpose"(%q, %x) {access = [#second, #fourth], engine = "unknown", mask = #all} : (!bank, !x) -> ()
  "nisa.tensor_copy"(%u, %q) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !bank) -> ()
  "nisa.tensor_tensor"(%t, %t, %u) {access = [#tile, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!tile, !tile, !tile) -> ()
  return
}

// A transpose whose engine the kernel names stays, as does one whose copy converts.
// CHECK-LABEL: func.func @stays(
// CHECK:         "nisa.nc_transpose"(%[[P:[a-z0-9_]+]], %[[X:[a-z0-9_]+]])
// CHECK-NEXT:    "nisa.nc_transpose"(%[[P]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T:[a-z0-9_]+]], %[[P]])
// CHECK-NEXT:    "nisa.nc_transpose"(%[[Q:[a-z0-9_]+]], %[[X]])
// CHECK-NEXT:    "nisa.nc_transpose"(%[[Q]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[U:[a-z0-9_]+]], %[[Q]])
// CHECK-NEXT:    return
func.func @stays() {
  %x = memref.alloc() : !x
  %p = memref.alloc() : !bank
  %t = memref.alloc() : !tile
  %q = memref.alloc() : !bank
  %u = memref.alloc() : !wide
  "nisa.nc_transpose"(%p, %x) {access = [#first, #first], engine = "tensor", mask = #all} : (!bank, !x) -> ()
  "nisa.nc_transpose"(%p, %x) {access = [#second, #second], engine = "tensor", mask = #all} : (!bank, !x) -> ()
  "nisa.tensor_copy"(%t, %p) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !bank) -> ()
  "nisa.nc_transpose"(%q, %x) {access = [#first, #third], engine = "unknown", mask = #all} : (!bank, !x) -> ()
  "nisa.nc_transpose"(%q, %x) {access = [#second, #fourth], engine = "unknown", mask = #all} : (!bank, !x) -> ()
  "nisa.tensor_copy"(%u, %q) {access = [#wide, #tile], engine = "unknown", mask = #all} : (!wide, !bank) -> ()
  return
}
