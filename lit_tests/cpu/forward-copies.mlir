// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tile that is a copy of an input, and that is only read, is read where the input is.
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --lower-to-vector --cpu-passes=zero-unwritten,forward-copies %s | FileCheck %s
// RUN: nki-opt --forward-copies %s | FileCheck %s --check-prefix=ALONE

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

// The copy of a tile on chip keeps the values that the tile had then.
// CHECK-LABEL: // @tile_of_a_tile(x, y)
// CHECK-NEXT:  //   negative_{{.*}}(x, [[FIRST:memory.*]])
// CHECK-NEXT:  //   copy_{{.*}}([[FIRST]], [[COPY:memory.*]])
// CHECK-NEXT:  //   negative_{{.*}}(x, [[FIRST]])
// CHECK-NEXT:  //   copy_{{.*}}([[COPY]], y)
// CHECK-NEXT:  //   copy_{{.*}}([[FIRST]], y)
// CHECK-NEXT:  //   end
func.func @tile_of_a_tile(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y", nki.shared = 0 : i64}) {
  %first = memref.alloc() : !tile
  %copy = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !row) outs(%first : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.negf %in : f32
    linalg.yield %0 : f32
  }
  linalg.copy ins(%first : !tile) outs(%copy : !tile)
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !row) outs(%first : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.negf %in : f32
    linalg.yield %0 : f32
  }
  linalg.copy ins(%copy : !tile) outs(%y : !row)
  linalg.copy ins(%first : !tile) outs(%y : !row)
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

// A product whose rows fill no more than a register tile reads each element of the factor with its columns once, so it
// reads the input. One with more rows reads the factor again and again, from the tile.
// CHECK-LABEL: // @few_rows(a, b, y)
// CHECK-NEXT:  //   add_4x128x64_float32_{{.*}}(a, b, y)
#k_m = affine_map<(m, n, k) -> (k, m)>
#k_n = affine_map<(m, n, k) -> (k, n)>
#m_n = affine_map<(m, n, k) -> (m, n)>
!factor = memref<64x128xf32, "hbm">
!factor_tile = memref<64x128xf32, "sbuf">
!few = memref<64x4xf32, "hbm">
!few_sums = memref<4x128xf32, "hbm">
func.func @few_rows(%a: !few {nki.name = "a"}, %b: !factor {nki.name = "b"}, %y: !few_sums {nki.name = "y"}) {
  %t = memref.alloc() : !factor_tile
  linalg.copy ins(%b : !factor) outs(%t : !factor_tile)
  linalg.generic {indexing_maps = [#k_m, #k_n, #m_n], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %t : !few, !factor_tile) outs(%y : !few_sums) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// CHECK-LABEL: // @many_rows(a, b, y)
// CHECK-NEXT:  //   copy_8192_float32_{{.*}}(b, [[TILE:memory.*]])
// CHECK-NEXT:  //   add_64x128x64_float32_{{.*}}(a, [[TILE]], y)
!many = memref<64x64xf32, "hbm">
!many_sums = memref<64x128xf32, "hbm">
func.func @many_rows(%a: !many {nki.name = "a"}, %b: !factor {nki.name = "b"}, %y: !many_sums {nki.name = "y"}) {
  %t = memref.alloc() : !factor_tile
  linalg.copy ins(%b : !factor) outs(%t : !factor_tile)
  linalg.generic {indexing_maps = [#k_m, #k_n, #m_n], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %t : !many, !factor_tile) outs(%y : !many_sums) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// The pass alone.
// ALONE-LABEL: func.func @only_read(
// ALONE-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[Y:[a-z0-9]+]]:
// ALONE-NEXT:    linalg.copy ins(%[[X]] : {{.*}}) outs(%[[Y]] : {{.*}})
// ALONE-NEXT:    linalg.copy ins(%[[X]] : {{.*}}) outs(%[[Y]] : {{.*}})
// ALONE-NEXT:    return
// ALONE-LABEL: func.func @updates_an_alias(
// ALONE-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[Y:[a-z0-9]+]]:
// ALONE-NEXT:    %[[TILE:.*]] = memref.alloc() : memref<4096xf32, "sbuf">
// ALONE-NEXT:    linalg.copy ins(%[[X]] : {{.*}}) outs(%[[TILE]] : {{.*}})
// ALONE-NEXT:    linalg.copy ins(%[[TILE]] : {{.*}}) outs(%[[Y]] : {{.*}})
