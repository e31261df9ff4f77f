// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt %s --split-input-file --verify-diagnostics

// Mistakes in single engine instructions. Each part has one.

// More partitions than there are.
#all = affine_set<() : (0 == 0)>
#chip_129x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 129], [1, 6]]>
func.func @tensor_copy(%dst: memref<129x6xf32, "sbuf">, %src: memref<129x6xf32, "sbuf">) {
  // expected-error@+1 {{number of partitions 129 exceed architecture limitation of 128.}}
  "nisa.tensor_copy"(%dst, %src) {
    access = [#chip_129x6_f32, #chip_129x6_f32], engine = "vector", mask = #all
  } : (memref<129x6xf32, "sbuf">, memref<129x6xf32, "sbuf">) -> ()
  return
}

// -----

// An engine that cannot run it.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @reciprocal(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{attribute 'engine' of 'reciprocal' is 'tensor', which must be one of unknown, vector [NKI-ATTRIBUTE]}}
  "nisa.reciprocal"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], engine = "tensor", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// GpSimd does not reach PSUM.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @tensor_copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "psum">) {
  // expected-error@+1 {{Expected operand 'src' of 'tensor_copy' to be in address space 'sbuf', but got a tile in 'psum' instead.}}
  "nisa.tensor_copy"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], engine = "gpsimd", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "psum">) -> ()
  return
}

// -----

// Both sources in PSUM.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @tensor_tensor(
    %dst: memref<4x6xf32, "sbuf">,
    %lhs: memref<4x6xf32, "psum">,
    %rhs: memref<4x6xf32, "psum">) {
  // expected-error@+1 {{'tensor_tensor': at most one of lhs and rhs may be in PSUM}}
  "nisa.tensor_tensor"(%dst, %lhs, %rhs) {
    access = [#chip_4x6_f32, #chip_4x6_f32, #chip_4x6_f32], engine = "vector", op = "add", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "psum">, memref<4x6xf32, "psum">) -> ()
  return
}

// -----

// One bit operation and one arithmetic one.
#all = affine_set<() : (0 == 0)>
#chip_4x6_i32 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @tensor_scalar(%dst: memref<4x6xi32, "sbuf">, %src: memref<4x6xi32, "sbuf">) {
  // expected-error@+1 {{'tensor_scalar': op0 and op1 must both be bit operations or both arithmetic}}
  "nisa.tensor_scalar"(%dst, %src) {
    access = [#chip_4x6_i32, #chip_4x6_i32],
    engine = "vector", op0 = "bitwise_and", imm0 = 3.0 : f64, reverse0 = false, op1 = "add", imm1 = 1.0 : f64,
    reverse1 = false, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, mask = #all
  } : (memref<4x6xi32, "sbuf">, memref<4x6xi32, "sbuf">) -> ()
  return
}

// -----

// Segment sizes that count another operand.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @activation(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nisa.activation' op operandSegmentSizes [1, 1, 1, 0, 0] do not divide 2 operands into dst, src, bias (0 or 1), scale (0 or 1) and symbols}}
  "nisa.activation"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32],
    engine = "scalar", fn = "exp", imm = 1.0 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>,
    mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// No segment sizes.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @activation(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{needs an attribute operandSegmentSizes = array<i32: ...>}}
  "nisa.activation"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], engine = "scalar", fn = "exp", imm = 1.0 : f64, mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// The product goes to PSUM.
#all = affine_set<() : (0 == 0)>
#chip_2x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 6]]>
#chip_4x2_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 2]]>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @nc_matmul(
    %dst: memref<2x6xf32, "sbuf">,
    %stationary: memref<4x2xf32, "sbuf">,
    %moving: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{Expected operand 'dst' of 'nc_matmul' to be in address space 'psum', but got a tile in 'sbuf' instead.}}
  "nisa.nc_matmul"(%dst, %stationary, %moving) {
    access = [#chip_2x6_f32, #chip_4x2_f32, #chip_4x6_f32], engine = "tensor", accumulate = false, mask = #all
  } : (memref<2x6xf32, "sbuf">, memref<4x2xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// The contracted axes differ.
#all = affine_set<() : (0 == 0)>
#chip_2x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 6]]>
#chip_3x2_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 3], [1, 2]]>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @nc_matmul(
    %dst: memref<2x6xf32, "psum">,
    %stationary: memref<3x2xf32, "sbuf">,
    %moving: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nc_matmul': contracts axis 0 of both operands, got [3, 2] and [4, 6]}}
  "nisa.nc_matmul"(%dst, %stationary, %moving) {
    access = [#chip_2x6_f32, #chip_3x2_f32, #chip_4x6_f32], engine = "tensor", accumulate = false, mask = #all
  } : (memref<2x6xf32, "psum">, memref<3x2xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// A result beyond one PSUM bank.
#all = affine_set<() : (0 == 0)>
#chip_2x600_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 600]]>
#chip_4x2_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 2]]>
#chip_4x600_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 600]]>
func.func @nc_matmul(
    %dst: memref<2x600xf32, "psum">,
    %stationary: memref<4x2xf32, "sbuf">,
    %moving: memref<4x600xf32, "sbuf">) {
  // expected-error@+1 {{size of dimension 1 in 'moving[4, 600]' of 'nc_matmul' exceed architecture limitation of 512.}}
  "nisa.nc_matmul"(%dst, %stationary, %moving) {
    access = [#chip_2x600_f32, #chip_4x2_f32, #chip_4x600_f32], engine = "tensor", accumulate = false, mask = #all
  } : (memref<2x600xf32, "psum">, memref<4x2xf32, "sbuf">, memref<4x600xf32, "sbuf">) -> ()
  return
}

// -----

// A result of 64-bit elements beyond one PSUM bank.
#all = affine_set<() : (0 == 0)>
#chip_4x2_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 2]]>
#chip_4x512_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 512]]>
func.func @nc_matmul(
    %dst: memref<2x512xi64, "psum">,
    %stationary: memref<4x2xf32, "sbuf">,
    %moving: memref<4x512xf32, "sbuf">) {
  // expected-error@+1 {{a matmul result of 4096 bytes per partition does not fit one PSUM bank of 2048 bytes [NKI-PSUM-BANK]}}
  "nisa.nc_matmul"(%dst, %stationary, %moving) {
    access = [#nki.access<i64, affine_map<() -> (0, 0)>, [[1, 2], [1, 512]]>, #chip_4x2_f32, #chip_4x512_f32],
    engine = "tensor", accumulate = false, mask = #all
  } : (memref<2x512xi64, "psum">, memref<4x2xf32, "sbuf">, memref<4x512xf32, "sbuf">) -> ()
  return
}

// -----

// The vector engine transposes squares of 32.
#all = affine_set<() : (0 == 0)>
#chip_40x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 40], [1, 6]]>
#chip_6x40_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 6], [1, 40]]>
func.func @nc_transpose(%dst: memref<6x40xf32, "sbuf">, %src: memref<40x6xf32, "sbuf">) {
  // expected-error@+1 {{size of dimension 0 in 'src[40, 6]' of 'nc_transpose' exceed architecture limitation of 32.}}
  "nisa.nc_transpose"(%dst, %src) {
    access = [#chip_6x40_f32, #chip_40x6_f32], engine = "vector", mask = #all
  } : (memref<6x40xf32, "sbuf">, memref<40x6xf32, "sbuf">) -> ()
  return
}

// -----

// DMA does not reach PSUM.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#hbm_4x6_f32 = #nki.access<f32, affine_map<() -> (0)>, [[6, 4], [1, 6]]>
func.func @dma_copy(%dst: memref<4x6xf32, "psum">, %src: memref<4x6xf32, "hbm">) {
  // expected-error@+1 {{Expected operand 'dst' of 'dma_copy' to be in address space 'hbm|sbuf', but got a tile in 'psum' instead.}}
  "nisa.dma_copy"(%dst, %src) {
    access = [#chip_4x6_f32, #hbm_4x6_f32], engine = "sync", mask = #all
  } : (memref<4x6xf32, "psum">, memref<4x6xf32, "hbm">) -> ()
  return
}

// -----

// Indices are integers.
#all = affine_set<() : (0 == 0)>
#chip_4x1_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 1]]>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#hbm_8x6_f32 = #nki.access<f32, affine_map<() -> (0)>, [[6, 8], [1, 6]]>
func.func @dma_gather(
    %dst: memref<4x6xf32, "sbuf">,
    %src: memref<8x6xf32, "hbm">,
    %index: memref<4x1xf32, "sbuf">) {
  // expected-error@+1 {{operand 'index' of 'dma_gather' has dtype float32, which must be int32 or uint32}}
  "nisa.dma_gather"(%dst, %src, %index) {
    access = [#chip_4x6_f32, #hbm_8x6_f32, #chip_4x1_f32], engine = "gpsimd", mode = "error", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<8x6xf32, "hbm">, memref<4x1xf32, "sbuf">) -> ()
  return
}

// -----

// Twelve entries in place of 32.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @nc_stream_shuffle(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nc_stream_shuffle': takes 32 entries of 0..31 or 255, got 12 such entries of 12}}
  "nisa.nc_stream_shuffle"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32],
    engine = "vector", shuffle = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// A bias of more than one value a partition has the shape of the source.
#all = affine_set<() : (0 == 0)>
#chip_4x1_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 1]]>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @activation(
    %dst: memref<4x6xf32, "sbuf">,
    %src: memref<4x6xf32, "sbuf">,
    %bias: memref<4x1xf32, "sbuf">) {
  // expected-error@+1 {{'activation' needs operands of the same shape, got dst[4, 6] and bias[4, 1]}}
  "nisa.activation"(%dst, %src, %bias) {
    access = [#chip_4x6_f32, #chip_4x6_f32, #chip_4x1_f32],
    engine = "scalar", fn = "exp", imm = 1.0 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>,
    mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x1xf32, "sbuf">) -> ()
  return
}

// -----

// No engine is given.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @tensor_copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{attribute "engine" is expected but not provided}}
  "nisa.tensor_copy"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// An immediate that is not a float.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @memset(%dst: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nisa.memset' op attribute 'value' is 1 : i64, which must be a float}}
  "nisa.memset"(%dst) {
    access = [#chip_4x6_f32], engine = "vector", value = 1 : i64, mask = #all
  } : (memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// An instruction that does not exist.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @tensor_cpoy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{unregistered operation 'nisa.tensor_cpoy' found in dialect ('nisa') that does not allow unknown operations}}
  "nisa.tensor_cpoy"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], engine = "vector", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// Groups in which a member is twice.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @all_reduce(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'all_reduce': groups must be lists of different ranks as JSON, got [[0, 1], [1]]}}
  "nisa.all_reduce"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32],
    engine = "unknown", groups = "[[0, 1], [1]]", op = "add", over = "ranks", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}
