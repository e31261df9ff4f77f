// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each thread computes its part of several divided computations, one after the other, where it touches no bytes that
// other threads write.
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --lower-to-vector --cpu-passes=spread-nests{worth=1000},join-parts %s | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --lower-to-vector --cpu-passes=spread-nests{worth=1000},join-parts{nests=1} %s | FileCheck %s --check-prefix=ONE
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --spread-nests="worth=1000" %s | env NKI_MLIR_NUM_THREADS=2 nki-opt --join-parts | FileCheck %s --check-prefix=ALONE

!rows = memref<128x512xf32, "hbm">
!left = memref<128x512xf32, strided<[1024, 1]>, "hbm">
!columns = memref<512x128xf32, "hbm">
!tile = memref<128x512xf32, "sbuf">

// Both parts of the product read all rows of t: threads wait after the first computation.
// CHECK-LABEL: // @rows(
// CHECK-NEXT:  //   nki_spread(add_32768_float32_{{[0-9a-f]+}}, 2, 3, x, 131072, x, 131072, t, 131072)
// CHECK-NEXT:  //   nki_parallel(&{{%[0-9]+}}, {{%[0-9]+}}, [[BODY:L[0-9]+]], [[PART:[0-9]+]], 0, 1, 2, {{[0-9]+}}, 0, [[END:L[0-9]+]])
// CHECK-NEXT:  // [[BODY]]:
// CHECK-NEXT:  //   multiply_32768_float32_{{[0-9a-f]+}}(x + 131072 * %[[PART]], t + 131072 * %[[PART]], y + 131072 * %[[PART]])
// CHECK-NEXT:  //   add_64x128x512_float32_{{[0-9a-f]+}}(y + 131072 * %[[PART]], t, z + 32768 * %[[PART]])
// CHECK-NEXT:  //   end
// CHECK-NEXT:  // [[END]]:
// CHECK-NEXT:  //   end
// ONE-LABEL:   // @rows(
// ONE-NEXT:    //   nki_spread(add_32768_float32_{{[0-9a-f]+}}, 2, 3, x, 131072, x, 131072, t, 131072)
// ONE-NEXT:    //   nki_spread(multiply_32768_float32_{{[0-9a-f]+}}, 2, 3, x, 131072, t, 131072, y, 131072)
// ONE-NEXT:    //   nki_spread(add_64x128x512_float32_{{[0-9a-f]+}}, 2, 3, y, 131072, t, 0, z, 32768)
func.func @rows(%x: !rows {nki.name = "x"}, %t: !rows {nki.name = "t"}, %y: !rows {nki.name = "y"},
                %z: memref<128x128xf32, "hbm"> {nki.name = "z"}) {
  linalg.add ins(%x, %x : !rows, !rows) outs(%t : !rows)
  linalg.mul ins(%x, %t : !rows, !rows) outs(%y : !rows)
  linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>,
                                   affine_map<(d0, d1, d2) -> (d0, d1)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%y, %t : !rows, !rows) outs(%z : memref<128x128xf32, "hbm">) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %product = arith.mulf %a, %b : f32
    %sum = arith.addf %c, %product : f32
    linalg.yield %sum : f32
  }
  return
}

// The second computation is divided along the columns of t. So the first one is, too.
// CHECK-LABEL: // @columns(
// CHECK-NEXT:  //   nki_parallel(
// CHECK-NEXT:  // L
// CHECK-NEXT:  //   add_128x256_float32_{{[0-9a-f]+}}(x + 1024 * %[[PART:[0-9]+]], x + 1024 * %[[PART]], t + 1024 * %[[PART]])
// CHECK-NEXT:  //   copy_256x128_float32_{{[0-9a-f]+}}(t + 1024 * %[[PART]], z + 131072 * %[[PART]])
// CHECK-NEXT:  //   end
// ONE-LABEL:   // @columns(
// ONE-NEXT:    //   nki_spread(add_64x512_float32_{{[0-9a-f]+}}, 2, 3, x, 131072, x, 131072, t, 262144)
// ONE-NEXT:    //   nki_spread(copy_256x128_float32_{{[0-9a-f]+}}, 2, 2, t, 1024, z, 131072)
func.func @columns(%x: !rows {nki.name = "x"}, %t: memref<128x1024xf32, "hbm"> {nki.name = "t"}, %z: !columns {nki.name = "z"}) {
  %left = memref.subview %t[0, 0] [128, 512] [1, 1] : memref<128x1024xf32, "hbm"> to !left
  linalg.add ins(%x, %x : !rows, !rows) outs(%left : !left)
  linalg.transpose ins(%left : !left) outs(%z : !columns) permutation = [1, 0]
  return
}

// Each thread has its own tile t, since nothing else uses it. The tile u is read after the job.
// ALONE-LABEL: func.func @tiles(
// ALONE-DAG:     %[[U:.*]] = memref.alloc() : memref<65536xf32, "sbuf">
// ALONE:         scf.for %[[PART:.*]] =
// ALONE-NEXT:      %[[T:.*]] = memref.alloc() : memref<65536xf32, "sbuf">
// ALONE-NOT:       memref.alloc
// ALONE:           memref.reinterpret_cast %[[T]]
// ALONE:           memref.reinterpret_cast %[[U]]
// ALONE:         } {native.on_pool}
// ALONE:         memref.reinterpret_cast %[[U]]
func.func @tiles(%x: !rows {nki.name = "x"}, %y: !rows {nki.name = "y"}, %z: memref<512xf32, "hbm"> {nki.name = "z"}) {
  %u = memref.alloc() : !tile
  %t = memref.alloc() : !tile
  linalg.add ins(%x, %x : !rows, !rows) outs(%t : !tile)
  linalg.mul ins(%t, %x : !tile, !rows) outs(%u : !tile)
  linalg.mul ins(%t, %u : !tile, !tile) outs(%y : !rows)
  %row = memref.subview %u[127, 0] [1, 512] [1, 1] : !tile to memref<512xf32, strided<[1], offset: 65024>, "sbuf">
  memref.copy %row, %z : memref<512xf32, strided<[1], offset: 65024>, "sbuf"> to memref<512xf32, "hbm">
  return
}

// The addresses alone do not tell that the parts, which are rows, write no bytes that other parts read: the column that
// a loop chooses might lie in another row. The computation stays as it is.
// CHECK-LABEL: // @chosen(
// CHECK:       //   nki_spread(add_64x256_float32_{{[0-9a-f]+}}, 2, 3, t, 262144, t, 262144, t + 4 * %{{[0-9]+}} + 1024, 262144)
// ONE-LABEL:   // @chosen(
// ONE:         //   nki_spread(add_64x256_float32_{{[0-9a-f]+}}, 2, 3, t, 262144, t, 262144, t + 4 * %{{[0-9]+}} + 1024, 262144)
func.func @chosen(%t: memref<128x1024xf32, "hbm"> {nki.name = "t"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  %c512 = arith.constant 512 : index
  %left = memref.subview %t[0, 0] [128, 256] [1, 1] : memref<128x1024xf32, "hbm"> to memref<128x256xf32, strided<[1024, 1]>, "hbm">
  scf.for %i = %c0 to %c512 step %c1 {
    %first = arith.addi %i, %c256 : index
    %columns = memref.subview %t[0, %first] [128, 256] [1, 1] : memref<128x1024xf32, "hbm"> to memref<128x256xf32, strided<[1024, 1], offset: ?>, "hbm">
    linalg.add ins(%left, %left : memref<128x256xf32, strided<[1024, 1]>, "hbm">, memref<128x256xf32, strided<[1024, 1]>, "hbm">)
               outs(%columns : memref<128x256xf32, strided<[1024, 1], offset: ?>, "hbm">)
  }
  return
}
