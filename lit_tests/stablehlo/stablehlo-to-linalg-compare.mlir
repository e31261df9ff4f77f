// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg=compare=1 --split-input-file %s | FileCheck %s
// RUN: not nki-opt --stablehlo-to-linalg --split-input-file %s 2>&1 | FileCheck --check-prefix=BEFORE %s

// Three updates and eight rows are compared. Rows with an update add the sum of theirs, the others stay.
// BEFORE: error: 'stablehlo.scatter' in a linked module is not supported [NKI-UNSUPPORTED]
// CHECK-LABEL: func.func @added(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x16xf32, "hbm"> {nki.name = "arg0"}, %[[I:[a-z0-9]+]]: memref<3x1xi32, "hbm"> {nki.name = "arg1"}, %[[U:[a-z0-9]+]]: memref<3x16xf32, "hbm"> {nki.name = "arg2"}, %[[R:[a-z0-9]+]]: memref<8x16xf32, "hbm">
// CHECK:         %[[NONE:.*]] = arith.constant -0.000000e+00 : f32
// CHECK:         %[[HITS:.*]] = memref.alloc() {{.*}} : memref<8x3x1xi1, "hbm">
// CHECK:         linalg.generic {{.*}} ins(%[[I]] : {{.*}}) outs(%[[HITS]] :
// CHECK-NEXT:    (%[[INDEX:.*]]: i32, %{{.*}}: i1):
// CHECK-NEXT:      %[[NUMBER:.*]] = linalg.index 0
// CHECK-NEXT:      %[[ROW:.*]] = arith.index_cast %[[NUMBER]]
// CHECK-NEXT:      "scalar.alu"(%[[INDEX]], %[[ROW]]) {fn = "equal"}
// CHECK:         %[[WHERE:.*]] = memref.reinterpret_cast %[[HITS]]
// CHECK:         %[[SUMS:.*]] = memref.alloc() {{.*}} : memref<8x16xf32, "hbm">
// CHECK:         linalg.generic {{.*}} "reduction"]} ins(%[[WHERE]], %[[U]] : {{.*}}) outs(%[[SUMS]] :
// CHECK-NEXT:    (%[[HIT:.*]]: i1, %[[UPDATE:.*]]: f32, %[[SUM:.*]]: f32):
// CHECK-NEXT:      %[[IS:.*]] = "scalar.convert"(%[[HIT]])
// CHECK-NEXT:      %[[PART:.*]] = "scalar.alu"(%[[IS]], %[[UPDATE]], %[[NONE]]) {fn = "select"}
// CHECK-NEXT:      "scalar.alu"(%[[SUM]], %[[PART]]) {fn = "add"}
// CHECK:         %[[ANY:.*]] = memref.alloc() {{.*}} : memref<8xi1, "hbm">
// CHECK:         linalg.generic {{.*}} "reduction"]} ins(%[[WHERE]] : {{.*}}) outs(%[[ANY]] :
// CHECK:         linalg.generic {{.*}} ins(%[[ANY]], %[[X]], %[[SUMS]] : {{.*}}) outs(%[[R]] :
// CHECK:           %[[BOTH:.*]] = "scalar.alu"(%[[OLD:.*]], %{{.*}}) {fn = "add"}
// CHECK:           "scalar.alu"(%{{.*}}, %[[BOTH]], %[[OLD]]) {fn = "select"}
func.func @added(%x: tensor<8x16xf32>, %i: tensor<3x1xi32>, %u: tensor<3x16xf32>) -> tensor<8x16xf32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    %sum = stablehlo.add %old, %new : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<8x16xf32>, tensor<3x1xi32>, tensor<3x16xf32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}

// -----

// An element of each row: 16 elements before each row, and an index between 0 and 15, number one of 128 elements.
// CHECK-LABEL: func.func @element(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x16xf32, "hbm"> {nki.name = "arg0"}, %[[I:[a-z0-9]+]]: memref<8x1xi32, "hbm"> {nki.name = "arg1"}
// CHECK:         %[[TABLE:.*]] = memref.reinterpret_cast %[[X]] to offset: [0], sizes: [128], strides: [1]
// CHECK:         memref.load %[[TABLE]][
func.func @element(%x: tensor<8x16xf32>, %i: tensor<8x1xi32>) -> tensor<8xf32> {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<8x16xf32>, tensor<8x1xi32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
