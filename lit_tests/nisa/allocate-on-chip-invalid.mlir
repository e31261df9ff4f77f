// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --allocate-on-chip --split-input-file --verify-diagnostics %s

!a = memref<128x40000xf32, "sbuf">
!b = memref<128x20000xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#part = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>
func.func @full() {
  %a = memref.alloc() {nki.name = "a"} : !a
  %b = memref.alloc() {nki.name = "b"} : !b
  "nisa.memset"(%a) {access = [#part], engine = "vector", mask = #all, value = 1.0 : f64} : (!a) -> ()
  // expected-error @+1 {{SBUF is full: 2 tiles that are live at once take 240000 bytes per partition; trn2 has 212984}}
  "nisa.tensor_copy"(%b, %a) {access = [#part, #part], engine = "vector", mask = #all} : (!b, !a) -> ()
  return
}

// -----

!tile = memref<128x16xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>
func.func @conflict() {
  %a = memref.alloc() {nki.name = "a", nki.address = [0, 0]} : !tile
  // expected-error @+1 {{a and b have addresses that overlap in SBUF, and both are needed when b is first used}}
  %b = memref.alloc() {nki.name = "b", nki.address = [0, 32]} : !tile
  "nisa.memset"(%a) {access = [#tile], engine = "vector", mask = #all, value = 1.0 : f64} : (!tile) -> ()
  "nisa.tensor_copy"(%b, %a) {access = [#tile, #tile], engine = "vector", mask = #all} : (!tile, !tile) -> ()
  return
}
