// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --fuse-tiles %s | FileCheck %s
// RUN: nki-opt --fuse-tiles="least=100" %s | FileCheck --check-prefix=SMALL %s
// RUN: nki-opt --fuse-tiles="least=20 few=1" %s | FileCheck --check-prefix=SMALL %s
// RUN: nki-opt --fuse-tiles="roundings=0" %s | FileCheck --check-prefix=FUSED %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#sums = affine_map<(d0, d1, d2) -> (d0, d1)>
#flat = affine_map<(d0) -> (d0)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
!hbm = memref<8x4xf32, "hbm">
!sums = memref<8xf32, "hbm">
!fold = memref<8xf32, "sbuf">
!field = memref<8x2xf32, strided<[4, 2]>, "hbm">
!other_field = memref<8x2xf32, strided<[4, 2], offset: 1>, "hbm">
!tile = memref<8x4xf32, "sbuf">
!narrow = memref<8x4xbf16, "sbuf">
!narrow_hbm = memref<8x4xbf16, "hbm">
!square_hbm = memref<4x4xf32, "hbm">
!square = memref<4x4xf32, "sbuf">

// CHECK-DAG: #[[ID:map[0-9]*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROW:map[0-9]*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: #[[TURNED:map[0-9]*]] = affine_map<(d0, d1) -> (d1, d0)>

// Load, exponential and sum in one walk over the rows.
// CHECK-LABEL: func.func @chain(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xf32, "hbm">, %[[R:[a-z0-9]+]]: memref<8xf32, "hbm">
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ROW]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[X]] : {{.*}}) outs(%[[R]] :
// CHECK-NEXT:    (%[[IN:.*]]: f32, %[[SUM:.*]]: f32):
// CHECK-NEXT:      %[[E:.*]] = math.exp %[[IN]] : f32
// CHECK-NEXT:      %[[S:.*]] = arith.addf %[[E]], %[[SUM]] : f32
// CHECK-NEXT:      linalg.yield %[[S]] : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    return

// Less work than the options ask for stays as it is.
// SMALL-LABEL: func.func @chain(
// SMALL-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xf32, "hbm">, %[[R:[a-z0-9]+]]: memref<8xf32, "hbm">
// SMALL:         %[[T:.*]] = memref.alloc() : memref<8x4xf32, "sbuf">
// SMALL:         %[[E:.*]] = memref.alloc() : memref<8x4xf32, "sbuf">
// SMALL:         linalg.generic {{.*}} ins(%[[X]] : {{.*}}) outs(%[[T]] :
// SMALL:         linalg.generic {{.*}} ins(%[[T]] : {{.*}}) outs(%[[E]] :
// SMALL:         linalg.generic {{.*}} ins(%[[E]] : {{.*}}) outs(%[[R]] :
// SMALL-NOT:     linalg.generic
// SMALL:         return
func.func @chain(%x: !hbm, %r: !sums {nki.shared = 0 : i64}) {
  %t = memref.alloc() : !tile
  %e = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !hbm) outs(%t : !tile) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%t : !tile) outs(%e : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%e : !tile) outs(%r : !sums) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  }
  return
}

// What is used twice is kept, and so is what is used after its source was written.
// CHECK-LABEL: func.func @kept(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xf32, "hbm">,
// CHECK-SAME:    %[[Y:[a-z0-9]+]]: memref<8x4xf32, "hbm"> {nki.shared = 0 : i64},
// CHECK-SAME:    %[[Z:[a-z0-9]+]]: memref<8x4xf32, "hbm"> {nki.shared = 1 : i64}
// CHECK-NEXT:    %[[TWICE:.*]] = memref.alloc() : memref<8x4xf32, "sbuf">
// CHECK-NEXT:    %[[BEFORE:.*]] = memref.alloc() : memref<8x4xf32, "sbuf">
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[X]] : {{.*}}) outs(%[[TWICE]] :
// CHECK:         linalg.generic {{.*}} ins(%[[Y]] : {{.*}}) outs(%[[BEFORE]] :
// CHECK:         linalg.generic {{.*}} ins(%[[TWICE]] : {{.*}}) outs(%[[Y]] :
// CHECK:         linalg.generic {{.*}} ins(%[[TWICE]], %[[TWICE]] : {{.*}}) outs(%[[Z]] :
// CHECK:         linalg.generic {{.*}} ins(%[[BEFORE]] : {{.*}}) outs(%[[Z]] :
// CHECK-NOT:     linalg.generic
func.func @kept(%x: !hbm, %y: !hbm {nki.shared = 0 : i64},
                %z: !hbm {nki.shared = 1 : i64}) {
  %twice = memref.alloc() : !tile
  %before = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !hbm) outs(%twice : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%y : !hbm) outs(%before : !tile) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%twice : !tile) outs(%y : !hbm) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%twice, %twice : !tile, !tile) outs(%z : !hbm) {
  ^bb0(%in: f32, %again: f32, %out: f32):
    %0 = arith.addf %in, %again : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%before : !tile) outs(%z : !hbm) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  return
}

// Inputs that do not overlap: what is stored of a tile is computed where it is stored.
// CHECK-LABEL: func.func @no_alias(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4x4xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<4x4xf32, "hbm">
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ID]]], {{.*}} ins(%[[X]] : {{.*}}) outs(%[[Y]] :
// CHECK-NOT:     linalg.generic
func.func @no_alias(%x: !square_hbm, %y: !square_hbm) {
  %t = memref.alloc() : !square
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !square_hbm) outs(%t : !square) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%t : !square) outs(%y : !square_hbm) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  return
}

// Where inputs may overlap, all of a tile is read before any of it is stored.
// CHECK-LABEL: func.func @may_alias(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4x4xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<4x4xf32, "hbm">
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<4x4xf32, "sbuf">
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[X]] : {{.*}}) outs(%[[T]] :
// CHECK:         linalg.generic {{.*}} ins(%[[T]] : {{.*}}) outs(%[[Y]] :
// CHECK-NOT:     linalg.generic
func.func @may_alias(%x: !square_hbm, %y: !square_hbm) attributes {nki.may_alias} {
  %t = memref.alloc() : !square
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !square_hbm) outs(%t : !square) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%t : !square) outs(%y : !square_hbm) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  return
}

// The same over several tiles: rows are not read after others were written, nor in another order.
// CHECK-LABEL: func.func @in_place(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4x4xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<4x4xf32, "hbm">
// CHECK-NEXT:    %[[FIRST:.*]] = memref.alloc() : memref<4x4xf32, "sbuf">
// CHECK-NEXT:    %[[SECOND:.*]] = memref.alloc() : memref<4x4xf32, "sbuf">
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[X]] : {{.*}}) outs(%[[FIRST]] :
// CHECK:         linalg.generic {indexing_maps = [#[[ID]]], {{.*}} outs(%[[Y]] :
// CHECK:         linalg.generic {{.*}} ins(%[[FIRST]] : {{.*}}) outs(%[[Y]] :
// CHECK:         linalg.generic {{.*}} ins(%[[X]] : {{.*}}) outs(%[[SECOND]] :
// CHECK:         linalg.generic {indexing_maps = [#[[TURNED]], #[[ID]]], {{.*}} ins(%[[SECOND]] : {{.*}}) outs(%[[Y]] :
// CHECK-NOT:     linalg.generic
func.func @in_place(%x: !square_hbm, %y: !square_hbm) attributes {nki.may_alias} {
  %first = memref.alloc() : !square
  %second = memref.alloc() : !square
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !square_hbm) outs(%first : !square) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  %c = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%y : !square_hbm) {
  ^bb0(%out: f32):
    linalg.yield %c : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%first : !square) outs(%y : !square_hbm) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !square_hbm) outs(%second : !square) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]}
    ins(%second : !square) outs(%y : !square_hbm) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  return
}

// A tile with two uses is computed where it is used as soon as both are one operation.
// CHECK-LABEL: func.func @two_uses(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<8x4xf32, "hbm">
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ID]]]
// CHECK-SAME:      ins(%[[X]] : {{.*}}) outs(%[[Y]] :
// CHECK-NEXT:    (%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[E:.*]] = math.exp %[[IN]] : f32
// CHECK-NEXT:      %[[R:.*]] = math.sqrt %[[E]] : f32
// CHECK-NEXT:      %[[P:.*]] = arith.mulf %[[E]], %[[R]] : f32
// CHECK-NEXT:      linalg.yield %[[P]] : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    return
func.func @two_uses(%x: !hbm, %y: !hbm {nki.shared = 0 : i64}) {
  %e = memref.alloc() : !tile
  %r = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !hbm) outs(%e : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%e : !tile) outs(%r : !tile) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.sqrt %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%e, %r : !tile, !tile) outs(%y : !hbm) {
  ^bb0(%in: f32, %root: f32, %out: f32):
    %0 = arith.mulf %in, %root : f32
    linalg.yield %0 : f32
  }
  return
}

// One loop folds all fields of the same records. A fold that needs the result of another stays separate, and so does one
// whose result is needed before.
// CHECK-LABEL: func.func @folds(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xf32, "hbm">, %[[R:[a-z0-9]+]]: memref<8xf32, "hbm">
// CHECK:         %[[EVEN:.*]] = memref.reinterpret_cast %[[X]] to offset: [0], sizes: [8, 2], strides: [4, 2]
// CHECK:         %[[ODD:.*]] = memref.reinterpret_cast %[[X]] to offset: [1], sizes: [8, 2], strides: [4, 2]
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[ID]], #[[ROW]], #[[ROW]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[EVEN]], %[[ODD]] : {{.*}}) outs(%[[A:.*]], %[[B:.*]] : memref<8xf32, "sbuf">, memref<8xf32, "sbuf">)
// CHECK-NEXT:    (%[[E:.*]]: f32, %[[O:.*]]: f32, %[[OLD_A:.*]]: f32, %[[OLD_B:.*]]: f32):
// CHECK-NEXT:      %[[SUM:.*]] = arith.addf %[[E]], %[[OLD_A]] : f32
// CHECK-NEXT:      %[[PRODUCT:.*]] = arith.mulf %[[O]], %[[OLD_B]] : f32
// CHECK-NEXT:      linalg.yield %[[SUM]], %[[PRODUCT]] : f32, f32
// CHECK-NEXT:    }
// CHECK:         linalg.generic {{.*}} ins(%[[EVEN]], %[[A]] : {{.*}}) outs(%[[C:.*]] : memref<8xf32, "sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%[[A]], %[[B]], %[[C]] : {{.*}}) outs(%[[R]] : memref<8xf32, "hbm">)
// CHECK-NOT:     linalg.generic
func.func @folds(%x: !hbm, %r: !sums {nki.shared = 0 : i64}) {
  %even = memref.reinterpret_cast %x to offset: [0], sizes: [8, 2], strides: [4, 2] : !hbm to !field
  %odd = memref.reinterpret_cast %x to offset: [1], sizes: [8, 2], strides: [4, 2] : !hbm to !other_field
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %a = memref.alloc() : !fold
  %b = memref.alloc() : !fold
  %c = memref.alloc() : !fold
  linalg.fill ins(%zero : f32) outs(%a : !fold)
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%even : !field) outs(%a : !fold) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  }
  linalg.fill ins(%one : f32) outs(%b : !fold)
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%odd : !other_field) outs(%b : !fold) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %out : f32
    linalg.yield %0 : f32
  }
  linalg.fill ins(%zero : f32) outs(%c : !fold)
  linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]}
    ins(%even, %a : !field, !fold) outs(%c : !fold) {
  ^bb0(%in: f32, %mean: f32, %out: f32):
    %0 = arith.subf %in, %mean : f32
    %1 = arith.addf %0, %out : f32
    linalg.yield %1 : f32
  }
  linalg.generic {indexing_maps = [#flat, #flat, #flat, #flat], iterator_types = ["parallel"]}
    ins(%a, %b, %c : !fold, !fold, !fold) outs(%r : !sums) {
  ^bb0(%p: f32, %q: f32, %s: f32, %out: f32):
    %0 = arith.addf %p, %q : f32
    %1 = arith.addf %0, %s : f32
    linalg.yield %1 : f32
  }
  return
}

// Products of matrices stay separate: alone, each is computed in register tiles.
// CHECK-LABEL: func.func @products(
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : {{.*}}) outs(%[[P:.*]] : memref<8x4xf32, "sbuf">)
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : {{.*}}) outs(%[[Q:.*]] : memref<8x4xf32, "sbuf">)
func.func @products(%x: memref<8x16xf32, "hbm">, %w: memref<16x4xf32, "hbm">, %v: memref<16x4xf32, "hbm">,
                    %y: !hbm {nki.shared = 0 : i64}, %z: !hbm {nki.shared = 1 : i64}) {
  %zero = arith.constant 0.0 : f32
  %p = memref.alloc() : !tile
  %q = memref.alloc() : !tile
  linalg.fill ins(%zero : f32) outs(%p : !tile)
  linalg.fill ins(%zero : f32) outs(%q : !tile)
  linalg.generic {indexing_maps = [#left, #right, #sums], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%x, %w : memref<8x16xf32, "hbm">, memref<16x4xf32, "hbm">) outs(%p : !tile) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  }
  linalg.generic {indexing_maps = [#left, #right, #sums], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%x, %v : memref<8x16xf32, "hbm">, memref<16x4xf32, "hbm">) outs(%q : !tile) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  }
  linalg.copy ins(%p : !tile) outs(%y : !hbm)
  linalg.copy ins(%q : !tile) outs(%z : !hbm)
  return
}

// A long function reads what was rounded once from registers, what was rounded more often from a tile. A root is short.
// CHECK-LABEL: func.func @roundings(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xbf16, "hbm">, %[[Y:[a-z0-9]+]]: memref<8x4xbf16, "hbm">
// CHECK-NEXT:    %[[ROOT:.*]] = memref.alloc() : memref<8x4xbf16, "sbuf">
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[X]] : {{.*}}) outs(%[[ROOT]] :
// CHECK:           fn = "exp"
// CHECK:           fn = "sigmoid"
// CHECK:           fn = "sqrt"
// CHECK:         linalg.generic {{.*}} ins(%[[ROOT]] : {{.*}}) outs(%[[Y]] :
// CHECK:           fn = "tanh"
// CHECK-NOT:     linalg.generic
// FUSED-LABEL: func.func @roundings(
// FUSED-SAME:    %[[X:[a-z0-9]+]]: memref<8x4xbf16, "hbm">, %[[Y:[a-z0-9]+]]: memref<8x4xbf16, "hbm">
// FUSED-NEXT:    linalg.generic {{.*}} ins(%[[X]] : {{.*}}) outs(%[[Y]] :
// FUSED:           fn = "tanh"
// FUSED-NOT:     linalg.generic
func.func @roundings(%x: !narrow_hbm, %y: !narrow_hbm {nki.shared = 0 : i64}) {
  %power = memref.alloc() : !narrow
  %share = memref.alloc() : !narrow
  %root = memref.alloc() : !narrow
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : !narrow_hbm) outs(%power : !narrow) {
  ^bb0(%in: bf16, %out: bf16):
    %0 = "scalar.convert"(%in) : (bf16) -> f32
    %1 = "scalar.activation"(%0) {fn = "exp"} : (f32) -> f32
    %2 = "scalar.convert"(%1) : (f32) -> bf16
    linalg.yield %2 : bf16
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%power : !narrow) outs(%share : !narrow) {
  ^bb0(%in: bf16, %out: bf16):
    %0 = "scalar.convert"(%in) : (bf16) -> f32
    %1 = "scalar.activation"(%0) {fn = "sigmoid"} : (f32) -> f32
    %2 = "scalar.convert"(%1) : (f32) -> bf16
    linalg.yield %2 : bf16
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%share : !narrow) outs(%root : !narrow) {
  ^bb0(%in: bf16, %out: bf16):
    %0 = "scalar.convert"(%in) : (bf16) -> f32
    %1 = "scalar.activation"(%0) {fn = "sqrt"} : (f32) -> f32
    %2 = "scalar.convert"(%1) : (f32) -> bf16
    linalg.yield %2 : bf16
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%root : !narrow) outs(%y : !narrow_hbm) {
  ^bb0(%in: bf16, %out: bf16):
    %0 = "scalar.convert"(%in) : (bf16) -> f32
    %1 = "scalar.activation"(%0) {fn = "tanh"} : (f32) -> f32
    %2 = "scalar.convert"(%1) : (f32) -> bf16
    linalg.yield %2 : bf16
  }
  return
}
