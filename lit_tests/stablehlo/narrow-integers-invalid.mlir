// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --narrow-integers --split-input-file --verify-diagnostics %s

// Sums of two arguments fit, those of three may not.
func.func @sum(%a: tensor<8xi64>) -> tensor<8xi64> {
  %0 = stablehlo.add %a, %a : tensor<8xi64>
  // expected-error@+1 {{'stablehlo.add' on 64-bit integers with values from -3221225469 to 3221225469, which may not fit 32 bits}}
  %1 = stablehlo.add %0, %a : tensor<8xi64>
  return %1 : tensor<8xi64>
}

// -----

// The comparison reads the product; the reshape between them changes no number.
func.func @compared(%a: tensor<8xi32>, %b: tensor<2x4xi64>) -> tensor<2x4xi1> {
  %0 = stablehlo.convert %a : (tensor<8xi32>) -> tensor<8xi64>
  // expected-error@+1 {{'stablehlo.multiply' on 64-bit integers with values from -4611686016279904256 to 4611686018427387904}}
  %1 = stablehlo.multiply %0, %0 : tensor<8xi64>
  %2 = stablehlo.reshape %1 : (tensor<8xi64>) -> tensor<2x4xi64>
  %3 = stablehlo.compare LT, %2, %b, SIGNED : (tensor<2x4xi64>, tensor<2x4xi64>) -> tensor<2x4xi1>
  return %3 : tensor<2x4xi1>
}

// -----

func.func @truncated(%a: tensor<8xf32>) -> tensor<8xi64> {
  // expected-error@+1 {{'stablehlo.convert' on 64-bit integers with values from -9223372036854775808 to}}
  %0 = stablehlo.convert %a : (tensor<8xf32>) -> tensor<8xi64>
  return %0 : tensor<8xi64>
}

// -----

// The high bits of a negative number come into the low ones.
func.func @shifted(%a: tensor<8xi64>) -> tensor<8xi32> {
  %0 = stablehlo.constant dense<8> : tensor<8xi64>
  // expected-error@+1 {{'stablehlo.shift_right_logical' on 64-bit integers}}
  %1 = stablehlo.shift_right_logical %a, %0 : tensor<8xi64>
  %2 = stablehlo.convert %1 : (tensor<8xi64>) -> tensor<8xi32>
  return %2 : tensor<8xi32>
}
