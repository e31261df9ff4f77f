// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --linalg-to-nisa --verify-target %s | FileCheck %s

#same = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>

// CHECK-DAG: #[[ZERO:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-DAG: #[[HBM:map[0-9]*]] = affine_map<() -> (0)>
// CHECK-DAG: #[[AT:map[0-9]*]] = affine_map<()[s0] -> (s0 * 32, s0 * 16)>

// A transfer, an addition of two tiles with its conversion, a transfer back.
// CHECK-LABEL: func.func @add(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<128x64xf32, "hbm">, %[[B:[a-z0-9]+]]: memref<128x64xbf16, "hbm">
// CHECK-NEXT:    %[[X:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[Y:.*]] = memref.alloc() : memref<128x64xbf16, "sbuf">
// CHECK-NEXT:    "nisa.dma_copy"(%[[X]], %[[A]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 64]]>,
// CHECK-SAME:                #nki.access<f32, #[[HBM]], {{\[\[}}64, 128], [1, 64]]>]
// CHECK-SAME:      engine = "unknown"
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[Y]], %[[X]], %[[X]])
// CHECK-SAME:      access = [#nki.access<bf16, #[[ZERO]], {{\[\[}}1, 128], [1, 64]]>,
// CHECK-SAME:                #nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 64]]>,
// CHECK-SAME:                #nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 64]]>]
// CHECK-SAME:      engine = "unknown", {{.*}} op = "add"
// CHECK-NEXT:    "nisa.dma_copy"(%[[B]], %[[Y]])
// CHECK-SAME:      access = [#nki.access<bf16, #[[HBM]], {{\[\[}}64, 128], [1, 64]]>,
// CHECK-SAME:                #nki.access<bf16, #[[ZERO]], {{\[\[}}1, 128], [1, 64]]>]
// CHECK-SAME:      engine = "unknown"
// CHECK-NEXT:    return
func.func @add(%a: memref<128x64xf32, "hbm">, %b: memref<128x64xbf16, "hbm">) {
  %x = memref.alloc() : memref<128x64xf32, "sbuf">
  %y = memref.alloc() : memref<128x64xbf16, "sbuf">
  linalg.copy ins(%a : memref<128x64xf32, "hbm">) outs(%x : memref<128x64xf32, "sbuf">)
  linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
    ins(%x, %x : memref<128x64xf32, "sbuf">, memref<128x64xf32, "sbuf">) outs(%y : memref<128x64xbf16, "sbuf">) {
  ^bb0(%p: f32, %q: f32, %r: bf16):
    %s = "scalar.alu"(%p, %q) {fn = "add"} : (f32, f32) -> f32
    %t = "scalar.convert"(%s) : (f32) -> bf16
    linalg.yield %t : bf16
  }
  linalg.copy ins(%y : memref<128x64xbf16, "sbuf">) outs(%b : memref<128x64xbf16, "hbm">)
  return
}

// A view's offset is partition and free offset again: 32 rows of 64 and 16 elements, in each iteration.
// CHECK-LABEL: func.func @views(
// CHECK:         %[[X:.*]] = memref.alloc()
// CHECK-NEXT:    %[[Y:.*]] = memref.alloc()
// CHECK-NEXT:    scf.for %[[I:[a-z0-9]+]] =
// CHECK-NEXT:      "nisa.activation"(%[[Y]], %[[X]], %[[I]])
// CHECK-SAME:        access = [#nki.access<f32, #[[AT]], {{\[\[}}1, 32], [1, 16]]>,
// CHECK-SAME:                  #nki.access<f32, #[[AT]], {{\[\[}}1, 32], [1, 16]]>]
// CHECK-SAME:        engine = "scalar", fn = "exp", imm = 1.000000e+00 : f64
// CHECK-NEXT:    }
func.func @views() {
  %x = memref.alloc() : memref<128x64xf32, "sbuf">
  %y = memref.alloc() : memref<128x64xf32, "sbuf">
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %at = affine.apply affine_map<()[s0] -> (s0 * 2064)>()[%i]
    %u = memref.reinterpret_cast %x to offset: [%at], sizes: [32, 16], strides: [64, 1]
      : memref<128x64xf32, "sbuf"> to memref<32x16xf32, strided<[64, 1], offset: ?>, "sbuf">
    %v = memref.reinterpret_cast %y to offset: [%at], sizes: [32, 16], strides: [64, 1]
      : memref<128x64xf32, "sbuf"> to memref<32x16xf32, strided<[64, 1], offset: ?>, "sbuf">
    linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%u : memref<32x16xf32, strided<[64, 1], offset: ?>, "sbuf">)
      outs(%v : memref<32x16xf32, strided<[64, 1], offset: ?>, "sbuf">) {
    ^bb0(%p: f32, %r: f32):
      %e = "scalar.activation"(%p) {fn = "exp"} : (f32) -> f32
      linalg.yield %e : f32
    }
  }
  return
}

// A fold takes in its start value; what is done to its result stays its own instruction.
// CHECK-LABEL: func.func @mean(
// CHECK-NEXT:    %[[X:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[Y:.*]] = memref.alloc() : memref<128x1xf32, "sbuf">
// CHECK-NEXT:    %[[S:.*]] = memref.alloc() : memref<128x1xf32, "sbuf">
// CHECK-NEXT:    "nisa.tensor_reduce"(%[[S]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 64]]>]
// CHECK-SAME:      axes = [1], engine = "unknown", {{.*}} negate = false, op = "add"
// CHECK-NEXT:    "nisa.tensor_scalar"(%[[Y]], %[[S]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 1]]>,
// CHECK-SAME:                #nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 1]]>]
// CHECK-SAME:      imm0 = 1.562500e-02 : f64, {{.*}} op0 = "multiply", op1 = "bypass"
// CHECK-NEXT:    return
func.func @mean() {
  %x = memref.alloc() : memref<128x64xf32, "sbuf">
  %y = memref.alloc() : memref<128x1xf32, "sbuf">
  %s = memref.alloc() : memref<128x1xf32, "sbuf">
  %sum = memref.reinterpret_cast %s to offset: [0], sizes: [128], strides: [1]
    : memref<128x1xf32, "sbuf"> to memref<128xf32, strided<[1]>, "sbuf">
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%sum : memref<128xf32, strided<[1]>, "sbuf">)
  linalg.generic {indexing_maps = [#same, #rows], iterator_types = ["parallel", "reduction"]}
    ins(%x : memref<128x64xf32, "sbuf">) outs(%sum : memref<128xf32, strided<[1]>, "sbuf">) {
  ^bb0(%p: f32, %r: f32):
    %t = "scalar.alu"(%r, %p) {fn = "add"} : (f32, f32) -> f32
    linalg.yield %t : f32
  }
  linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
    ins(%s : memref<128x1xf32, "sbuf">) outs(%y : memref<128x1xf32, "sbuf">) {
  ^bb0(%p: f32, %r: f32):
    %c = arith.constant 0.015625 : f32
    %t = "scalar.alu"(%p, %c) {fn = "multiply"} : (f32, f32) -> f32
    linalg.yield %t : f32
  }
  return
}

// One partition cannot be read by all lanes: a transfer spreads it.
// CHECK-LABEL: func.func @spread(
// CHECK-NEXT:    %[[X:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[ROW:.*]] = memref.alloc() : memref<1x64xf32, "sbuf">
// CHECK-NEXT:    %[[Y:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[ALL:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    "nisa.dma_copy"(%[[ALL]], %[[ROW]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 64]]>,
// CHECK-SAME:                #nki.access<f32, #[[ZERO]], {{\[\[}}0, 128], [1, 64]]>]
// CHECK-NEXT:    "nisa.tensor_tensor"(%[[Y]], %[[X]], %[[ALL]])
// CHECK-SAME:      op = "multiply"
// CHECK-NEXT:    return
func.func @spread() {
  %x = memref.alloc() : memref<128x64xf32, "sbuf">
  %row = memref.alloc() : memref<1x64xf32, "sbuf">
  %y = memref.alloc() : memref<128x64xf32, "sbuf">
  %all = memref.reinterpret_cast %row to offset: [0], sizes: [128, 64], strides: [0, 1]
    : memref<1x64xf32, "sbuf"> to memref<128x64xf32, strided<[0, 1]>, "sbuf">
  linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
    ins(%x, %all : memref<128x64xf32, "sbuf">, memref<128x64xf32, strided<[0, 1]>, "sbuf">)
    outs(%y : memref<128x64xf32, "sbuf">) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %s = "scalar.alu"(%p, %q) {fn = "multiply"} : (f32, f32) -> f32
    linalg.yield %s : f32
  }
  return
}
