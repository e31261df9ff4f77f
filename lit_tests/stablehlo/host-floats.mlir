// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --host-floats %s | FileCheck %s
// RUN: nki-opt --host-floats="functions=false" %s | FileCheck --check-prefix=BYTES %s
// RUN: nki-opt --host-floats="conversions=false" %s | FileCheck --check-prefix=SCALAR %s

// exp(x) - 1 loses its digits near 0: (u - 1) * (x / log(u)) for u = exp(x) keeps them.
// CHECK-LABEL:  func.func @near_zero(
// CHECK-SAME:   %[[X:[a-z0-9]+]]: f32
// CHECK-NEXT:   %[[U:.*]] = math.exp %[[X]] : f32
// CHECK-NEXT:   %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:   %[[BELOW:.*]] = arith.subf %[[U]], %[[ONE]] : f32
// CHECK-NEXT:   %[[LOG:.*]] = math.log %[[U]] : f32
// CHECK-NEXT:   %[[RATIO:.*]] = arith.divf %[[X]], %[[LOG]] : f32
// CHECK-NEXT:   %[[NEAR:.*]] = arith.mulf %[[BELOW]], %[[RATIO]] : f32
// CHECK-NEXT:   %[[ABS:.*]] = math.absf %[[X]] : f32
// CHECK-NEXT:   %[[LIMIT:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:   %[[IS_NEAR:.*]] = arith.cmpf olt, %[[ABS]], %[[LIMIT]] : f32
// CHECK-NEXT:   %[[Y:.*]] = arith.select %[[IS_NEAR]], %[[NEAR]], %[[BELOW]] : f32
// CHECK-NEXT:   %[[U1:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:   %[[IS_ONE:.*]] = arith.cmpf oeq, %[[U]], %[[U1]] : f32
// CHECK-NEXT:   %[[R:.*]] = arith.select %[[IS_ONE]], %[[X]], %[[Y]] : f32
// CHECK-NEXT:   return %[[R]] : f32
// BYTES-LABEL:  func.func @near_zero(
// BYTES-NEXT:   %[[Y:.*]] = math.expm1 %{{.*}} : f32
// BYTES-NEXT:   return %[[Y]] : f32
// SCALAR-LABEL: func.func @near_zero(
// SCALAR-NEXT:  %[[U:.*]] = math.exp
func.func @near_zero(%x: f32) -> f32 {
  %y = math.expm1 %x : f32
  return %y : f32
}

// Narrow floats are computed in float32, and rounded once.
// CHECK-LABEL: func.func @logarithm(
// CHECK-SAME:  %[[X:[a-z0-9]+]]: bf16
// CHECK-NEXT:  %[[WIDE:.*]] = arith.extf %[[X]] : bf16 to f32
// CHECK-NEXT:  %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:  %[[U:.*]] = arith.addf %[[WIDE]], %[[ONE]] : f32
// CHECK-NEXT:  %[[LOG:.*]] = math.log %[[U]] : f32
// CHECK:       %[[R:.*]] = arith.truncf %{{.*}} : f32 to bf16
// CHECK-NEXT:  return %[[R]] : bf16
func.func @logarithm(%x: bf16) -> bf16 {
  %y = math.log1p %x : bf16
  return %y : bf16
}

// Integers compute the byte of an 8-bit float; other conversions stay.
// CHECK-LABEL:  func.func @bytes(
// CHECK-SAME:   %[[X:[a-z0-9]+]]: bf16
// CHECK-NEXT:   %[[WIDE:.*]] = arith.extf %[[X]] : bf16 to f32
// CHECK-NEXT:   %[[BITS:.*]] = arith.bitcast %[[WIDE]] : f32 to i32
// CHECK:        %[[BYTE:.*]] = arith.trunci %{{.*}} : i32 to i8
// CHECK-NEXT:   %[[R:.*]] = arith.bitcast %[[BYTE]] : i8 to f8E5M2
// CHECK-NEXT:   return %[[R]] : f8E5M2
// BYTES-LABEL:  func.func @bytes(
// BYTES-NOT:    arith.truncf
// BYTES:        return
// SCALAR-LABEL: func.func @bytes(
// SCALAR-NEXT:  %[[R:.*]] = arith.truncf %{{.*}} : bf16 to f8E5M2
// SCALAR-NEXT:  return %[[R]] : f8E5M2
func.func @bytes(%x: bf16) -> f8E5M2 {
  %y = arith.truncf %x : bf16 to f8E5M2
  return %y : f8E5M2
}

// CHECK-LABEL: func.func @widened(
// CHECK-SAME:  %[[X:[a-z0-9]+]]: f8E4M3FN
// CHECK-NEXT:  %[[BYTE:.*]] = arith.bitcast %[[X]] : f8E4M3FN to i8
// CHECK:       %[[R:.*]] = arith.truncf %{{.*}} : f32 to f16
// CHECK-NEXT:  return %[[R]] : f16
func.func @widened(%x: f8E4M3FN) -> f16 {
  %y = arith.extf %x : f8E4M3FN to f16
  return %y : f16
}
