// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --split-tiles %s | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
!hbm = memref<8x4xf32, "hbm">
!sums = memref<8xf32, "hbm">
!tile = memref<8x4xf32, "sbuf">

// Each live range has a buffer, also the one that a view reads.
// CHECK-LABEL: func.func @reused(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<8x4xf32, "hbm">, %[[R:[a-z0-9]+]]: memref<8x4xf32, "hbm">
// CHECK:         %[[T1:[a-z0-9_]+]] = memref.alloc() {nki.name = "t"}
// CHECK:         %[[T0:[a-z0-9_]+]] = memref.alloc() {nki.name = "t"}
// CHECK:         linalg.generic {{.*}} ins(%[[A]] : {{.*}}) outs(%[[T0]] :
// CHECK:         linalg.generic {{.*}} ins(%[[T0]] : {{.*}}) outs(%[[R]] :
// CHECK:         linalg.generic {{.*}} ins(%[[A]] : {{.*}}) outs(%[[T1]] :
// CHECK:         %[[HALF:[a-z0-9_]+]] = memref.subview %[[T1]][0, 0] [8, 2] [1, 1]
// CHECK:         linalg.generic {{.*}} ins(%[[HALF]] :
func.func @reused(%a: !hbm, %r: !hbm {nki.shared = 0}, %sums: !sums {nki.shared = 1}) attributes {nki.grid = []} {
  %t = memref.alloc() {nki.name = "t"} : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !hbm) outs(%t : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : !tile) outs(%r : !hbm) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !hbm) outs(%t : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    linalg.yield %0 : f32
  }
  %half = memref.subview %t[0, 0] [8, 2] [1, 1] : !tile to memref<8x2xf32, strided<[4, 1]>, "sbuf">
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%half : memref<8x2xf32, strided<[4, 1]>, "sbuf">) outs(%sums : !sums) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// A view of both live ranges becomes two.
// CHECK-LABEL: func.func @views(
// CHECK:         %[[T1:[a-z0-9_]+]] = memref.alloc() {nki.name = "t"}
// CHECK:         %[[T0:[a-z0-9_]+]] = memref.alloc() {nki.name = "t"}
// CHECK:         %[[HALF1:[a-z0-9_]+]] = memref.subview %[[T1]]
// CHECK:         %[[HALF0:[a-z0-9_]+]] = memref.subview %[[T0]]
// CHECK:         linalg.generic {{.*}} outs(%[[T0]] :
// CHECK:         linalg.generic {{.*}} ins(%[[HALF0]] :
// CHECK:         linalg.generic {{.*}} outs(%[[T1]] :
// CHECK:         linalg.generic {{.*}} ins(%[[HALF1]] :
func.func @views(%a: !hbm, %r: !sums {nki.shared = 0}, %sums: !sums {nki.shared = 1}) attributes {nki.grid = []} {
  %t = memref.alloc() {nki.name = "t"} : !tile
  %half = memref.subview %t[0, 0] [8, 2] [1, 1] : !tile to memref<8x2xf32, strided<[4, 1]>, "sbuf">
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !hbm) outs(%t : !tile) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%half : memref<8x2xf32, strided<[4, 1]>, "sbuf">) outs(%r : !sums) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !hbm) outs(%t : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%half : memref<8x2xf32, strided<[4, 1]>, "sbuf">) outs(%sums : !sums) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  }
  return
}

// A tile that the later operation reads, or writes in part, or in a loop, stays.
// CHECK-LABEL: func.func @stays(
// CHECK:         %[[T:[a-z0-9_]+]] = memref.alloc() {nki.name = "t"}
// CHECK-NOT:     memref.alloc()
// CHECK:         scf.for %{{.*}} = %c0 to %c3 step %c1 {
// CHECK:           linalg.generic {{.*}} ins(%[[T]] :
// CHECK:           linalg.generic {{.*}} outs(%[[T]] :
func.func @stays(%a: !hbm, %r: !hbm {nki.shared = 0}) attributes {nki.grid = []} {
  %t = memref.alloc() {nki.name = "t"} : !tile
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !hbm) outs(%t : !tile) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : !tile) outs(%t : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    linalg.yield %0 : f32
  }
  %half = memref.subview %t[0, 0] [8, 2] [1, 1] : !tile to memref<8x2xf32, strided<[4, 1]>, "sbuf">
  %half_a = memref.subview %a[0, 0] [8, 2] [1, 1] : !hbm to memref<8x2xf32, strided<[4, 1]>, "hbm">
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%half_a : memref<8x2xf32, strided<[4, 1]>, "hbm">) outs(%half : memref<8x2xf32, strided<[4, 1]>, "sbuf">) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  scf.for %i = %c0 to %c3 step %c1 {
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : !tile) outs(%r : !hbm) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !hbm) outs(%t : !tile) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
  }
  return
}
