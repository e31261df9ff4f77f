// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --move-psum-results %s | FileCheck %s
// RUN: nki-opt --move-psum-results="percent=50" %s | FileCheck %s --check-prefix=FREE

!tile = memref<128x2048xf32, "sbuf">
!half = memref<128x2048xf32, "psum">
!row = memref<128x1xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#row = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>
#wide = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 2048]]>
#left = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>
#first = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#second = #nki.access<f32, affine_map<() -> (0, 512)>, [[1, 128], [1, 512]]>

// Three halves of PSUM are needed at once. The first is copied when its product is done, and read from SBUF. The others
// fit then.
// CHECK-LABEL: func.func @full(
// CHECK:         %[[A:.*]] = memref.alloc() {nki.name = "a"} : memref<128x2048xf32, "psum">
// CHECK-NEXT:    %[[B:.*]] = memref.alloc() {nki.name = "b"} : memref<128x2048xf32, "psum">
// CHECK-NEXT:    %[[C:.*]] = memref.alloc() {nki.name = "c"} : memref<128x2048xf32, "psum">
// CHECK:         %[[THERE:.*]] = memref.alloc() {nki.name = "a"} : memref<128x2048xf32, "sbuf">
// CHECK:         "nisa.nc_matmul"(%[[A]], %[[T:.*]], %[[T]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[THERE]], %[[A]]) {{{.*}}engine = "unknown"
// CHECK-NEXT:    "nisa.nc_matmul"(%[[B]], %[[T]], %[[T]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[C]], %[[T]], %[[T]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T]], %[[C]])
// CHECK-NEXT:    "nisa.tensor_reduce"(%{{.*}}, %[[B]])
// CHECK-NEXT:    "nisa.tensor_reduce"(%{{.*}}, %[[THERE]])
// CHECK-NEXT:    return
func.func @full() {
  %t = memref.alloc() : !tile
  %r = memref.alloc() : !row
  %a = memref.alloc() {nki.name = "a"} : !half
  %b = memref.alloc() {nki.name = "b"} : !half
  %c = memref.alloc() {nki.name = "c"} : !half
  "nisa.nc_matmul"(%a, %t, %t) {access = [#first, #left, #first], accumulate = false, engine = "tensor", mask = #all} : (!half, !tile, !tile) -> ()
  "nisa.nc_matmul"(%b, %t, %t) {access = [#first, #left, #first], accumulate = false, engine = "tensor", mask = #all} : (!half, !tile, !tile) -> ()
  "nisa.nc_matmul"(%c, %t, %t) {access = [#first, #left, #first], accumulate = false, engine = "tensor", mask = #all} : (!half, !tile, !tile) -> ()
  "nisa.tensor_copy"(%t, %c) {access = [#wide, #wide], engine = "unknown", mask = #all} : (!tile, !half) -> ()
  "nisa.tensor_reduce"(%r, %b) {access = [#row, #wide], axes = [1], engine = "unknown", mask = #all, negate = false, op = "add"} : (!row, !half) -> ()
  "nisa.tensor_reduce"(%r, %a) {access = [#row, #wide], axes = [1], engine = "unknown", mask = #all, negate = false, op = "add"} : (!row, !half) -> ()
  return
}

// A tile that fills half of PSUM is copied bank by bank, each when its products are done. It stays where it may fill PSUM.
// CHECK-LABEL: func.func @banks(
// CHECK:         "nisa.nc_matmul"(%[[A:.*]], %[[T:.*]], %[[T]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[A]], %[[T]], %[[T]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[A]], %[[T]], %[[T]])
// CHECK-NEXT:    "nisa.tensor_reduce"(%{{.*}}, %[[A]])
// FREE-LABEL: func.func @banks(
// FREE:         "nisa.nc_matmul"(%[[FIRST:.*]], %[[T:.*]], %[[T]]) {access = [#[[BANK:.*]], #{{.*}}, #[[BANK]]], accumulate = false
// FREE-NEXT:    "nisa.nc_matmul"(%[[FIRST]], %[[T]], %[[T]]) {access = [#[[BANK]], #{{.*}}, #[[BANK]]], accumulate = true
// FREE-NEXT:    "nisa.tensor_copy"(%[[THERE:.*]], %[[FIRST]]) {access = [#[[BANK]], #[[BANK]]]
// FREE-NEXT:    "nisa.nc_matmul"(%[[SECOND:.*]], %[[T]], %[[T]]) {access = [#[[BANK]], #{{.*}}, #[[BANK]]], accumulate = false
// FREE-NEXT:    "nisa.tensor_copy"(%[[THERE]], %[[SECOND]]) {access = [#[[AFTER:.*]], #[[BANK]]]
// FREE-NEXT:    "nisa.tensor_reduce"(%{{.*}}, %[[THERE]])
func.func @banks() {
  %t = memref.alloc() : !tile
  %r = memref.alloc() : !row
  %a = memref.alloc() : !half
  "nisa.nc_matmul"(%a, %t, %t) {access = [#first, #left, #first], accumulate = false, engine = "tensor", mask = #all} : (!half, !tile, !tile) -> ()
  "nisa.nc_matmul"(%a, %t, %t) {access = [#first, #left, #first], accumulate = true, engine = "tensor", mask = #all} : (!half, !tile, !tile) -> ()
  "nisa.nc_matmul"(%a, %t, %t) {access = [#second, #left, #first], accumulate = false, engine = "tensor", mask = #all} : (!half, !tile, !tile) -> ()
  "nisa.tensor_reduce"(%r, %a) {access = [#row, #wide], axes = [1], engine = "unknown", mask = #all, negate = false, op = "add"} : (!row, !half) -> ()
  return
}

// What fits stays as it is, where no part of PSUM is to stay free.
// CHECK-LABEL: func.func @fits(
// CHECK:         "nisa.nc_matmul"(%[[A:.*]], %[[T:.*]], %[[T]])
// CHECK-NEXT:    "nisa.nc_matmul"(%[[B:.*]], %[[T]], %[[T]])
// CHECK-NEXT:    "nisa.tensor_reduce"(%{{.*}}, %[[A]])
// CHECK-NEXT:    "nisa.tensor_reduce"(%{{.*}}, %[[B]])
// CHECK-NEXT:    return
// FREE-LABEL: func.func @fits(
// FREE:         "nisa.nc_matmul"(%[[A:.*]], %[[T:.*]], %[[T]])
// FREE-NEXT:    "nisa.tensor_copy"(%[[THERE:.*]], %[[A]])
// FREE-NEXT:    "nisa.nc_matmul"(%[[B:.*]], %[[T]], %[[T]])
// FREE-NEXT:    "nisa.tensor_reduce"(%{{.*}}, %[[THERE]])
// FREE-NEXT:    "nisa.tensor_reduce"(%{{.*}}, %[[B]])
// FREE-NEXT:    return
func.func @fits() {
  %t = memref.alloc() : !tile
  %r = memref.alloc() : !row
  %a = memref.alloc() : !half
  %b = memref.alloc() : !half
  "nisa.nc_matmul"(%a, %t, %t) {access = [#first, #left, #first], accumulate = false, engine = "tensor", mask = #all} : (!half, !tile, !tile) -> ()
  "nisa.nc_matmul"(%b, %t, %t) {access = [#first, #left, #first], accumulate = false, engine = "tensor", mask = #all} : (!half, !tile, !tile) -> ()
  "nisa.tensor_reduce"(%r, %a) {access = [#row, #wide], axes = [1], engine = "unknown", mask = #all, negate = false, op = "add"} : (!row, !half) -> ()
  "nisa.tensor_reduce"(%r, %b) {access = [#row, #wide], axes = [1], engine = "unknown", mask = #all, negate = false, op = "add"} : (!row, !half) -> ()
  return
}
