// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loops run on several threads where no iteration touches what another one writes.
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --lower-to-vector --cpu-passes=parallelize %s | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --parallelize %s | FileCheck %s --check-prefix=ALONE

#rows = affine_map<()[i] -> (i * 65536)>
#long = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 4096]]>
#eight = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 8]]>
#all = affine_set<() : (0 == 0)>
#id = affine_map<(d0) -> (d0)>
!matrix = memref<2048x512xf32, "hbm">
!part = memref<65536xf32, strided<[1], offset: ?>, "hbm">
!rows = memref<65536xf32, "hbm">
!long = memref<128x4096xf32, "sbuf">
!first = memref<128x4096xf32, strided<[4096, 1]>, "hbm">
!eight = memref<128x8xf32, "sbuf">
!tile = memref<65536xf32, "sbuf">

// Each iteration has its own tile, which is used twice, and its own rows. Its memory is in its own slot, before the
// loop variable's.
// CHECK-LABEL: // @rows(x, y)
// CHECK-NEXT:  //   nki_parallel(&%0, %2, [[BODY:L[0-9]+]], [[I:[0-9]+]], 0, 1, 16, {{[0-9]+}}, 262208, [[END:L[0-9]+]])
// CHECK-NEXT:  // [[BODY]]:
// CHECK-NEXT:  //   negative_65536_float32_{{.*}}(x + 262144 * %[[I]], [[OWN:%[0-9]+]])
// CHECK-NEXT:  //   copy_65536_float32_{{.*}}([[OWN]], y + 262144 * %[[I]])
// CHECK-NEXT:  //   copy_65536_float32_{{.*}}([[OWN]], y + 262144 * %[[I]])
// CHECK-NEXT:  //   end
// CHECK-NEXT:  // [[END]]:
func.func @rows(%x: !matrix {nki.name = "x"}, %y: !matrix {nki.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  scf.for %i = %c0 to %c16 step %c1 {
    %at = affine.apply #rows()[%i]
    %a = memref.reinterpret_cast %x to offset: [%at], sizes: [65536], strides: [1] : !matrix to !part
    %b = memref.reinterpret_cast %y to offset: [%at], sizes: [65536], strides: [1] : !matrix to !part
    %t = memref.alloc() : !tile
    linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : !part) outs(%t : !tile) {
    ^bb0(%in: f32, %out: f32):
      %0 = arith.negf %in : f32
      linalg.yield %0 : f32
    }
    linalg.copy ins(%t : !tile) outs(%b : !part)
    linalg.copy ins(%t : !tile) outs(%b : !part)
  } {nki.loop = "parallel"}
  return
}

// All iterations write the same rows: whatever the loop is called, they run one after the other.
// CHECK-LABEL: // @same_rows(x, y)
// CHECK-NEXT:  //   nki_set(&%[[J:[0-9]+]], 0)
// CHECK-NEXT:  // [[BODY:L[0-9]+]]:
// CHECK-NEXT:  //   copy_65536_float32_{{.*}}(x + 262144 * %[[J]], y)
// CHECK-NEXT:  //   nki_next(&%[[J]], 1, 16, [[BODY]])
func.func @same_rows(%x: !matrix {nki.name = "x"}, %y: !rows {nki.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  scf.for %i = %c0 to %c16 step %c1 {
    %at = affine.apply #rows()[%i]
    %a = memref.reinterpret_cast %x to offset: [%at], sizes: [65536], strides: [1] : !matrix to !part
    linalg.copy ins(%a : !part) outs(%y : !rows)
  } {nki.loop = "parallel"}
  return
}

// Iterations that write different rows are independent, whatever the loop is called.
// CHECK-LABEL: // @in_order(x, y)
// CHECK-NEXT:  //   nki_parallel(
func.func @in_order(%x: !matrix {nki.name = "x"}, %y: !matrix {nki.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  scf.for %i = %c0 to %c16 step %c1 {
    %at = affine.apply #rows()[%i]
    %a = memref.reinterpret_cast %x to offset: [%at], sizes: [65536], strides: [1] : !matrix to !part
    %b = memref.reinterpret_cast %y to offset: [%at], sizes: [65536], strides: [1] : !matrix to !part
    linalg.copy ins(%a : !part) outs(%b : !part)
  } {nki.loop = "sequential"}
  return
}

// A loop that runs in sequence contains one whose iterations run on the pool.
// CHECK-LABEL: // @within(x, y)
// CHECK:       //   nki_parallel(&%0, %{{[0-9]+}}, [[BODY:L[0-9]+]], [[I:[0-9]+]], 0, 1, 16, {{[0-9]+}}, {{[0-9]+}}, [[END:L[0-9]+]])
// CHECK-NEXT:  // [[BODY]]:
// CHECK-NEXT:  //   copy_65536_float32_{{.*}}(x + 262144 * %[[I]], y + 262144 * %[[I]])
func.func @within(%x: !matrix {nki.name = "x"}, %y: !matrix {nki.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c16 = arith.constant 16 : index
  scf.for %k = %c0 to %c3 step %c1 {
    scf.for %i = %c0 to %c16 step %c1 {
      %at = affine.apply #rows()[%i]
      %a = memref.reinterpret_cast %x to offset: [%at], sizes: [65536], strides: [1] : !matrix to !part
      %b = memref.reinterpret_cast %y to offset: [%at], sizes: [65536], strides: [1] : !matrix to !part
      linalg.copy ins(%a : !part) outs(%b : !part)
    } {nki.loop = "parallel"}
  }
  return
}

// Threads share the rows of a long search: the eight largest of each, which begin 32 bytes apart.
// CHECK-LABEL: // @searched(x, y)
// CHECK-NEXT:  //   copy_524288_float32_{{.*}}(x, [[ROWS:memory.*]])
// CHECK-NEXT:  //   nki_spread(largest_64x4096_float32_{{[0-9a-f]+}}, 2, 3, {{[0-9]+}}, 0, [[BEST:memory.*]], 2048, [[ROWS]], 1048576)
func.func @searched(%x: !matrix {nki.name = "x"}, %y: memref<128x8xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : !long
  %best = memref.alloc() : !eight
  %first = memref.reinterpret_cast %x to offset: [0], sizes: [128, 4096], strides: [4096, 1] : !matrix to !first
  linalg.copy ins(%first : !first) outs(%t : !long)
  "nisa.max8"(%best, %t) {access = [#eight, #long], mask = #all, engine = "vector"} : (!eight, !long) -> ()
  linalg.copy ins(%best : !eight) outs(%y : memref<128x8xf32, "hbm">)
  return
}

// The pass alone.
// ALONE-LABEL: func.func @rows(
// ALONE:         scf.for %[[I:.*]] = %c0 to %c16 step %c1 {
// ALONE-NEXT:      %[[TILE:.*]] = memref.alloc() : memref<65536xf32, "sbuf">
// ALONE:           linalg.generic {{.*}} outs(%[[TILE]] : {{.*}})
// ALONE:           linalg.copy ins(%[[TILE]] : {{.*}})
// ALONE:         } {native.on_pool}
// ALONE-LABEL: func.func @same_rows(
// ALONE:         scf.for %{{.*}} = %c0 to
// ALONE-NOT:     native.on_pool
// ALONE-LABEL: func.func @in_order(
// ALONE:         } {native.on_pool}
// ALONE-LABEL: func.func @within(
// ALONE:         } {native.on_pool}
// ALONE-NEXT:    }
// ALONE-LABEL: func.func @searched(
// ALONE:         "nisa.max8"(%{{.*}}, %{{.*}}) {{{.*}}native.spread = 2 : i64}
