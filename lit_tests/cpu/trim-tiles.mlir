// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Nests compute only the elements of a tile that others read.
// RUN: nki-opt --trim-tiles %s | FileCheck %s
// RUN: nki-opt --trim-tiles="least=10000" %s | FileCheck %s --check-prefix=SMALL

#a = affine_map<(k, m, n) -> (k, m)>
#b = affine_map<(k, m, n) -> (k, n)>
#c = affine_map<(k, m, n) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#rows = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 64]]>
#eight = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 8]]>
#counts = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 2], [1, 8]]>
#all = affine_set<() : (0 == 0)>
!rows = memref<2x64xf32, "hbm">
!eight = memref<2x8xf32, "sbuf">
!left = memref<32x16xf32, "hbm">
!right = memref<32x200xf32, "hbm">
!out = memref<16x200xf32, "hbm">
!factor = memref<32x256xf32, "sbuf">
!part = memref<32x200xf32, strided<[256, 1]>, "sbuf">
!sums = memref<16x256xf32, "psum">
!stored = memref<16x200xf32, strided<[256, 1]>, "psum">

// 200 of 256 columns are stored: zeros of the sums, the product and the factor have as many. The zeros of the factor
// are gone, since the copy overwrites them.
// CHECK-LABEL: func.func @masked(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: {{.*}}"a"}, %[[B:[a-z0-9]+]]: {{.*}}"b"}, %[[Y:[a-z0-9]+]]:
// CHECK:         %[[SUMS:.*]] = memref.reinterpret_cast %{{.*}} to offset: [0], sizes: [16, 200], strides: [256, 1]
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[SUMS]] : {{.*}})
// CHECK-NOT:     linalg.fill
// CHECK:         linalg.copy ins(%[[B]] : {{.*}}) outs(%{{.*}} : memref<32x200xf32, strided<[256, 1]>, "sbuf">)
// CHECK:         linalg.generic {{.*}} outs(%[[SUMS]] : {{.*}})
// CHECK:         linalg.copy ins(%[[SUMS]] : {{.*}}) outs(%[[Y]] : {{.*}})
// SMALL-LABEL: func.func @masked(
// SMALL:         linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : memref<4096xf32, "sbuf">)
// SMALL:         linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : memref<8192xf32, "sbuf">)
func.func @masked(%x: !left {nki.name = "a"}, %w: !right {nki.name = "b"}, %y: !out {nki.name = "y", nki.shared = 0 : i64}) {
  %zero = arith.constant 0.0 : f32
  %sums = memref.alloc() : !sums
  linalg.fill ins(%zero : f32) outs(%sums : !sums)
  %factor = memref.alloc() : !factor
  linalg.fill ins(%zero : f32) outs(%factor : !factor)
  %part = memref.reinterpret_cast %factor to offset: [0], sizes: [32, 200], strides: [256, 1] : !factor to !part
  linalg.copy ins(%w : !right) outs(%part : !part)
  linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["reduction", "parallel", "parallel"]}
    ins(%x, %factor : !left, !factor) outs(%sums : !sums) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %0 = "scalar.alu"(%l, %r) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %1 = "scalar.alu"(%o, %0) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %1 : f32
  }
  %stored = memref.reinterpret_cast %sums to offset: [0], sizes: [16, 200], strides: [256, 1] : !sums to !stored
  linalg.copy ins(%stored : !stored) outs(%y : !out)
  return
}

// Another operation reads all of the tile.
// CHECK-LABEL: func.func @read_completely(
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : memref<4096xf32, "sbuf">)
func.func @read_completely(%x: memref<16x256xf32, "hbm"> {nki.name = "x"}, %y: !out {nki.name = "y", nki.shared = 0 : i64},
                           %z: memref<16x256xf32, "hbm"> {nki.name = "z", nki.shared = 1 : i64}) {
  %t = memref.alloc() : memref<16x256xf32, "sbuf">
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<16x256xf32, "hbm">) outs(%t : memref<16x256xf32, "sbuf">) {
  ^bb0(%v: f32, %o: f32):
    %0 = "scalar.activation"(%v) {fn = "abs"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  %part = memref.reinterpret_cast %t to offset: [0], sizes: [16, 200], strides: [256, 1] : memref<16x256xf32, "sbuf"> to memref<16x200xf32, strided<[256, 1]>, "sbuf">
  linalg.copy ins(%part : memref<16x200xf32, strided<[256, 1]>, "sbuf">) outs(%y : !out)
  linalg.copy ins(%t : memref<16x256xf32, "sbuf">) outs(%z : memref<16x256xf32, "hbm">)
  return
}

// Nothing reads what the second search finds.
// CHECK-LABEL: func.func @unread(
// CHECK:         "nisa.max8"(%[[BEST:.*]], %{{.*}}) {
// CHECK-NOT:     nisa.nc_find_index8
// CHECK:         linalg.copy ins(%{{.*}} : memref<16xf32, strided<[1]>, "sbuf">) outs(
func.func @unread(%x: !rows {nki.name = "x"}, %y: memref<2x8xf32, "hbm"> {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : memref<2x64xf32, "sbuf">
  %best = memref.alloc() : !eight
  %indices = memref.alloc() : memref<2x8xui32, "sbuf">
  linalg.copy ins(%x : !rows) outs(%t : memref<2x64xf32, "sbuf">)
  "nisa.max8"(%best, %t) {access = [#eight, #rows], mask = #all, engine = "vector"} : (!eight, memref<2x64xf32, "sbuf">) -> ()
  "nisa.nc_find_index8"(%indices, %t, %best) {access = [#counts, #rows, #eight], mask = #all, engine = "vector"}
    : (memref<2x8xui32, "sbuf">, memref<2x64xf32, "sbuf">, !eight) -> ()
  linalg.copy ins(%best : !eight) outs(%y : memref<2x8xf32, "hbm">)
  return
}
