// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operations on large tiles run chunk by chunk, if a chunk of rows needs only the same rows of earlier results.
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --lower-to-vector %s | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --chunk-rows %s | FileCheck %s --check-prefix=ALONE
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --lower-to-vector --cpu-passes=chunk-rows{worth=1} %s | FileCheck %s --check-prefix=POOL
// The module of the pass is one for the next pass, or for the JIT.
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --pass-pipeline="fuse-tiles,chunk-rows{chunk=65536}" %s | nki-opt --pass-pipeline="prefetch-rows" - | nki-opt --lower-to-vector - | FileCheck %s --check-prefix=CHAIN

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
!hbm = memref<128x4096xf32, "hbm">
!tile = memref<128x4096xf32, "sbuf">
!sums = memref<128xf32, "sbuf">
!square_hbm = memref<1024x1024xf32, "hbm">
!square = memref<1024x1024xf32, "sbuf">

// Buffers without other users shrink to one chunk.
// CHECK-LABEL: // @rows(x, y): 65{{[0-9]+}} bytes of memory
// CHECK-NEXT:  //   nki_set(&%[[CHUNK:[0-9]+]], 0)
// CHECK-NEXT:  // [[AGAIN:L[0-9]+]]:
// CHECK-NEXT:  //   exp_[[N:[0-9]+]]_float32_{{.*}}(x + [[STEP:[0-9]+]] * %[[CHUNK]], memory)
// CHECK-NEXT:  //   set_[[ROWS:[0-9]+]]_float32_{{.*}}(memory + [[SUMS:[0-9]+]])
// CHECK-NEXT:  //   add_[[ROWS]]x4096_float32_{{.*}}(memory, memory + [[SUMS]])
// CHECK-NEXT:  //   multiply_[[ROWS]]x4096_float32_{{.*}}(memory, memory + [[SUMS]], y + [[STEP]] * %[[CHUNK]])
// CHECK-NEXT:  //   nki_next(&%[[CHUNK]], 1, {{[0-9]+}}, [[AGAIN]])
// CHECK-NEXT:  //   end
// Threads share the chunks, each with its buffers of one chunk.
// POOL-LABEL:  // @rows(x, y): 0 bytes of memory
// POOL-NEXT:   //   nki_parallel(&%0, %2, [[BODY:L[0-9]+]], [[CHUNK:[0-9]+]], 0, 1, [[COUNT:[0-9]+]], {{[0-9]+}}, 65{{[0-9]+}}, [[END:L[0-9]+]])
// POOL-NEXT:   // [[BODY]]:
// POOL-NEXT:   //   exp_{{.*}}_float32_{{.*}}(x + [[STEP:[0-9]+]] * %[[CHUNK]], [[TILE:%[0-9]+]])
// POOL-NEXT:   //   set_[[ROWS:[0-9]+]]_float32_{{.*}}([[TILE]] + [[SUMS:[0-9]+]])
// POOL-NEXT:   //   add_[[ROWS]]x4096_float32_{{.*}}([[TILE]], [[TILE]] + [[SUMS]])
// POOL-NEXT:   //   multiply_[[ROWS]]x4096_float32_{{.*}}([[TILE]], [[TILE]] + [[SUMS]], y + [[STEP]] * %[[CHUNK]])
// POOL-NEXT:   //   end
// POOL-NEXT:   // [[END]]:
func.func @rows(%x: !hbm {nki.name = "x"}, %y: !hbm {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %e = memref.alloc() : !tile
  %s = memref.alloc() : !sums
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !hbm) outs(%e : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.fill ins(%zero : f32) outs(%s : !sums)
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%e : !tile) outs(%s : !sums) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%e, %s : !tile, !sums) outs(%y : !hbm) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %0 = arith.mulf %in, %sum : f32
    linalg.yield %0 : f32
  }
  return
}

// A row of a transpose needs all rows of its source, so the pass forms no chunks.
// CHECK-LABEL: // @turned(x, y)
// CHECK-NEXT:  //   exp_1048576_float32_{{[0-9a-f]+}}(x, memory)
// CHECK-NOT:   nki_next
// CHECK:       //   end
func.func @turned(%x: !square_hbm {nki.name = "x"}, %y: !square_hbm {nki.name = "y", nki.shared = 0 : i64}) {
  %e = memref.alloc() : !square
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !square_hbm) outs(%e : !square) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#turned, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%e, %e : !square, !square) outs(%y : !square_hbm) {
  ^bb0(%in: f32, %other: f32, %out: f32):
    %0 = arith.mulf %in, %other : f32
    linalg.yield %0 : f32
  }
  return
}

// The pass alone.
// ALONE: #[[FAR:map[0-9]*]] = affine_map<()[s0] -> (s0 * 16384)>
// ALONE-LABEL: func.func @rows(
// ALONE-SAME:    %[[X:[a-z0-9]+]]: memref<128x4096xf32, "hbm"> {nki.name = "x"}, %[[Y:[a-z0-9]+]]: memref<128x4096xf32, "hbm"> {nki.name = "y"
// ALONE:         scf.for %[[CHUNK:.*]] = %c0 to %c32 step %c1 {
// ALONE:           %[[TILE:.*]] = memref.alloc() : memref<16384xf32, "sbuf">
// ALONE:           %[[AT:.*]] = affine.apply #[[FAR]]()[%[[CHUNK]]]
// ALONE:           %[[A:.*]] = memref.reinterpret_cast %[[X]] to offset: [%[[AT]]], sizes: [16384], strides: [1]
// ALONE:           linalg.generic {{.*}} ins(%[[A]] : {{.*}}) outs(%[[TILE]] : {{.*}}) attrs = {native.ahead = {{\[\[}}0, 65536]], native.fixed}
// ALONE:             "scalar.activation"(%in) {fn = "exp"}
// ALONE:           %[[SUMS:.*]] = memref.alloc() : memref<4xf32, "sbuf">
// ALONE:           linalg.fill {native.fixed} ins(%{{.*}} : f32) outs(%[[SUMS]] : memref<4xf32, "sbuf">)
// ALONE:           %[[ROWS:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [0], sizes: [4, 4096], strides: [4096, 1]
// ALONE:           linalg.generic {{.*}} ins(%[[ROWS]] : {{.*}}) outs(%[[SUMS]] : {{.*}}) attrs = {native.fixed}
// ALONE:             "scalar.alu"(%in, %out) {fn = "add"}
// ALONE:           %[[B:.*]] = memref.reinterpret_cast %[[Y]] to offset: [%[[AT]]], sizes: [4, 4096], strides: [4096, 1]
// ALONE:           linalg.generic {{.*}} ins(%[[ROWS]], %[[SUMS]] : {{.*}}) outs(%[[B]] : {{.*}}) attrs = {native.fixed}
// ALONE:             "scalar.alu"(%in, %{{.*}}) {fn = "multiply"}

// CHAIN-LABEL: // @rows(x, y)
// CHAIN:       //   exp_{{[0-9]+}}_float32_ahead_{{.*}}(x + [[STEP:[0-9]+]] * %[[CHUNK:[0-9]+]], memory)
// CHAIN:       //   multiply_{{.*}}(memory, memory + {{[0-9]+}}, y + [[STEP]] * %[[CHUNK]])

// Sums of rows read an array once: chunks would save no traffic.
// CHECK-LABEL: // @sums_of_rows(x, y)
// CHECK-NEXT:  //   set_128_float32_{{.*}}([[S:memory.*]])
// CHECK-NEXT:  //   add_128x4096_float32_{{.*}}(x, [[S]])
// CHECK-NEXT:  //   copy_128_float32_{{.*}}([[S]], y)
// CHECK-NEXT:  //   end
func.func @sums_of_rows(%x: !hbm {nki.name = "x"}, %y: memref<128xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %s = memref.alloc() : !sums
  linalg.fill ins(%zero : f32) outs(%s : !sums)
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : !hbm) outs(%s : !sums) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  }
  linalg.copy ins(%s : !sums) outs(%y : memref<128xf32, "hbm">)
  return
}

// The two computations of exp share no memory, so chunks of both would save no traffic.
// CHECK-LABEL: // @apart(x, w, y)
// CHECK-NEXT:  //   exp_1048576_float32_{{[0-9a-f]+}}(x, [[E:memory.*]])
// CHECK-NEXT:  //   exp_1048576_float32_{{[0-9a-f]+}}(w, [[F:memory.*]])
// CHECK-NEXT:  //   {{[a-z]+}}_1024x1024_float32_{{[0-9a-f]+}}([[E]], [[E]], [[F]], [[F]], y)
// CHECK-NEXT:  //   end
func.func @apart(%x: !square_hbm {nki.name = "x"}, %w: !square_hbm {nki.name = "w"},
                 %y: !square_hbm {nki.name = "y", nki.shared = 0 : i64}) {
  %e = memref.alloc() : !square
  %f = memref.alloc() : !square
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !square_hbm) outs(%e : !square) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%w : !square_hbm) outs(%f : !square) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#turned, #id, #turned, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%e, %e, %f, %f : !square, !square, !square, !square) outs(%y : !square_hbm) {
  ^bb0(%a: f32, %b: f32, %c: f32, %d: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %0, %c : f32
    %2 = arith.mulf %1, %d : f32
    linalg.yield %2 : f32
  }
  return
}
