// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt %s --split-input-file --verify-diagnostics

// Mistakes in single operations of the tile language. Each part has one.

// More partitions than there are.
#all = affine_set<() : (0 == 0)>
#chip_129x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 129], [1, 6]]>
func.func @copy(%dst: memref<129x6xf32, "sbuf">, %src: memref<129x6xf32, "sbuf">) {
  // expected-error@+1 {{number of partitions 129 exceed architecture limitation of 128. [err_num_partition_exceed_arch_limit]}}
  "nki.copy"(%dst, %src) {
    access = [#chip_129x6_f32, #chip_129x6_f32], mask = #all
  } : (memref<129x6xf32, "sbuf">, memref<129x6xf32, "sbuf">) -> ()
  return
}

// -----

// Past the end of the free axis.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{Out-of-bound access for tensor `src` on dimension 1 (free): index range [1, 6] exceed dimension size of 6}}
  "nki.copy"(%dst, %src) {
    access = [#chip_4x6_f32, #nki.access<f32, affine_map<() -> (0, 1)>, [[1, 4], [1, 6]]>], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// Past the last partition.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{Out-of-bound access for tensor `src` on dimension 0: index range [1, 4] exceed dimension size of 4}}
  "nki.copy"(%dst, %src) {
    access = [#chip_4x6_f32, #nki.access<f32, affine_map<() -> (1, 0)>, [[1, 4], [1, 6]]>], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// Past the end of a tensor in HBM.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @load(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "hbm">) {
  // expected-error@+1 {{Out-of-bound access for tensor `src` on dimension 0 (flat): index range [1, 24] exceed dimension size of 24}}
  "nki.load"(%dst, %src) {
    access = [#chip_4x6_f32, #nki.access<f32, affine_map<() -> (1)>, [[6, 4], [1, 6]]>], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "hbm">) -> ()
  return
}

// -----

// Past the end in the other dtype that the pattern reads.
#all = affine_set<() : (0 == 0)>
#chip_4x6_bf16 = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @copy(%dst: memref<4x6xbf16, "sbuf">, %src: memref<4x6xbf16, "sbuf">) {
  // expected-error@+1 {{Out-of-bound access for tensor `src` on dimension 1 (free): index range [0, 5] exceed dimension size of 3}}
  "nki.copy"(%dst, %src) {
    access = [#chip_4x6_bf16, #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>], mask = #all
  } : (memref<4x6xbf16, "sbuf">, memref<4x6xbf16, "sbuf">) -> ()
  return
}

// -----

// Every other partition.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<8x6xf32, "sbuf">) {
  // expected-error@+1 {{operand 'src' steps through partitions by 2 [NKI-PARTITION]}}
  "nki.copy"(%dst, %src) {
    access = [#chip_4x6_f32, #nki.access<f32, affine_map<() -> (0, 0)>, [[2, 4], [1, 6]]>], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<8x6xf32, "sbuf">) -> ()
  return
}

// -----

// A destination that is broadcast.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @copy(%dst: memref<4x1xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{the destination dst[4, 6] float32 in sbuf of 'copy' names the same element more than once}}
  "nki.copy"(%dst, %src) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [0, 6]]>, #chip_4x6_f32], mask = #all
  } : (memref<4x1xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// Loads are from HBM.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @load(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{Expected operand 'src' of 'load' to be in address space 'hbm', but got a tile in 'sbuf' instead.}}
  "nki.load"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// Stores are to HBM.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @store(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{Expected operand 'dst' of 'store' to be in address space 'hbm', but got a tile in 'sbuf' instead.}}
  "nki.store"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// Nothing computes in HBM.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#hbm_4x6_f32 = #nki.access<f32, affine_map<() -> (0)>, [[6, 4], [1, 6]]>
func.func @unary(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "hbm">) {
  // expected-error@+1 {{Expected operand 'src' of 'unary' to be in address space 'psum|sbuf', but got a tile in 'hbm' instead.}}
  "nki.unary"(%dst, %src) {
    access = [#chip_4x6_f32, #hbm_4x6_f32], fn = "exp", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "hbm">) -> ()
  return
}

// -----

// A memory that does not exist.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "cache">) {
  // expected-error@+1 {{whose memory space is not "hbm", "sbuf" or "psum"}}
  "nki.copy"(%dst, %src) {
    access = [#chip_4x6_f32, #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "cache">) -> ()
  return
}

// -----

// Bits of floats.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#chip_4x6_i32 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @binary(
    %dst: memref<4x6xf32, "sbuf">,
    %lhs: memref<4x6xf32, "sbuf">,
    %rhs: memref<4x6xi32, "sbuf">) {
  // expected-error@+1 {{operand 'lhs' of 'binary' has dtype float32, which must be an integer type [NKI-DTYPE]}}
  "nki.binary"(%dst, %lhs, %rhs) {
    access = [#chip_4x6_f32, #chip_4x6_f32, #chip_4x6_i32], op = "bitwise_and", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xi32, "sbuf">) -> ()
  return
}

// -----

// An element type that the language does not have.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'f64' is not an element type of the language}}
  "nki.copy"(%dst, %src) {
    access = [#chip_4x6_f32, #nki.access<f64, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// Operands of two shapes.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @unary(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'unary' needs operands of the same shape, got dst[4, 6] and src[4, 5] [NKI-SHAPE]}}
  "nki.unary"(%dst, %src) {
    access = [#chip_4x6_f32, #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 5]]>], fn = "exp", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// Operands of different partition counts.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @unary(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{number of partitions (dimension 0 size of a tile) mismatch in parameters (dst[4, 6], src[3, 6]) of 'unary'}}
  "nki.unary"(%dst, %src) {
    access = [#chip_4x6_f32, #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 3], [1, 6]]>], fn = "exp", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// A function that does not exist.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @unary(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{attribute 'fn' of 'unary' is 'sine', which must be one of}}
  "nki.unary"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], fn = "sine", mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// Reducing the partitions.
#all = affine_set<() : (0 == 0)>
#chip_1x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 1], [1, 6]]>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @reduce(%dst: memref<1x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'reduce': reduces free axes, not [0] of [4, 6]}}
  "nki.reduce"(%dst, %src) {
    access = [#chip_1x6_f32, #chip_4x6_f32], op = "add", axes = [0], mask = #all
  } : (memref<1x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// A product over more columns than a PSUM bank holds.
#all = affine_set<() : (0 == 0)>
#chip_2x1024_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 1024]]>
#chip_4x1024_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 1024]]>
#chip_4x2_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 2]]>
func.func @matmul(
    %dst: memref<2x1024xf32, "psum">,
    %stationary: memref<4x2xf32, "sbuf">,
    %moving: memref<4x1024xf32, "sbuf">) {
  // expected-error@+1 {{size of dimension 1 in 'moving[4, 1024]' of 'matmul' exceed architecture limitation of 512.}}
  "nki.matmul"(%dst, %stationary, %moving) {
    access = [#chip_2x1024_f32, #chip_4x2_f32, #chip_4x1024_f32], accumulate = false, mask = #all
  } : (memref<2x1024xf32, "psum">, memref<4x2xf32, "sbuf">, memref<4x1024xf32, "sbuf">) -> ()
  return
}

// -----

// A product of integers.
#all = affine_set<() : (0 == 0)>
#chip_2x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 6]]>
#chip_4x2_i32 = #nki.access<i32, affine_map<() -> (0, 0)>, [[1, 4], [1, 2]]>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @matmul(
    %dst: memref<2x6xf32, "psum">,
    %stationary: memref<4x2xi32, "sbuf">,
    %moving: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{operand 'stationary' of 'matmul' has dtype int32, which must be a float type}}
  "nki.matmul"(%dst, %stationary, %moving) {
    access = [#chip_2x6_f32, #chip_4x2_i32, #chip_4x6_f32], accumulate = false, mask = #all
  } : (memref<2x6xf32, "psum">, memref<4x2xi32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// No function is given.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @unary(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.unary' op attribute "fn" is expected but not provided}}
  "nki.unary"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// No mask is given.
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{attribute "mask" is expected but not provided}}
  "nki.copy"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], kept = 1
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// No patterns are given.
#all = affine_set<() : (0 == 0)>
func.func @copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{attribute "access" is expected but not provided}}
  "nki.copy"(%dst, %src) {
    mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// One pattern for two tiles.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.copy' op needs one access pattern per tile (2), has 1}}
  "nki.copy"(%dst, %src) {
    access = [#chip_4x6_f32], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// A mask over an axis that is not there.
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @copy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.copy' op attribute 'mask' uses an axis beyond the operation's 2}}
  "nki.copy"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = affine_set<(d0, d1, d2) : (-d2 + 5 >= 0)>
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// A symbol without a range.
#all = affine_set<() : (0 == 0)>
func.func @load(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "hbm">, %n: index) {
  // expected-error@+1 {{a symbol operand of 'nki.load' is neither a loop variable with constant bounds nor a program id nor a loaded number [NKI-SYMBOL]}}
  "nki.load"(%dst, %src, %n) {
    access = [#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 4], [1, 6]]>,
              #nki.access<f32, affine_map<()[s0] -> (s0)>, [[6, 4], [1, 6]]>],
    mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "hbm">, index) -> ()
  return
}

// -----

// An operation that does not exist.
#all = affine_set<() : (0 == 0)>
#chip_4x6_f32 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
func.func @cpoy(%dst: memref<4x6xf32, "sbuf">, %src: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{unregistered operation 'nki.cpoy' found in dialect ('nki') that does not allow unknown operations}}
  "nki.cpoy"(%dst, %src) {
    access = [#chip_4x6_f32, #chip_4x6_f32], mask = #all
  } : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  return
}

// -----

// A view without a pattern.
func.func @view(%x: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{attribute "access" is expected but not provided}}
  %v = "nki.view"(%x) {} : (memref<4x6xf32, "sbuf">) -> memref<4x6xf32, strided<[6, 1]>, "sbuf">
  return
}

// -----

// A pattern that is none.
func.func @view(%x: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.view' op starts affine_map<() -> (0, 0, 0)> are not (offset) or (partition, offset) of symbols}}
  %v = "nki.view"(%x) {access = #nki.access<f32, affine_map<() -> (0, 0, 0)>, [[1, 4], [1, 6]]>} : (memref<4x6xf32, "sbuf">) -> memref<4x6xf32, strided<[6, 1]>, "sbuf">
  return
}

// -----

// A pattern of HBM, on chip.
func.func @view(%x: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.view' op access of 'source' needs (partition, offset) starts in sbuf}}
  %v = "nki.view"(%x) {access = #nki.access<f32, affine_map<() -> (0)>, [[1, 4], [1, 6]]>} : (memref<4x6xf32, "sbuf">) -> memref<4x6xf32, strided<[6, 1]>, "sbuf">
  return
}

// -----

// A pattern from a symbol that is not there.
func.func @view(%x: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.view' op access of 'source' uses more symbols than the operation has (0)}}
  %v = "nki.view"(%x) {access = #nki.access<f32, affine_map<()[s0] -> (0, s0)>, [[1, 4], [1, 6]]>} : (memref<4x6xf32, "sbuf">) -> memref<4x6xf32, strided<[6, 1]>, "sbuf">
  return
}

// -----

// A column too many.
func.func @view(%x: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.view' op Out-of-bound access for tensor `source` on dimension 1 (free): index range [1, 6] exceed dimension size of 6}}
  %v = "nki.view"(%x) {access = #nki.access<f32, affine_map<() -> (0, 1)>, [[1, 4], [1, 6]]>} : (memref<4x6xf32, "sbuf">) -> memref<4x6xf32, strided<[6, 1], offset: 1>, "sbuf">
  return
}

// -----

// A partition too many.
func.func @view(%x: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.view' op Out-of-bound access for tensor `source` on dimension 0: index range [1, 4] exceed dimension size of 4}}
  %v = "nki.view"(%x) {access = #nki.access<f32, affine_map<() -> (1, 0)>, [[1, 4], [1, 6]]>} : (memref<4x6xf32, "sbuf">) -> memref<4x6xf32, strided<[6, 1], offset: 6>, "sbuf">
  return
}

// -----

// Another element type than the pattern has.
func.func @view(%x: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.view' op has type memref<4x6xbf16, strided<[6, 1]>, "sbuf">, its pattern gives memref<4x6xf32, strided<[6, 1]>, "sbuf">}}
  %v = "nki.view"(%x) {access = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>} : (memref<4x6xf32, "sbuf">) -> memref<4x6xbf16, strided<[6, 1]>, "sbuf">
  return
}

// -----

// Another start than the pattern has.
func.func @view(%x: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.view' op has type memref<4x2xf32, strided<[6, 1]>, "sbuf">, its pattern gives memref<4x2xf32, strided<[6, 1], offset: 3>, "sbuf">}}
  %v = "nki.view"(%x) {access = #nki.access<f32, affine_map<() -> (0, 3)>, [[1, 4], [1, 2]]>} : (memref<4x6xf32, "sbuf">) -> memref<4x2xf32, strided<[6, 1]>, "sbuf">
  return
}

// -----

// A dim of six elements cannot be left out.
func.func @view(%x: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.view' op leaves out a dim of several elements: dims [0] of [4, 6]}}
  %v = "nki.view"(%x) {access = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>, dims = array<i64: 0>} : (memref<4x6xf32, "sbuf">) -> memref<4xf32, strided<[6]>, "sbuf">
  return
}

// -----

// Dims in another order.
func.func @view(%x: memref<4x6xf32, "sbuf">) {
  // expected-error@+1 {{'nki.view' op dims [1, 0] must be dims of the pattern, 0 to 1, in ascending order}}
  %v = "nki.view"(%x) {access = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>, dims = array<i64: 1, 0>} : (memref<4x6xf32, "sbuf">) -> memref<4x6xf32, strided<[6, 1]>, "sbuf">
  return
}

// -----

// A view of a view.
func.func @view(%x: memref<4x6xf32, strided<[12, 1]>, "sbuf">) {
  // expected-error@+1 {{'nki.view' op operand 'source' has type memref<4x6xf32, strided<[12, 1]>, "sbuf">, which is not a complete buffer of static shape}}
  %v = "nki.view"(%x) {access = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>} : (memref<4x6xf32, strided<[12, 1]>, "sbuf">) -> memref<4x6xf32, strided<[6, 1]>, "sbuf">
  return
}
