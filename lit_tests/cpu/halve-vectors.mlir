// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Large nests of a few plain steps compute in registers of 32 bytes.
// RUN: nki-opt --halve-vectors="least=4096 gain=0" %s | FileCheck %s --check-prefix=%words-MARKS
// RUN: nki-opt --halve-vectors="least=4096 gain=0" --lower-to-vector %s | FileCheck %s --check-prefix=%words

#id = affine_map<(f) -> (f)>
!large = memref<2048xf32, "hbm">
!small = memref<64xf32, "hbm">

// WORDS-MARKS-LABEL:  func.func @large(
// WORDS-MARKS:          linalg.generic {{.*}} attrs = {native.halves} {
// WORDS-MARKS:          linalg.copy {native.halves} ins(
// SPREAD-MARKS-LABEL: func.func @large(
// SPREAD-MARKS-NOT:     native.halves

// LLVM divides the vectors.
// WORDS:       llvm.func internal @add_2048_float32_{{.*}} attributes {passthrough = ["stackrealign", ["prefer-vector-width", "256"], ["min-legal-vector-width", "256"]]} {
// WORDS:         arith.addf %{{.*}}, %{{.*}} : vector<16xf32>
// SPREAD:      llvm.func internal @add_2048_float32_{{.*}} attributes {passthrough = ["stackrealign"]} {
func.func @large(%x: !large {nki.name = "x"}, %y: !large {nki.name = "y"}, %z: !large {nki.name = "z"}) {
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : !large, !large) outs(%z : !large) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  }
  linalg.copy ins(%z : !large) outs(%y : !large)
  return
}

// Sums of a row, functions and small nests stay.
// WORDS-MARKS-LABEL:  func.func @others(
// WORDS-MARKS-NOT:      native.halves
// WORDS-MARKS:          return
func.func @others(%x: !large {nki.name = "x"}, %y: !large {nki.name = "y"}, %s: memref<1xf32, "hbm"> {nki.name = "s"},
                  %a: !small {nki.name = "a"}, %b: !small {nki.name = "b"}) {
  linalg.generic {indexing_maps = [#id, affine_map<(f) -> (0)>], iterator_types = ["reduction"]} ins(%x : !large) outs(%s : memref<1xf32, "hbm">) {
  ^bb0(%v: f32, %sum: f32):
    %0 = arith.addf %sum, %v : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !large) outs(%y : !large) {
  ^bb0(%v: f32, %old: f32):
    %0 = "scalar.activation"(%v) {fn = "exp"} : (f32) -> f32
    linalg.yield %0 : f32
  }
  linalg.copy ins(%a : !small) outs(%b : !small)
  return
}
