// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --allocate-on-chip --split-input-file --verify-diagnostics %s

func.func @full() {
  %a = memref.alloc() {nki.name = "a"} : memref<128x40000xf32, "sbuf">
  %b = memref.alloc() {nki.name = "b"} : memref<128x20000xf32, "sbuf">
  "nisa.memset"(%a) {engine = "vector", mask = affine_set<() : (0 == 0)>, value = 1.0 : f64,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>]} : (memref<128x40000xf32, "sbuf">) -> ()
  // expected-error @+1 {{SBUF is full: 2 tiles that are needed at once take 240000 bytes per partition, trn2 has 212984}}
  "nisa.tensor_copy"(%b, %a) {engine = "vector", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>]}
    : (memref<128x20000xf32, "sbuf">, memref<128x40000xf32, "sbuf">) -> ()
  return
}

// -----

func.func @conflict() {
  %a = memref.alloc() {nki.name = "a", nki.address = [0, 0]} : memref<128x16xf32, "sbuf">
  // expected-error @+1 {{a and b have addresses that overlap in SBUF, and both are needed when b is first used}}
  %b = memref.alloc() {nki.name = "b", nki.address = [0, 32]} : memref<128x16xf32, "sbuf">
  "nisa.memset"(%a) {engine = "vector", mask = affine_set<() : (0 == 0)>, value = 1.0 : f64,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>]} : (memref<128x16xf32, "sbuf">) -> ()
  "nisa.tensor_copy"(%b, %a) {engine = "vector", mask = affine_set<() : (0 == 0)>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>]}
    : (memref<128x16xf32, "sbuf">, memref<128x16xf32, "sbuf">) -> ()
  return
}
