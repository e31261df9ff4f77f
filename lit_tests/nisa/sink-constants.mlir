// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --sink-constants %s | FileCheck %s
// RUN: nki-opt --sink-constants=move=false %s | FileCheck %s --check-prefix=STAYS

!tile = memref<128x16xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>

// The constant of %a is written right before its first use, that of %b, which is overwritten, not at all.
// CHECK-LABEL: func.func @constants(
// CHECK-NEXT:    %[[A:.*]] = memref.alloc() {nki.name = "a"}
// CHECK-NEXT:    %[[B:.*]] = memref.alloc() {nki.name = "b"}
// CHECK-NEXT:    %[[U:.*]] = memref.alloc() {nki.name = "u"}
// CHECK-NEXT:    "nisa.tensor_copy"(%[[B]], %[[U]])
// CHECK-NEXT:    "nisa.memset"(%[[A]]) {{.*}} value = 1.000000e+00 : f64
// CHECK-NEXT:    "nisa.tensor_copy"(%[[U]], %[[A]])
// CHECK-NEXT:    return
func.func @constants() {
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  "nisa.memset"(%a) {access = [#tile], engine = "vector", mask = #all, value = 1.0 : f64} : (!tile) -> ()
  "nisa.memset"(%b) {access = [#tile], engine = "vector", mask = #all, value = 0.0 : f64} : (!tile) -> ()
  %u = memref.alloc() {nki.name = "u"} : !tile
  "nisa.tensor_copy"(%b, %u) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  "nisa.tensor_copy"(%u, %a) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  return
}

#upper = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 16]]>
#lower = #nki.access<f32, affine_map<() -> (64, 0)>, [[1, 64], [1, 16]]>
#half = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 8]]>

// The halves of %a are written before they are read, so that its constant is dropped. Of %b columns 8 to 15 are read as
// they were set.
// CHECK-LABEL: func.func @in_parts(
// CHECK-NEXT:    %[[X:.*]] = memref.alloc() {nki.name = "x"}
// CHECK-NEXT:    %[[Y:.*]] = memref.alloc() {nki.name = "y"}
// CHECK-NEXT:    %[[A:.*]] = memref.alloc() {nki.name = "a"}
// CHECK-NEXT:    %[[B:.*]] = memref.alloc() {nki.name = "b"}
// CHECK-NEXT:    "nisa.tensor_copy"(%[[A]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[A]], %[[A]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[Y]], %[[A]])
// CHECK-NEXT:    "nisa.memset"(%[[B]]) {{.*}} value = 2.000000e+00 : f64
// CHECK-NEXT:    "nisa.tensor_copy"(%[[B]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[Y]], %[[B]])
// CHECK-NEXT:    return
func.func @in_parts() {
  %x = memref.alloc() {nki.name = "x"} : !tile
  %y = memref.alloc() {nki.name = "y"} : !tile
  %a = memref.alloc() {nki.name = "a"} : !tile
  %b = memref.alloc() {nki.name = "b"} : !tile
  "nisa.memset"(%a) {access = [#tile], engine = "vector", mask = #all, value = 1.0 : f64} : (!tile) -> ()
  "nisa.memset"(%b) {access = [#tile], engine = "vector", mask = #all, value = 2.0 : f64} : (!tile) -> ()
  "nisa.tensor_copy"(%a, %x) {access = [#upper, #upper], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  "nisa.tensor_copy"(%a, %a) {access = [#lower, #upper], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  "nisa.tensor_copy"(%y, %a) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  "nisa.tensor_copy"(%b, %x) {access = [#half, #half], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  "nisa.tensor_copy"(%y, %b) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  return
}

// With move=false only the constant of %b goes.
// STAYS-LABEL: func.func @constants(
// STAYS-NEXT:    %[[A:.*]] = memref.alloc() {nki.name = "a"}
// STAYS-NEXT:    %[[B:.*]] = memref.alloc() {nki.name = "b"}
// STAYS-NEXT:    %[[U:.*]] = memref.alloc() {nki.name = "u"}
// STAYS-NEXT:    "nisa.memset"(%[[A]]) {{.*}} value = 1.000000e+00 : f64
// STAYS-NEXT:    "nisa.tensor_copy"(%[[B]], %[[U]])
// STAYS-NEXT:    "nisa.tensor_copy"(%[[U]], %[[A]])
// STAYS-NEXT:    return
