// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// 32 bfloat16 are loaded as 16 words: the halves of each are elements with even and with odd numbers.
// RUN: nki-opt --load-words %s | FileCheck %s --check-prefix=%words-MARKS
// RUN: nki-opt --load-words --lower-to-vector %s | FileCheck %s --check-prefix=%words
// RUN: nki-opt --load-words --lower-to-vector %s | FileCheck %s --check-prefix=%words-%pairs
// RUN: nki-opt --load-words="least=513" %s | FileCheck %s --check-prefix=%words-FEW
// RUN: nki-opt --zero-unwritten --lower-to-vector %s | FileCheck %s --check-prefix=SPREAD

// WORDS-MARKS:     iterator_types = ["parallel", "parallel"]} {{.*}} attrs = {native.words}
// WORDS-MARKS:     iterator_types = ["parallel", "reduction"]} {{.*}} attrs = {native.words}
// SPREAD-MARKS-NOT: native.words

// WORDS:       // @scaled(x, g, y, s)
// WORDS-NEXT:  //   multiply_4x512_bfloat16_words_{{.*}}(x, g, y)
// WORDS-NEXT:  //   add_4x512_float32_bfloat16_words_{{.*}}(x, s)
// WORDS:       llvm.func internal @multiply_
// WORDS:         %[[WORD:[0-9]+]] = llvm.load %{{[0-9]+}} {alignment = 2 : i64} : !llvm.ptr -> vector<16xi32>
// WORDS:         %[[UPPER:[0-9]+]] = arith.shrui %[[WORD]], %{{.*}} : vector<16xi32>
// WORDS-NEXT:    %[[EVEN:[0-9]+]] = arith.trunci %[[WORD]] : vector<16xi32> to vector<16xi16>
// WORDS-NEXT:    %[[ODD:[0-9]+]] = arith.trunci %[[UPPER]] : vector<16xi32> to vector<16xi16>
// WORDS-NEXT:    vector.shuffle %[[EVEN]], %[[ODD]] [0, 1, 2, 3
// Two permutations put those partial sums in order that a sum of float32 has.
// WORDS:       llvm.func internal @add_
// WORDS:         llvm.load %{{[0-9]+}} {alignment = 2 : i64} : !llvm.ptr -> vector<16xi32>
// WORDS:         vector.shuffle %[[EVENS:[0-9]+]], %[[ODDS:[0-9]+]] [0, 16, 1, 17, 2, 18, 3, 19
// WORDS-NEXT:    vector.shuffle %[[EVENS]], %[[ODDS]] [8, 24, 9, 25, 10, 26, 11, 27

// One permutation puts results in order. Where they are upper halves of words, a shift and one logical instruction join
// them to words.
// WORDS-PAIRS:   %[[STORED:[0-9]+]] = vector.shuffle %[[RESULT:[0-9]+]], %[[RESULT]] [0, 16, 1, 17
// WORDS-PAIRS:   llvm.store %[[STORED]]
// WORDS-APART:   %[[EVENS:[0-9]+]] = vector.shuffle %[[RESULT:[0-9]+]], %[[RESULT]] [0, 1, 2, 3, {{.*}}] : vector<32xi32>
// WORDS-APART:   %[[ODDS:[0-9]+]] = vector.shuffle %[[RESULT]], %[[RESULT]] [16, 17, 18, 19, {{.*}}] : vector<32xi32>
// WORDS-APART:   %[[LOWER:[0-9]+]] = arith.shrui %[[EVENS]], %{{.*}} : vector<16xi32>
// WORDS-APART:   %[[JOINED:[0-9]+]] = llvm.call_intrinsic "llvm.x86.avx512.pternlog.d.512"(%[[LOWER]], %[[ODDS]], %{{.*}}
// WORDS-APART:   llvm.store %[[JOINED]], %{{[0-9]+}} {alignment = 2 : i64} : vector<16xi32>
// SPREAD-APART-NOT: vector<16xi32>

// Rows with fewer elements than the option says are added as they are.
// WORDS-FEW:       iterator_types = ["parallel", "parallel"]} {{.*}} attrs = {native.words}
// WORDS-FEW-NOT:   native.words
// SPREAD-FEW-NOT:  native.words

// Without the pass, loads have the elements in order.
// SPREAD:      //   multiply_4x512_bfloat16_{{[0-9a-f]+}}(x, g, y)
// SPREAD-NEXT: //   add_4x512_float32_bfloat16_{{[0-9a-f]+}}(x, s)
// SPREAD:      llvm.load %{{[0-9]+}} {alignment = 2 : i64} : !llvm.ptr -> vector<{{[0-9]+}}xi16>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
#sums = affine_map<(d0, d1) -> (d0)>
!rows = memref<4x512xbf16, "hbm">
!weights = memref<512xbf16, "hbm">
!sums = memref<4xf32, "hbm">
func.func @scaled(%x: !rows {nki.name = "x"}, %g: !weights {nki.name = "g"},
                  %y: !rows {nki.name = "y", nki.shared = 0 : i64}, %s: !sums {nki.name = "s", nki.shared = 1 : i64}) {
  linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x, %g : !rows, !weights) outs(%y : !rows) {
  ^bb0(%in: bf16, %weight: bf16, %out: bf16):
    %0 = "scalar.convert"(%in) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.convert"(%weight) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %2 = "scalar.alu"(%0, %1) {fn = "multiply", dtype = "float32"} : (f32, f32) -> f32
    %3 = "scalar.convert"(%2) {frm = "float32", to = "bfloat16"} : (f32) -> bf16
    linalg.yield %3 : bf16
  }
  linalg.generic {indexing_maps = [#id, #sums], iterator_types = ["parallel", "reduction"]}
    ins(%x : !rows) outs(%s : !sums) {
  ^bb0(%in: bf16, %old: f32):
    %0 = "scalar.convert"(%in) {frm = "bfloat16", to = "float32"} : (bf16) -> f32
    %1 = "scalar.alu"(%old, %0) {fn = "add", dtype = "float32"} : (f32, f32) -> f32
    linalg.yield %1 : f32
  }
  return
}
