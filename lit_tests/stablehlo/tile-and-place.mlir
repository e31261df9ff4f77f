// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --tile-and-place --split-input-file %s | FileCheck %s
// RUN: nki-opt --lower-to-isa --split-input-file %s | FileCheck --check-prefix=ISA %s

// One axis of 1600 elements, as both lie: 100 rows of 16 are the most that fill partitions evenly.
// CHECK-LABEL: func.func @scaled
// CHECK-SAME:    %[[A:.*]]: memref<200x8xf32, "hbm"> {nki.name = "arg0"}, %[[R:.*]]: memref<200x8xf32, "hbm"> {nki.name = "result0", nki.shared = 0 : i64}
// CHECK:         %[[X:.*]] = memref.alloc() : memref<100x16xf32, "sbuf">
// CHECK:         linalg.generic
// CHECK:         %[[Y:.*]] = memref.alloc() : memref<100x16xf32, "sbuf">
// CHECK:         "scalar.alu"(%in, %cst{{.*}}) {fn = "multiply"}
// CHECK:         linalg.generic
// ISA-LABEL:     .kernel scaled
// ISA:           TENSOR_SCALAR op0=multiply imm0=3.0
// ISA:           DMA {{.*}} src=fp32@arg0
// ISA:           DMA {{.*}} dst=fp32@result0
func.func @scaled(%a: tensor<200x8xf32>) -> tensor<200x8xf32> {
  %c = stablehlo.constant dense<3.0> : tensor<200x8xf32>
  %0 = stablehlo.multiply %a, %c : tensor<200x8xf32>
  return %0 : tensor<200x8xf32>
}

// -----

// Rows of A go to the partitions of the result in PSUM; 200 summed elements are 128 and 72. A lies row by row, so its
// tiles are transposed on chip; those of B are not.
// CHECK-LABEL: func.func @product
// CHECK:         memref.alloc() : memref<64x32xf32, "psum">
// CHECK:         memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK:         memref.alloc() : memref<64x128xf32, "sbuf">
// CHECK:         memref.alloc() : memref<128x32xf32, "sbuf">
// CHECK:         linalg.fill
// CHECK:         iterator_types = ["reduction", "parallel", "parallel"]
// CHECK:         memref.alloc() : memref<72x64xf32, "sbuf">
// CHECK:         iterator_types = ["reduction", "parallel", "parallel"]
// ISA-LABEL:     .kernel product
// ISA:           MATMUL dst=
// ISA:           MATMUL accumulate=1
func.func @product(%a: tensor<64x200xf32>, %b: tensor<200x32xf32>) -> tensor<64x32xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<64x200xf32>, tensor<200x32xf32>) -> tensor<64x32xf32>
  return %0 : tensor<64x32xf32>
}

// -----

// Data that only moves goes from HBM to HBM.
// CHECK-LABEL: func.func @joined
// CHECK-NOT:     "sbuf"
// CHECK-COUNT-2: linalg.generic
// CHECK:         return
// ISA-LABEL:     .kernel joined
// ISA:           DMA {{.*}} dst=fp32@result0{{.*}} src=fp32@arg0
// ISA:           DMA {{.*}} dst=fp32@result0+0x80{{.*}} src=fp32@arg1
func.func @joined(%a: tensor<4x8xf32>, %b: tensor<2x8xf32>) -> tensor<6x8xf32> {
  %0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}

// -----

// What one operation has stored, and what it has loaded, the next ones have on chip; nobody reads %1 in HBM.
// ISA-LABEL:     .kernel shares
// ISA-COUNT-1:   src=fp32@arg0
// ISA-NOT:       src=fp32@arg0
// ISA-NOT:       src=fp32@internal
// ISA:           dst=fp32@result0
func.func @shares(%a: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x32xf32>, tensor<f32>) -> tensor<64xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<64xf32>) -> tensor<64x32xf32>
  %2 = stablehlo.divide %a, %1 : tensor<64x32xf32>
  return %2 : tensor<64x32xf32>
}
