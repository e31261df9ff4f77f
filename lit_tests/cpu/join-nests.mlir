// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --join-nests %s | FileCheck %s
// RUN: nki-opt --join-nests="least=8192" %s | FileCheck %s --check-prefix=SMALL

#id = affine_map<(d0) -> (d0)>
!row = memref<4096xf32, "hbm">
!tile = memref<4096xf32, "sbuf">

// A sum is stored and read again: one walk has two results, and the tile between them has no memory.
// CHECK-LABEL: func.func @stored_and_read(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[Y:[a-z0-9]+]]: {{.*}}"y"}, %[[S:[a-z0-9]+]]: {{.*}}"s", {{.*}}}, %[[P:[a-z0-9]+]]: {{.*}}"p"
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[X]], %[[Y]] : {{.*}}) outs(%[[S]], %[[P]] : {{.*}}) {
// CHECK-NEXT:    ^bb0(%[[A:[a-z0-9_]+]]: f32, %[[B:[a-z0-9_]+]]: f32,
// CHECK-NEXT:      %[[SUM:.*]] = "scalar.alu"(%[[A]], %[[B]]) {fn = "add"}
// CHECK-NEXT:      %[[PRODUCT:.*]] = "scalar.alu"(%[[SUM]], %[[B]]) {fn = "multiply"}
// CHECK-NEXT:      linalg.yield %[[SUM]], %[[PRODUCT]]
// CHECK-NOT:     linalg
// CHECK:         return
// SMALL-LABEL: func.func @stored_and_read(
// SMALL:         linalg.generic {{.*}} outs(%[[TILE:.*]] : memref<4096xf32, "sbuf">)
// SMALL:         linalg.copy ins(%[[TILE]] : {{.*}}) outs(%{{.*}} : {{.*}})
// SMALL:         linalg.generic {{.*}} ins(%[[TILE]], %{{.*}} : {{.*}}) outs(%{{.*}} : {{.*}})
func.func @stored_and_read(%x: !row {nki.name = "x"}, %y: !row {nki.name = "y"}, %s: !row {nki.name = "s", nki.shared = 0 : i64},
                           %p: !row {nki.name = "p", nki.shared = 1 : i64}) {
  %t = memref.alloc() : !tile
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : !row, !row) outs(%t : !tile) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %0 = "scalar.alu"(%a, %b) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %0 : f32
  }
  linalg.copy ins(%t : !tile) outs(%s : !row)
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%t, %y : !tile, !row) outs(%p : !row) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %0 = "scalar.alu"(%a, %b) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %0 : f32
  }
  return
}

// The second nest reads other elements of the tile than the first one writes at the same time.
// CHECK-LABEL: func.func @shifted(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[S:[a-z0-9]+]]:
// CHECK-NEXT:    %[[TILE:.*]] = memref.alloc() : memref<8192xf32, "sbuf">
// CHECK-NEXT:    %[[LOW:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [0]
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[X]] : {{.*}}) outs(%[[LOW]] : {{.*}})
// CHECK:         %[[HIGH:.*]] = memref.reinterpret_cast %[[TILE]] to offset: [1]
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[HIGH]] : {{.*}}) outs(%[[S]] : {{.*}})
func.func @shifted(%x: !row {nki.name = "x"}, %s: !row {nki.name = "s", nki.shared = 0 : i64}) {
  %t = memref.alloc() : memref<8192xf32, "sbuf">
  %low = memref.reinterpret_cast %t to offset: [0], sizes: [4096], strides: [1] : memref<8192xf32, "sbuf"> to memref<4096xf32, strided<[1]>, "sbuf">
  %high = memref.reinterpret_cast %t to offset: [1], sizes: [4096], strides: [1] : memref<8192xf32, "sbuf"> to memref<4096xf32, strided<[1], offset: 1>, "sbuf">
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !row) outs(%low : memref<4096xf32, strided<[1]>, "sbuf">) {
  ^bb0(%a: f32, %old: f32):
    %0 = "scalar.activation"(%a) {fn = "abs"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%high : memref<4096xf32, strided<[1], offset: 1>, "sbuf">) outs(%s : !row) {
  ^bb0(%a: f32, %old: f32):
    %0 = "scalar.activation"(%a) {fn = "negative"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  return
}

// A fold in between runs before the joint nest: it touches nothing that the first nest writes.
// CHECK-LABEL: func.func @fold_between(
// CHECK:         linalg.generic {{.*}}["reduction"]
// CHECK:         linalg.generic {{.*}} outs(%{{.*}}, %{{.*}} : {{.*}})
// CHECK:         linalg.yield
// CHECK-NOT:     linalg
// CHECK:         return
func.func @fold_between(%x: !row {nki.name = "x"}, %s: !row {nki.name = "s", nki.shared = 0 : i64},
                        %p: !row {nki.name = "p", nki.shared = 1 : i64}, %m: memref<f32, "hbm"> {nki.name = "m"}) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !row) outs(%s : !row) {
  ^bb0(%a: f32, %old: f32):
    %0 = "scalar.activation"(%a) {fn = "abs"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%x : !row) outs(%m : memref<f32, "hbm">) {
  ^bb0(%a: f32, %old: f32):
    %0 = "scalar.alu"(%a, %old) {fn = "maximum", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%s : !row) outs(%p : !row) {
  ^bb0(%a: f32, %old: f32):
    %0 = "scalar.activation"(%a) {fn = "negative"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  return
}

// A product of a column and a row is added to zeros: the sum has no tile, and zeros are a constant of the walk.
// CHECK-LABEL: func.func @product_from_zero(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[Y:[a-z0-9]+]]: {{.*}}"y"}, %[[S:[a-z0-9]+]]:
// CHECK-NOT:     memref.alloc
// CHECK:         linalg.generic {{.*}} ins(%[[X]], %[[Y]] : {{.*}}) outs(%[[S]] : {{.*}}) {
// CHECK-NEXT:    ^bb0(%[[A:[a-z0-9_]+]]: f32, %[[B:[a-z0-9_]+]]: f32,
// CHECK-NEXT:      %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:      %[[PRODUCT:.*]] = "scalar.alu"(%[[A]], %[[B]]) {fn = "multiply"}
// CHECK-NEXT:      %[[SUM:.*]] = "scalar.alu"(%[[ZERO]], %[[PRODUCT]]) {fn = "add"}
// CHECK-NEXT:      linalg.yield %[[SUM]]
// CHECK-NOT:     linalg
// CHECK:         return
func.func @product_from_zero(%x: memref<8xf32, "hbm"> {nki.name = "x"}, %y: memref<512xf32, "hbm"> {nki.name = "y"},
                             %s: memref<8x512xf32, "hbm"> {nki.name = "s", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<8x512xf32, "psum">
  linalg.fill ins(%zero : f32) outs(%t : memref<8x512xf32, "psum">)
  linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>],
                  iterator_types = ["parallel", "parallel"]} ins(%x, %y : memref<8xf32, "hbm">, memref<512xf32, "hbm">) outs(%t : memref<8x512xf32, "psum">) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %0 = "scalar.alu"(%a, %b) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %1 = "scalar.alu"(%old, %0) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %1 : f32
  }
  linalg.copy ins(%t : memref<8x512xf32, "psum">) outs(%s : memref<8x512xf32, "hbm">)
  return
}
