// RUN: nki-opt --verify-target --split-input-file --verify-diagnostics %s

module attributes {nki.target = "trn2"} {
  func.func @start() {
    %x = memref.alloc() : memref<128x64xf32, "sbuf">
    %y = memref.alloc() : memref<128x64xf32, "sbuf">
    // expected-error @+1 {{operand 'src' of 'tensor_copy' begins at partition 5 and has 20 partitions}}
    "nisa.tensor_copy"(%y, %x) {
      access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 20], [1, 64]]>,
                #nki.access<f32, affine_map<() -> (5, 0)>, [[1, 20], [1, 64]]>],
      engine = "vector", mask = affine_set<() : (0 == 0)>}
      : (memref<128x64xf32, "sbuf">, memref<128x64xf32, "sbuf">) -> ()
    return
  }
}

// -----

module attributes {nki.target = "trn1"} {
  func.func @generation() {
    %x = memref.alloc() : memref<128x64xbf16, "sbuf">
    %y = memref.alloc() : memref<64x64xbf16, "psum">
    // expected-error @+1 {{a result of nc_matmul in bfloat16 needs generation 3 of the core, and trn1 is generation 2}}
    "nisa.nc_matmul"(%y, %x, %x) {
      access = [#nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>,
                #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
                #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>],
      accumulate = false, engine = "tensor", mask = affine_set<() : (0 == 0)>}
      : (memref<64x64xbf16, "psum">, memref<128x64xbf16, "sbuf">, memref<128x64xbf16, "sbuf">) -> ()
    return
  }
}
