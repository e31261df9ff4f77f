// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs of a grid on neighboring parts of the same rows run as one program on whole rows.
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --merge-programs %s | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --merge-programs="items=3" %s | FileCheck %s --check-prefix=FEW

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
#start = affine_map<()[s0, s1] -> (s0 * 8192 + s1 * 512)>
#along = affine_map<()[s0] -> (s0 * 512)>
!matrix = memref<32x1024xf32, "hbm">
!row = memref<1024xf32, "hbm">
!tile = memref<8x512xf32, strided<[1024, 1], offset: ?>, "hbm">
!piece = memref<512xf32, strided<[1], offset: ?>, "hbm">

// Two programs of 512 columns each; those of a grid [4] remain, which are two for a thread.
// CHECK:       #[[ROWS:map[0-9]*]] = affine_map<()[s0] -> (s0 * 8192)>
// CHECK-LABEL: func.func @scaled(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}"x"}, %[[G:[a-z0-9]+]]: {{.*}}"g"}, %[[Y:[a-z0-9]+]]: {{.*}}, %[[I:[a-z0-9]+]]: index {nki.name = "i"
// CHECK-SAME:    native.notes = ["merge-programs: 2 programs along axis 1 of the grid run as one"], nki.grid = [4, 1]
// CHECK-NEXT:    %[[AT:.*]] = affine.apply #[[ROWS]]()[%[[I]]]
// CHECK-NEXT:    %[[A:.*]] = memref.reinterpret_cast %[[X]] to offset: [%[[AT]]], sizes: [8, 1024], strides: [1024, 1]
// CHECK-NEXT:    %[[C:.*]] = memref.reinterpret_cast %[[Y]] to offset: [%[[AT]]], sizes: [8, 1024], strides: [1024, 1]
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[A]], %[[G]] : {{.*}}) outs(%[[C]] : {{.*}})
// FEW-LABEL:   func.func @scaled(
// FEW-SAME:      nki.grid = [4, 2]
// FEW:           memref.reinterpret_cast %{{.*}} to offset: [%{{.*}}], sizes: [8, 512], strides: [1024, 1]
func.func @scaled(%x: !matrix {nki.name = "x"}, %g: !row {nki.name = "g"},
                  %y: !matrix {nki.name = "y", nki.shared = 0 : i64},
                  %i: index {nki.program_id = 0 : i64, nki.name = "i"},
                  %j: index {nki.program_id = 1 : i64, nki.name = "j"}) attributes {nki.grid = [4, 2]} {
  %at = affine.apply #start()[%i, %j]
  %column = affine.apply #along()[%j]
  %a = memref.reinterpret_cast %x to offset: [%at], sizes: [8, 512], strides: [1024, 1] : !matrix to !tile
  %b = memref.reinterpret_cast %g to offset: [%column], sizes: [512], strides: [1] : !row to !piece
  %c = memref.reinterpret_cast %y to offset: [%at], sizes: [8, 512], strides: [1024, 1] : !matrix to !tile
  linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%a, %b : !tile, !piece) outs(%c : !tile) {
  ^bb0(%in: f32, %factor: f32, %out: f32):
    %0 = "scalar.alu"(%in, %factor) {dtype = "float32", fn = "multiply"} : (f32, f32) -> f32
    linalg.yield %0 : f32
  }
  return
}

// All programs along the axis read the same tile: its columns are not those of a longer row.
// CHECK-LABEL: func.func @repeated(
// CHECK-SAME:    nki.grid = [4, 2]
// CHECK:         %[[FROM:.*]] = memref.reinterpret_cast %{{.*}} to offset: [%{{.*}}], sizes: [8, 512], strides: [1024, 1]
// CHECK:         %[[TO:.*]] = memref.reinterpret_cast %{{.*}} to offset: [%{{.*}}], sizes: [8, 512], strides: [1024, 1]
// CHECK-NEXT:    linalg.copy ins(%[[FROM]] : {{.*}}) outs(%[[TO]] : {{.*}})
func.func @repeated(%x: !matrix {nki.name = "x"}, %y: !matrix {nki.name = "y", nki.shared = 0 : i64},
                    %i: index {nki.program_id = 0 : i64, nki.name = "i"},
                    %j: index {nki.program_id = 1 : i64, nki.name = "j"}) attributes {nki.grid = [4, 2]} {
  %none = arith.constant 0 : index
  %from = affine.apply #start()[%i, %none]
  %to = affine.apply #start()[%i, %j]
  %a = memref.reinterpret_cast %x to offset: [%from], sizes: [8, 512], strides: [1024, 1] : !matrix to !tile
  %b = memref.reinterpret_cast %y to offset: [%to], sizes: [8, 512], strides: [1024, 1] : !matrix to !tile
  linalg.copy ins(%a : !tile) outs(%b : !tile)
  return
}
