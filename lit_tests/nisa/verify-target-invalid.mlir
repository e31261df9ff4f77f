// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --verify-target --split-input-file --verify-diagnostics %s

!tile = memref<128x64xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#rows_0 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 20], [1, 64]]>
#rows_5 = #nki.access<f32, affine_map<() -> (5, 0)>, [[1, 20], [1, 64]]>
module attributes {nki.target = "trn2"} {
  func.func @start() {
    %x = memref.alloc() : !tile
    %y = memref.alloc() : !tile
    // expected-error @+1 {{operand 'src' of 'tensor_copy' begins at partition 5 and has 20 partitions}}
    "nisa.tensor_copy"(%y, %x) {access = [#rows_0, #rows_5], engine = "vector", mask = #all} : (!tile, !tile) -> ()
    return
  }
}

// -----

!x = memref<128x64xbf16, "sbuf">
!y = memref<64x64xbf16, "psum">
#all = affine_set<() : (0 == 0)>
#x = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#y = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>
module attributes {nki.target = "trn1"} {
  func.func @generation() {
    %x = memref.alloc() : !x
    %y = memref.alloc() : !y
    // expected-error @+1 {{a result of nc_matmul in bfloat16 needs generation 3 of the core, and trn1 is generation 2}}
    "nisa.nc_matmul"(%y, %x, %x) {access = [#y, #x, #x], accumulate = false, engine = "tensor", mask = #all}
      : (!y, !x, !x) -> ()
    return
  }
}
