// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tile that is a copy of an input, and that is only read, is read where the input is.
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --lower-to-vector %s | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --pass-pipeline="forward-copies" --mlir-print-ir-before=forward-copies --mlir-print-ir-after=forward-copies %s -o %t 2>&1 | FileCheck %s --check-prefix=RECORDS

#id = affine_map<(d0) -> (d0)>
!row = memref<4096xf32, "hbm">
!tile = memref<4096xf32, "sbuf">
!half = memref<2x2048xf32, strided<[0, 1]>, "hbm">
!half_tile = memref<2x2048xf32, strided<[0, 1]>, "sbuf">

// Nothing else overlaps an output that the kernel makes.
// CHECK-LABEL: // @only_read(x, y)
// CHECK-NEXT:  //   copy_{{.*}}(x, y)
// CHECK-NEXT:  //   copy_{{.*}}(x, y)
// CHECK-NEXT:  //   end
func.func @only_read(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : !tile
  linalg.copy ins(%x : !row) outs(%t : !tile)
  linalg.copy ins(%t : !tile) outs(%y : !row)
  linalg.copy ins(%t : !tile) outs(%y : !row)
  return
}

// Nor does an input that is written overlap another one, unless the function says so.
// CHECK-LABEL: // @updates(x, y)
// CHECK-NEXT:  //   copy_{{.*}}(x, y)
// CHECK-NEXT:  //   copy_{{.*}}(x, y)
// CHECK-NEXT:  //   end
func.func @updates(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y"}) {
  %t = memref.alloc() : !tile
  linalg.copy ins(%x : !row) outs(%t : !tile)
  linalg.copy ins(%t : !tile) outs(%y : !row)
  linalg.copy ins(%t : !tile) outs(%y : !row)
  return
}

// CHECK-LABEL: // @updates_an_alias(x, y)
// CHECK-NEXT:  //   copy_{{.*}}(x, memory)
// CHECK-NEXT:  //   copy_{{.*}}(memory, y)
// CHECK-NEXT:  //   copy_{{.*}}(memory, y)
// CHECK-NEXT:  //   end
func.func @updates_an_alias(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y"}) attributes {nki.may_alias} {
  %t = memref.alloc() : !tile
  linalg.copy ins(%x : !row) outs(%t : !tile)
  linalg.copy ins(%t : !tile) outs(%y : !row)
  linalg.copy ins(%t : !tile) outs(%y : !row)
  return
}

// The input itself is written before the tile's last use.
// CHECK-LABEL: // @updates_itself(x, y)
// CHECK-NEXT:  //   copy_{{.*}}(x, [[TILE:memory]])
// CHECK-NEXT:  //   negative_{{.*}}([[TILE]], x)
// CHECK-NEXT:  //   copy_{{.*}}([[TILE]], y)
// CHECK-NEXT:  //   end
func.func @updates_itself(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : !tile
  linalg.copy ins(%x : !row) outs(%t : !tile)
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%t : !tile) outs(%x : !row) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.negf %in : f32
    linalg.yield %0 : f32
  }
  linalg.copy ins(%t : !tile) outs(%y : !row)
  return
}

// The copy writes the first half of the tile twice, the other half is what fresh memory is.
// CHECK-LABEL: // @half(x, y)
// CHECK:       //   nki_zero(memory, 16384)
// CHECK:       //   copy_{{.*}}(x, memory)
// CHECK:       //   copy_{{.*}}(memory, y)
func.func @half(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : !tile
  %from = memref.reinterpret_cast %x to offset: [0], sizes: [2, 2048], strides: [0, 1] : !row to !half
  %to = memref.reinterpret_cast %t to offset: [0], sizes: [2, 2048], strides: [0, 1] : !tile to !half_tile
  linalg.copy ins(%from : !half) outs(%to : !half_tile)
  linalg.copy ins(%t : !tile) outs(%y : !row)
  return
}

// The pass alone, on the records of the first function.
// RECORDS: kernel @only_read(x, y) {
// RECORDS-NEXT:   [[TILE:buffer[0-9]+]] = allocate(16384)
// RECORDS-NEXT:   copy_4096_float32(x, [[TILE]])
// RECORDS-NEXT:   copy_4096_float32([[TILE]], y)
// RECORDS-NEXT:   copy_4096_float32([[TILE]], y)
// RECORDS-NEXT: }
// RECORDS: // -----// IR Dump After forward-copies
// RECORDS-NEXT: kernel @only_read(x, y) {
// RECORDS-NEXT:   copy_4096_float32(x, y)
// RECORDS-NEXT:   copy_4096_float32(x, y)
// RECORDS-NEXT: }
