// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --fuse-tiles %s | FileCheck %s
// RUN: nki-opt --fuse-tiles="least=100" %s | FileCheck --check-prefix=SMALL %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// Load, exponential and sum in one walk over the rows.
// CHECK-LABEL: func.func @chain(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xf32, "hbm">
// CHECK-NOT:     memref.alloc
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[X]] : memref<8x4xf32, "hbm">)
// CHECK:           math.exp
// CHECK-NEXT:      arith.addf
// CHECK-NOT:     linalg.generic
// CHECK:         return
// SMALL-LABEL: func.func @chain(
// SMALL-COUNT-3: linalg.generic
func.func @chain(%x: memref<8x4xf32, "hbm">, %r: memref<8xf32, "hbm"> {nki.shared = 0 : i64}) {
  %t = memref.alloc() : memref<8x4xf32, "sbuf">
  %e = memref.alloc() : memref<8x4xf32, "sbuf">
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<8x4xf32, "hbm">) outs(%t : memref<8x4xf32, "sbuf">) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%t : memref<8x4xf32, "sbuf">) outs(%e : memref<8x4xf32, "sbuf">) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%e : memref<8x4xf32, "sbuf">) outs(%r : memref<8xf32, "hbm">) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  }
  return
}

// What is used twice is kept, and so is what is used after its source was written.
// CHECK-LABEL: func.func @kept(
// CHECK-COUNT-5: linalg.generic
func.func @kept(%x: memref<8x4xf32, "hbm">, %y: memref<8x4xf32, "hbm"> {nki.shared = 0 : i64},
                %z: memref<8x4xf32, "hbm"> {nki.shared = 1 : i64}) {
  %twice = memref.alloc() : memref<8x4xf32, "sbuf">
  %before = memref.alloc() : memref<8x4xf32, "sbuf">
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<8x4xf32, "hbm">) outs(%twice : memref<8x4xf32, "sbuf">) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%y : memref<8x4xf32, "hbm">) outs(%before : memref<8x4xf32, "sbuf">) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%twice : memref<8x4xf32, "sbuf">) outs(%y : memref<8x4xf32, "hbm">) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%twice, %twice : memref<8x4xf32, "sbuf">, memref<8x4xf32, "sbuf">) outs(%z : memref<8x4xf32, "hbm">) {
  ^bb0(%in: f32, %again: f32, %out: f32):
    %0 = arith.addf %in, %again : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%before : memref<8x4xf32, "sbuf">) outs(%z : memref<8x4xf32, "hbm">) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  return
}

// A caller may give one array for both parameters: rows are not read after others were written, nor in another order.
// CHECK-LABEL: func.func @in_place(
// CHECK-COUNT-5: linalg.generic
#turned = affine_map<(d0, d1) -> (d1, d0)>
func.func @in_place(%x: memref<4x4xf32, "hbm">, %y: memref<4x4xf32, "hbm">) {
  %first = memref.alloc() : memref<4x4xf32, "sbuf">
  %second = memref.alloc() : memref<4x4xf32, "sbuf">
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<4x4xf32, "hbm">) outs(%first : memref<4x4xf32, "sbuf">) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  %c = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%y : memref<4x4xf32, "hbm">) {
  ^bb0(%out: f32):
    linalg.yield %c : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%first : memref<4x4xf32, "sbuf">) outs(%y : memref<4x4xf32, "hbm">) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<4x4xf32, "hbm">) outs(%second : memref<4x4xf32, "sbuf">) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]}
    ins(%second : memref<4x4xf32, "sbuf">) outs(%y : memref<4x4xf32, "hbm">) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  return
}
