// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --narrow-integers --split-input-file %s | FileCheck %s
// RUN: nki-opt --narrow-integers=arguments=0 --split-input-file %s | FileCheck --check-prefix=KEPT %s

// A sum may leave 32 bits; the selection of sums of negative numbers does not.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<8x16xf32>, %[[I:[a-z0-9]+]]: tensor<4xi32>) -> tensor<4x16xf32>
// CHECK-DAG:     %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<4xi32>
// CHECK-DAG:     %[[EIGHT:.*]] = stablehlo.constant dense<8> : tensor<4xi32>
// CHECK:         %[[LESS:.*]] = stablehlo.compare  LT, %[[I]], %[[ZERO]]
// CHECK-NEXT:    %[[SUM:.*]] = stablehlo.add %[[I]], %[[EIGHT]] : tensor<4xi32>
// CHECK-NEXT:    %[[CHOSEN:.*]] = stablehlo.select %[[LESS]], %[[SUM]], %[[I]] : tensor<4xi1>, tensor<4xi32>
// CHECK-NEXT:    %[[ROW:.*]] = stablehlo.reshape %[[CHOSEN]] : (tensor<4xi32>) -> tensor<4x1xi32>
// CHECK-NEXT:    "stablehlo.gather"(%[[X]], %[[ROW]])
// KEPT-LABEL:  func.func @rows(
// KEPT-SAME:     tensor<8x16xf32>, %{{.*}}: tensor<4xi64>
// KEPT:          stablehlo.add {{.*}} : tensor<4xi64>
func.func @rows(%x: tensor<8x16xf32>, %i: tensor<4xi64>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<4xi64>
  %eight = stablehlo.constant dense<8> : tensor<4xi64>
  %0 = stablehlo.compare LT, %i, %zero, SIGNED : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
  %1 = stablehlo.add %i, %eight : tensor<4xi64>
  %2 = stablehlo.select %0, %1, %i : tensor<4xi1>, tensor<4xi64>
  %3 = stablehlo.reshape %2 : (tensor<4xi64>) -> tensor<4x1xi64>
  %4 = "stablehlo.gather"(%x, %3) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 16>}> : (tensor<8x16xf32>, tensor<4x1xi64>) -> tensor<4x16xf32>
  return %4 : tensor<4x16xf32>
}

// -----

// The low bits of a product need no 64 bits, nor does a result that cannot leave 32.
// CHECK-LABEL: func.func @hash(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<8xi32>) -> (tensor<8xi32>, tensor<8xi32>)
// CHECK-DAG:     %[[FACTOR:.*]] = stablehlo.constant dense<1812433253> : tensor<8xi32>
// CHECK-DAG:     %[[MASK:.*]] = stablehlo.constant dense<65535> : tensor<8xi32>
// CHECK:         %[[PRODUCT:.*]] = stablehlo.multiply %{{.*}}, %[[FACTOR]] : tensor<8xi32>
// CHECK-NEXT:    %[[LOW:.*]] = stablehlo.and %[[PRODUCT]], %[[MASK]] : tensor<8xi32>
// CHECK:         return %[[LOW]], %{{.*}} : tensor<8xi32>, tensor<8xi32>
// KEPT-LABEL:  func.func @hash(
// KEPT-SAME:     -> (tensor<8xi64>, tensor<8xi32>)
func.func @hash(%x: tensor<8xi32>) -> (tensor<8xi64>, tensor<8xi32>) {
  %factor = stablehlo.constant dense<1812433253> : tensor<8xi64>
  %mask = stablehlo.constant dense<65535> : tensor<8xi64>
  %0 = stablehlo.convert %x : (tensor<8xi32>) -> tensor<8xi64>
  %1 = stablehlo.multiply %0, %factor : tensor<8xi64>
  %2 = stablehlo.and %1, %mask : tensor<8xi64>
  %3 = stablehlo.convert %1 : (tensor<8xi64>) -> tensor<8xi32>
  return %2, %3 : tensor<8xi64>, tensor<8xi32>
}

// -----

// Integers that are only moved keep their bits, whatever they are.
// CHECK-LABEL: func.func @moved(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<4x8xi64>) -> tensor<8x4xi64>
// CHECK-NEXT:    %[[T:.*]] = stablehlo.transpose %[[X]], dims = [1, 0]
// CHECK-NEXT:    return %[[T]]
// KEPT-LABEL:  func.func @moved(
func.func @moved(%x: tensor<4x8xi64>) -> tensor<8x4xi64> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x8xi64>) -> tensor<8x4xi64>
  return %0 : tensor<8x4xi64>
}

// -----

// A loop's counter is below its limit, and an unsigned position shifted by 32 bits is 0.
// CHECK-LABEL: func.func @loop(
// CHECK:         stablehlo.while(%[[N:.*]] = %{{.*}}, %{{.*}} = %{{.*}}) : tensor<i32>, tensor<8xui32>
// CHECK:           stablehlo.compare  LT, %[[N]], %{{.*}} : (tensor<i32>, tensor<i32>)
// CHECK:           stablehlo.shift_right_logical %{{.*}}, %{{.*}} : tensor<8xui32>
// KEPT-LABEL:  func.func @loop(
// KEPT:          stablehlo.while(%[[N:.*]] = %{{.*}}, %{{.*}} = %{{.*}}) : tensor<i32>, tensor<8xui32>
func.func @loop(%x: tensor<8xui32>) -> tensor<8xui32> {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %one = stablehlo.constant dense<1> : tensor<i64>
  %ten = stablehlo.constant dense<10> : tensor<i64>
  %shift = stablehlo.constant dense<32> : tensor<8xui64>
  %0:2 = stablehlo.while(%n = %zero, %y = %x) : tensor<i64>, tensor<8xui32>
  cond {
    %1 = stablehlo.compare LT, %n, %ten, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %n, %one : tensor<i64>
    %2 = stablehlo.iota dim = 0 : tensor<8xui64>
    %3 = stablehlo.convert %y : (tensor<8xui32>) -> tensor<8xui64>
    %4 = stablehlo.or %2, %3 : tensor<8xui64>
    %5 = stablehlo.shift_right_logical %4, %shift : tensor<8xui64>
    %6 = stablehlo.convert %5 : (tensor<8xui64>) -> tensor<8xui32>
    stablehlo.return %1, %6 : tensor<i64>, tensor<8xui32>
  }
  return %0#1 : tensor<8xui32>
}
