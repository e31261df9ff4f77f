// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --merge-instructions %s | FileCheck %s

!x = memref<128x1024xbf16, "sbuf">
!bank = memref<128x128xbf16, "psum">
!tile = memref<128x128xbf16, "sbuf">
!sums = memref<128x4xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>
#second = #nki.access<bf16, affine_map<() -> (0, 128)>, [[1, 128], [1, 128]]>
#third = #nki.access<bf16, affine_map<() -> (0, 256)>, [[1, 128], [1, 128]]>
#sum0 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>
#sum1 = #nki.access<f32, affine_map<() -> (0, 2)>, [[1, 128], [1, 1]]>

// The transposes write parts of one bank, which one copy moves.
// CHECK-DAG:     #[[M0:.*]] = affine_map<() -> (0, 0)>
// CHECK-DAG:     #[[M128:.*]] = affine_map<() -> (0, 128)>
// CHECK-DAG:     #[[M256:.*]] = affine_map<() -> (0, 256)>
// CHECK-LABEL: func.func @transposes(
// CHECK-NEXT:    %[[X:.*]] = memref.alloc() : memref<128x1024xbf16, "sbuf">
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<128x2x128xbf16, "sbuf">
// CHECK-NEXT:    %[[P:.*]] = memref.alloc() : memref<128x2x128xbf16, "psum">
// CHECK-NEXT:    "nisa.nc_transpose"(%[[P]], %[[X]]) {{.*}}<bf16, #[[M0]], {{.*}}<bf16, #[[M0]],
// CHECK-NEXT:    "nisa.nc_transpose"(%[[P]], %[[X]]) {{.*}}<bf16, #[[M128]], {{.*}}<bf16, #[[M128]],
// CHECK-NEXT:    "nisa.tensor_copy"(%[[T]], %[[P]]) {{.*}}<bf16, #[[M0]], {{\[\[}}1, 128], [1, 256]]>
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[X]], %[[T]], %[[T]]) {{.*}}<bf16, #[[M256]], {{.*}}<bf16, #[[M0]], {{.*}}<bf16, #[[M128]],
// CHECK-NEXT:    return
func.func @transposes() {
  %x = memref.alloc() : !x
  %p = memref.alloc() : !bank
  %t = memref.alloc() : !tile
  %q = memref.alloc() : !bank
  %u = memref.alloc() : !tile
  "nisa.nc_transpose"(%p, %x) {access = [#tile, #tile], engine = "tensor", mask = #all} : (!bank, !x) -> ()
  "nisa.tensor_copy"(%t, %p) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !bank) -> ()
  "nisa.nc_transpose"(%q, %x) {access = [#tile, #second], engine = "tensor", mask = #all} : (!bank, !x) -> ()
  "nisa.tensor_copy"(%u, %q) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !bank) -> ()
  "nisa.tensor_tensor"(%x, %t, %u) {access = [#third, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!x, !tile, !tile) -> ()
  return
}

// Maxima of rows become one instruction over two rows, whose results are two elements apart.
// CHECK-LABEL: func.func @rows(
// CHECK:         "nisa.tensor_reduce"(%[[S:.*]], %[[X:.*]]) {access = [#nki.access<f32, #{{.*}}, {{\[\[}}1, 128], [2, 2], [1, 1]]>, #nki.access<bf16, #{{.*}}, {{\[\[}}1, 128], [128, 2], [1, 128]]>], axes = [2]
// CHECK-NEXT:    return
func.func @rows() {
  %x = memref.alloc() : !x
  %s = memref.alloc() : !sums
  "nisa.tensor_reduce"(%s, %x) {access = [#sum0, #tile], axes = [1], engine = "unknown", mask = #all, negate = false, op = "maximum"} : (!sums, !x) -> ()
  "nisa.tensor_reduce"(%s, %x) {access = [#sum1, #second], axes = [1], engine = "unknown", mask = #all, negate = false, op = "maximum"} : (!sums, !x) -> ()
  return
}

// Sums of one element each have no order either. Sums of several stay, because other extents may have another order.
#one0 = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [0, 1]]>
#one1 = #nki.access<bf16, affine_map<() -> (0, 128)>, [[1, 128], [0, 1]]>
// CHECK-LABEL: func.func @sums(
// CHECK:         "nisa.tensor_reduce"(%[[S:.*]], %[[X:.*]]) {access = [#nki.access<f32, #{{.*}}, {{\[\[}}1, 128], [2, 2], [1, 1]]>, #nki.access<bf16, #{{.*}}, {{\[\[}}1, 128], [128, 2], [0, 1]]>], axes = [2]
// CHECK-NEXT:    "nisa.tensor_reduce"(%[[S]], %[[X]]) {{.*}} axes = [1]
// CHECK-NEXT:    "nisa.tensor_reduce"(%[[S]], %[[X]]) {{.*}} axes = [1]
// CHECK-NEXT:    return
func.func @sums() {
  %x = memref.alloc() : !x
  %s = memref.alloc() : !sums
  "nisa.tensor_reduce"(%s, %x) {access = [#sum0, #one0], axes = [1], engine = "unknown", mask = #all, negate = false, op = "add"} : (!sums, !x) -> ()
  "nisa.tensor_reduce"(%s, %x) {access = [#sum1, #one1], axes = [1], engine = "unknown", mask = #all, negate = false, op = "add"} : (!sums, !x) -> ()
  "nisa.tensor_reduce"(%s, %x) {access = [#sum0, #tile], axes = [1], engine = "unknown", mask = #all, negate = false, op = "add"} : (!sums, !x) -> ()
  "nisa.tensor_reduce"(%s, %x) {access = [#sum1, #second], axes = [1], engine = "unknown", mask = #all, negate = false, op = "add"} : (!sums, !x) -> ()
  return
}

// An instruction that reads the result of another stays after it.
// CHECK-LABEL: func.func @chain(
// CHECK:         "nisa.tensor_copy"(%[[X:.*]], %[[X]]) {{.*}}<bf16, #[[M128]], {{.*}}<bf16, #[[M0]],
// CHECK-NEXT:    "nisa.tensor_copy"(%[[X]], %[[X]]) {{.*}}<bf16, #[[M256]], {{.*}}<bf16, #[[M128]],
// CHECK-NEXT:    return
func.func @chain() {
  %x = memref.alloc() : !x
  "nisa.tensor_copy"(%x, %x) {access = [#second, #tile], engine = "unknown", mask = #all} : (!x, !x) -> ()
  "nisa.tensor_copy"(%x, %x) {access = [#third, #second], engine = "unknown", mask = #all} : (!x, !x) -> ()
  return
}

// Copies to an engine's registers stay: each is what the next sum begins with.
!numbers = memref<128x4xf32, "sbuf">
!registers = memref<128x1xf32, "sbuf">
#numbers = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 4]]>
// CHECK-LABEL: func.func @registers(
// CHECK-DAG:     %[[R:.*]] = memref.alloc() {nki.name = "first"} : memref<128x1xf32, "sbuf">
// CHECK-DAG:     %[[S:.*]] = memref.alloc() {nki.name = "second"} : memref<128x1xf32, "sbuf">
// CHECK:         "nisa.tensor_copy"(%[[R]], %[[X:.*]])
// CHECK-NEXT:    "nisa.tensor_copy"(%[[S]], %[[X]])
// CHECK-NEXT:    "nisa.tensor_scalar_cumulative"(%{{.*}}, %[[R]], %{{.*}})
// CHECK-NEXT:    "nisa.tensor_scalar_cumulative"(%{{.*}}, %[[S]], %{{.*}})
func.func @registers() {
  %x = memref.alloc() : !numbers
  %y = memref.alloc() : !numbers
  %z = memref.alloc() : !numbers
  %r = memref.alloc() {nki.name = "first"} : !registers
  %s = memref.alloc() {nki.name = "second"} : !registers
  "nisa.tensor_copy"(%r, %x) {access = [#sum0, #sum0], engine = "vector", mask = #all} : (!registers, !numbers) -> ()
  "nisa.tensor_copy"(%s, %x) {access = [#sum0, #sum0], engine = "vector", mask = #all} : (!registers, !numbers) -> ()
  "nisa.tensor_scalar_cumulative"(%y, %r, %x) {operandSegmentSizes = array<i32: 1, 1, 0, 1, 0, 0>, access = [#numbers, #sum0, #numbers], engine = "vector", imm0 = 2.0 : f64, mask = #all, op0 = "multiply", op1 = "add", reduce_cmd = "reduce", reduce_op = "add"} : (!numbers, !registers, !numbers) -> ()
  "nisa.tensor_scalar_cumulative"(%z, %s, %x) {operandSegmentSizes = array<i32: 1, 1, 0, 1, 0, 0>, access = [#numbers, #sum0, #numbers], engine = "vector", imm0 = 2.0 : f64, mask = #all, op0 = "multiply", op1 = "add", reduce_cmd = "reduce", reduce_op = "add"} : (!numbers, !registers, !numbers) -> ()
  return
}

// The first two copies become one before the sums, since the third reads at another distance. Their results are then in
// one buffer, so the sums of these two become one. The sum between them stays: it reads another buffer.
#copied2 = #nki.access<bf16, affine_map<() -> (0, 384)>, [[1, 128], [1, 128]]>
#result0 = #nki.access<bf16, affine_map<() -> (0, 512)>, [[1, 128], [1, 128]]>
#result1 = #nki.access<bf16, affine_map<() -> (0, 640)>, [[1, 128], [1, 128]]>
#result2 = #nki.access<bf16, affine_map<() -> (0, 896)>, [[1, 128], [1, 128]]>
// CHECK-LABEL: func.func @joined(
// CHECK-NEXT:    %[[X:.*]] = memref.alloc() : memref<128x1024xbf16, "sbuf">
// CHECK-NEXT:    %[[R:.*]] = memref.alloc() : memref<128x128xbf16, "sbuf">
// CHECK-NEXT:    %[[W:.*]] = memref.alloc() : memref<128x2x128xbf16, "sbuf">
// CHECK-NEXT:    "nisa.tensor_copy"(%[[W]], %[[X]]) {{.*}}<bf16, #[[M0]], {{\[\[}}1, 128], [1, 256]]>
// CHECK-NEXT:    "nisa.tensor_copy"(%[[R]], %[[X]]) {{.*}}<bf16, #[[M0]], {{.*}}<bf16, #{{.*}}, {{\[\[}}1, 128], [1, 128]]>
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[X]], %[[W]], %[[X]]) {{.*}}, {{\[\[}}1, 128], [128, 2], [1, 128]]>, {{.*}}, {{\[\[}}1, 128], [0, 2], [1, 128]]>
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[X]], %[[R]], %[[X]]) {{.*}}, {{\[\[}}1, 128], [1, 128]]>
// CHECK-NEXT:    return
func.func @joined() {
  %x = memref.alloc() : !x
  %p = memref.alloc() : !tile
  %q = memref.alloc() : !tile
  %r = memref.alloc() : !tile
  "nisa.tensor_copy"(%p, %x) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_copy"(%q, %x) {access = [#tile, #second], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_copy"(%r, %x) {access = [#tile, #copied2], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_tensor"(%x, %p, %x) {access = [#result0, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!x, !tile, !x) -> ()
  "nisa.tensor_tensor"(%x, %r, %x) {access = [#result2, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!x, !tile, !x) -> ()
  "nisa.tensor_tensor"(%x, %q, %x) {access = [#result1, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!x, !tile, !x) -> ()
  return
}

// The sums after the loop become one, too: the copies before it have joined their buffers.
// CHECK-LABEL: func.func @joined_before_loop(
// CHECK:         %[[X:.*]] = memref.alloc() : memref<128x1024xbf16, "sbuf">
// CHECK:         %[[W:.*]] = memref.alloc() : memref<128x2x128xbf16, "sbuf">
// CHECK:         "nisa.tensor_copy"(%[[W]], %[[X]]) {{.*}}, {{\[\[}}1, 128], [1, 256]]>
// CHECK:         scf.for %{{.*}} = %c0 to %c4 step %c1 {
// CHECK-NEXT:      "nisa.tensor_copy"(%[[X]], %[[X]])
// CHECK:         "nisa.tensor_tensor"(%[[X]], %[[W]], %[[X]]) {{.*}}, {{\[\[}}1, 128], [128, 2], [1, 128]]>, {{.*}}, {{\[\[}}1, 128], [0, 2], [1, 128]]>
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[X]], %{{.*}}, %[[X]]) {{.*}}, {{\[\[}}1, 128], [1, 128]]>
// CHECK-NEXT:    return
func.func @joined_before_loop() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %x = memref.alloc() : !x
  %p = memref.alloc() : !tile
  %q = memref.alloc() : !tile
  %r = memref.alloc() : !tile
  "nisa.tensor_copy"(%p, %x) {access = [#tile, #tile], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_copy"(%q, %x) {access = [#tile, #second], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  "nisa.tensor_copy"(%r, %x) {access = [#tile, #copied2], engine = "unknown", mask = #all} : (!tile, !x) -> ()
  scf.for %i = %c0 to %c4 step %c1 {
    "nisa.tensor_copy"(%x, %x) {access = [#second, #tile], engine = "unknown", mask = #all} : (!x, !x) -> ()
  }
  "nisa.tensor_tensor"(%x, %p, %x) {access = [#result0, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!x, !tile, !x) -> ()
  "nisa.tensor_tensor"(%x, %r, %x) {access = [#result2, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!x, !tile, !x) -> ()
  "nisa.tensor_tensor"(%x, %q, %x) {access = [#result1, #tile, #tile], engine = "vector", mask = #all, op = "add"} : (!x, !tile, !x) -> ()
  return
}
