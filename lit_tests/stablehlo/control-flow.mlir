// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --tile-and-place --split-input-file %s | FileCheck %s
// RUN: nki-opt --lower-to-isa --split-input-file %s | FileCheck --check-prefix=ISA %s

// A place from a loop's variable is index arithmetic: where the loop is written out, addresses are numbers.
// CHECK-LABEL: func.func @rows
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step
// CHECK-NOT:     memref.load
// CHECK:           affine.apply
// CHECK:           memref.reinterpret_cast %{{.*}} to offset: [%{{.*}}], sizes: [1, 4]
// ISA-LABEL:     .kernel rows
// ISA-NOT:       TENSOR_LOAD
// ISA:           DMA {{.*}} src=fp32@arg0+0x10[
// ISA:           DMA {{.*}} src=fp32@arg0+0x20[
func.func @rows(%a: tensor<8x4xf32>) -> tensor<1x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %start = stablehlo.constant dense<0.0> : tensor<1x4xf32>
  %0:2 = stablehlo.while(%i = %zero, %x = %start) : tensor<i32>, tensor<1x4xf32>
  cond {
    %n = stablehlo.constant dense<3> : tensor<i32>
    %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.add %i, %one : tensor<i32>
    %2 = stablehlo.dynamic_slice %a, %i, %zero, sizes = [1, 4]
      : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %3 = stablehlo.add %x, %2 : tensor<1x4xf32>
    stablehlo.return %1, %3 : tensor<i32>, tensor<1x4xf32>
  }
  return %0#1 : tensor<1x4xf32>
}

// -----

// A place from data is loaded on chip, and from there into a register of each engine, which makes it one inside.
// CHECK-LABEL: func.func @slice
// CHECK-SAME:    %[[A:.*]]: memref<8x4xf32, "hbm"> {nki.name = "arg0"}, %[[I:.*]]: memref<i32, "hbm">
// CHECK:         %[[TILE:.*]] = memref.alloc() : memref<1x1xi32, "sbuf">
// CHECK:         %[[N:.*]] = memref.load %[[TILE]]
// CHECK:         %[[INDEX:.*]] = arith.index_cast %[[N]] : i32 to index
// CHECK:         %[[LOW:.*]] = arith.maxsi %[[INDEX]], %{{.*}} : index
// CHECK:         %[[HIGH:.*]] = arith.minsi %[[LOW]], %{{.*}} : index
// CHECK:         memref.reinterpret_cast %[[A]] to offset: [%{{.*}}], sizes: [2, 4]
// ISA-LABEL:     .kernel slice
// ISA:           TENSOR_LOAD dst=[[R:r[0-9]+]]
// ISA:           ALU op=max dst=[[LOW:r[0-9]+]] lhs=[[R]] rhs=0
// ISA-NEXT:      ALU op=min dst=[[P:r[0-9]+]] lhs=[[LOW]] rhs=6
// ISA:           src=fp32@arg0+16*[[P]][
func.func @slice(%a: tensor<8x4xf32>, %i: tensor<i32>) -> tensor<2x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.dynamic_slice %a, %i, %zero, sizes = [2, 4]
    : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

// CHECK-LABEL: func.func @branch
// CHECK:         %[[P:.*]] = memref.load %{{.*}} : memref<1x1xi1, "sbuf">
// CHECK:         scf.if %[[P]] {
// CHECK:         } else {
// ISA-LABEL:     .kernel branch
// ISA:           TENSOR_LOAD dst=[[R:r[0-9]+]]
// ISA:           COMPARE_BRANCH op=eq lhs=[[R]] rhs=0
func.func @branch(%p: tensor<i1>, %a: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = stablehlo.negate %a : tensor<8x4xf32>
    stablehlo.return %1 : tensor<8x4xf32>
  }, {
    %1 = stablehlo.add %a, %a : tensor<8x4xf32>
    stablehlo.return %1 : tensor<8x4xf32>
  }) : (tensor<i1>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// What the loop goes on by is computed and loaded in front of each iteration.
// CHECK-LABEL: func.func @doubled
// CHECK:         scf.while : () -> () {
// CHECK:           %[[MORE:.*]] = memref.load %{{.*}} : memref<1x1xi1, "sbuf">
// CHECK:           scf.condition(%[[MORE]])
// ISA-LABEL:     .kernel doubled
// ISA:           .stream dve
// ISA:           TENSOR_LOAD dst=[[R:r[0-9]+]]
// ISA:           COMPARE_BRANCH op=eq lhs=[[R]] rhs=0
// ISA:           COMPARE_BRANCH op=eq lhs=0 rhs=0
func.func @doubled(%a: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.while(%x = %a) : tensor<f32>
  cond {
    %n = stablehlo.constant dense<100.0> : tensor<f32>
    %1 = stablehlo.compare LT, %x, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %x, %x : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }
  return %0 : tensor<f32>
}
