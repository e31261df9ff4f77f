// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --multiply-reciprocals --print=pretty %s | FileCheck %s

func.func @quotients(%x: memref<128x64xf32, "hbm">) {
  %t = memref.alloc() {nki.name = "t"} : memref<128x64xf32, "sbuf">
  %sums = memref.alloc() {nki.name = "sums"} : memref<128x1xf32, "sbuf">
  %n = memref.alloc() {nki.name = "n"} : memref<128x64xi32, "sbuf">
  nki.load %t = %x
  nki.reduce add %sums = %t {axes = [1]}

  // A repeated column has one reciprocal a row.
  // CHECK:      nki.reduce add %sums = %t {axes = [1]}
  // CHECK-NEXT: %[[INVERSE:.*]] = nki.buffer : {{.*}}
  // CHECK-NEXT: nki.unary reciprocal %[[INVERSE]] = %sums
  // CHECK-NEXT: nki.binary multiply %t = %t, %[[INVERSE]][0:128, 0, x 64]
  nki.binary divide %t = %t, %sums[0:128, 0, x 64]

  // CHECK-NEXT: nki.binary_scalar multiply %t = %t {scalar = 0.25}
  nki.binary_scalar divide %t = %t {scalar = 4.0}
  // CHECK-NEXT: nki.unary reciprocal %t = %t
  nki.binary_scalar divide %t = %t {scalar = 1.0, reverse = true}
  // CHECK-NEXT: %[[WHOLE:.*]] = nki.buffer : {{.*}}
  // CHECK-NEXT: nki.unary reciprocal %[[WHOLE]] = %t
  // CHECK-NEXT: nki.binary_scalar multiply %t = %[[WHOLE]] {scalar = 3.0}
  nki.binary_scalar divide %t = %t {scalar = 3.0, reverse = true}

  // CHECK-NEXT: %[[OF_T:.*]] = nki.buffer : {{.*}}
  // CHECK-NEXT: nisa.reciprocal %[[OF_T]] = %t
  // CHECK-NEXT: nisa.tensor_tensor multiply %t = %t, %[[OF_T]]
  nisa.tensor_tensor divide %t = %t, %t
  // CHECK-NEXT: %[[COLUMN:.*]] = nki.buffer : {{.*}}
  // CHECK-NEXT: nisa.reciprocal %[[COLUMN]] = %sums
  // CHECK-NEXT: nisa.tensor_scalar %t = %t, operand0: %[[COLUMN]][0:128, 0, x 64] {op0 = multiply, op1 = add, imm1 = 1.0}
  nisa.tensor_scalar %t = %t, operand0: %sums[0:128, 0, x 64] {op0 = divide, op1 = add, imm1 = 1.0}
  // 2 / (t + 1)
  // CHECK-NEXT: %[[ADDED:.*]] = nki.buffer : {{.*}}
  // CHECK-NEXT: %[[OF_ADDED:.*]] = nki.buffer : {{.*}}
  // CHECK-NEXT: nisa.tensor_scalar %[[ADDED]] = %t {op0 = add, imm0 = 1.0}
  // CHECK-NEXT: nisa.reciprocal %[[OF_ADDED]] = %[[ADDED]]
  // CHECK-NEXT: nisa.tensor_scalar %t = %[[OF_ADDED]] {op0 = multiply, imm0 = 2.0}
  nisa.tensor_scalar %t = %t {op0 = add, imm0 = 1.0, op1 = divide, imm1 = 2.0, reverse1 = true}
  // 1 / t * sums
  // CHECK-NEXT: %[[AGAIN:.*]] = nki.buffer : {{.*}}
  // CHECK-NEXT: nisa.reciprocal %[[AGAIN]] = %t
  // CHECK-NEXT: nisa.tensor_tensor multiply %t = %[[AGAIN]], %t {engine = vector}
  nisa.scalar_tensor_tensor %t = %t, %t {op0 = divide, op1 = multiply, imm0 = 1.0, reverse0 = true}

  // Integers, and elements that a mask selects, stay.
  // CHECK-NEXT: nki.binary divide %t = %t, %n
  nki.binary divide %t = %t, %n
  // CHECK-NEXT: nki.binary divide %t = %t, %t where d0 - d1 >= 0
  nki.binary divide %t = %t, %t where d0 - d1 >= 0
  // CHECK-NEXT: return
  return
}
