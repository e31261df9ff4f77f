// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A maximum of bfloat16 is folded on their bits: as integers with sign, and as those without for numbers below 0 and NaN.
// RUN: nki-opt --compare-words %s | FileCheck %s --check-prefix=%words-MARKS
// RUN: nki-opt --compare-words --lower-to-vector %s | FileCheck %s --check-prefix=%words
// RUN: nki-opt --zero-unwritten --lower-to-vector %s | FileCheck %s --check-prefix=WITHOUT

// WORDS-MARKS:      iterator_types = ["parallel", "reduction"]} {{.*}} attrs = {native.compares}
// Rows that do not fill whole registers are folded as float32, sums too.
// WORDS-MARKS-NOT:  native.compares
// SPREAD-MARKS-NOT: native.compares

// SPREAD-NOT:  arith.minui

// WORDS:       scf.for {{.*}} iter_args(%[[GREATEST:[a-z0-9]+]] = %{{.*}}) -> (
// WORDS:         arith.maxsi %{{.*}}, %[[WORDS:[0-9]+]] : vector<32xi16>
// WORDS-NEXT:    arith.minui %{{.*}}, %[[WORDS]] : vector<32xi16>
// WORDS-NEXT:    arith.maxui %{{.*}}, %[[WORDS]] : vector<32xi16>

// WITHOUT-NOT: arith.minui
// WITHOUT:     arith.cmpf {{.*}} : vector<{{[0-9]+}}xf32>
#rows = affine_map<(d0, d1) -> (d0, d1)>
#sums = affine_map<(d0, d1) -> (d0)>
func.func @greatest(%x: memref<4x512xbf16, "hbm"> {nki.name = "x"}, %z: memref<4x100xbf16, "hbm"> {nki.name = "z"},
                    %y: memref<4xf32, "hbm"> {nki.name = "y"}) {
  linalg.generic {indexing_maps = [#rows, #sums], iterator_types = ["parallel", "reduction"]}
    ins(%x : memref<4x512xbf16, "hbm">) outs(%y : memref<4xf32, "hbm">) {
  ^bb0(%in: bf16, %old: f32):
    %0 = "scalar.convert"(%in) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.alu"(%0, %old) {fn = "maximum", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %1 : f32
  }
  linalg.generic {indexing_maps = [#rows, #sums], iterator_types = ["parallel", "reduction"]}
    ins(%z : memref<4x100xbf16, "hbm">) outs(%y : memref<4xf32, "hbm">) {
  ^bb0(%in: bf16, %old: f32):
    %0 = "scalar.convert"(%in) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.alu"(%0, %old) {fn = "maximum", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %1 : f32
  }
  return
}
