// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --linalg-to-nisa --verify-target %s | FileCheck %s

#same = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#km = affine_map<(d0, d1, d2) -> (d0, d1)>
#kn = affine_map<(d0, d1, d2) -> (d0, d2)>
#mn = affine_map<(d0, d1, d2) -> (d1, d2)>

// CHECK: #[[ZERO:map[0-9]*]] = affine_map<() -> (0, 0)>

// The Tensor engine transposes from SBUF to PSUM; the copy back goes to the destination.
// CHECK-LABEL: func.func @transpose(
// CHECK-NEXT:    %[[X:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[Y:.*]] = memref.alloc() : memref<64x128xf32, "sbuf">
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() : memref<64x128xf32, "psum">
// CHECK-NEXT:    "nisa.nc_transpose"(%[[T]], %[[X]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 64], [1, 128]]>,
// CHECK-SAME:                #nki.access<f32, #[[ZERO]], {{\[\[}}1, 128], [1, 64]]>]
// CHECK-SAME:      engine = "tensor"
// CHECK-NEXT:    "nisa.tensor_copy"(%[[Y]], %[[T]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 64], [1, 128]]>,
// CHECK-SAME:                #nki.access<f32, #[[ZERO]], {{\[\[}}1, 64], [1, 128]]>]
// CHECK-SAME:      engine = "unknown"
// CHECK-NEXT:    return
func.func @transpose() {
  %x = memref.alloc() : memref<128x64xf32, "sbuf">
  %y = memref.alloc() : memref<64x128xf32, "sbuf">
  linalg.generic {indexing_maps = [#same, #turned], iterator_types = ["parallel", "parallel"]}
    ins(%x : memref<128x64xf32, "sbuf">) outs(%y : memref<64x128xf32, "sbuf">) {
  ^bb0(%p: f32, %r: f32):
    linalg.yield %p : f32
  }
  return
}

// A product with its start value overwrites, one without adds.
// CHECK-LABEL: func.func @products(
// CHECK-NEXT:    %[[A:.*]] = memref.alloc() : memref<128x64xbf16, "sbuf">
// CHECK-NEXT:    %[[B:.*]] = memref.alloc() : memref<128x512xbf16, "sbuf">
// CHECK-NEXT:    %[[Z:.*]] = memref.alloc() : memref<64x512xf32, "psum">
// CHECK-NEXT:    "nisa.nc_matmul"(%[[Z]], %[[A]], %[[B]])
// CHECK-SAME:      access = [#nki.access<f32, #[[ZERO]], {{\[\[}}1, 64], [1, 512]]>,
// CHECK-SAME:                #nki.access<bf16, #[[ZERO]], {{\[\[}}1, 128], [1, 64]]>,
// CHECK-SAME:                #nki.access<bf16, #[[ZERO]], {{\[\[}}1, 128], [1, 512]]>]
// CHECK-SAME:      accumulate = false, engine = "tensor"
// CHECK-NEXT:    "nisa.nc_matmul"(%[[Z]], %[[A]], %[[B]])
// CHECK-SAME:      accumulate = true, engine = "tensor"
// CHECK-NEXT:    return
func.func @products() {
  %x = memref.alloc() : memref<128x64xbf16, "sbuf">
  %y = memref.alloc() : memref<128x512xbf16, "sbuf">
  %z = memref.alloc() : memref<64x512xf32, "psum">
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%z : memref<64x512xf32, "psum">)
  linalg.generic {indexing_maps = [#km, #kn, #mn], iterator_types = ["reduction", "parallel", "parallel"]}
    ins(%x, %y : memref<128x64xbf16, "sbuf">, memref<128x512xbf16, "sbuf">) outs(%z : memref<64x512xf32, "psum">) {
  ^bb0(%p: bf16, %q: bf16, %r: f32):
    %a = "scalar.convert"(%p) : (bf16) -> f32
    %b = "scalar.convert"(%q) : (bf16) -> f32
    %s = "scalar.alu"(%a, %b) {fn = "multiply"} : (f32, f32) -> f32
    %t = "scalar.alu"(%r, %s) {fn = "add"} : (f32, f32) -> f32
    linalg.yield %t : f32
  }
  linalg.generic {indexing_maps = [#km, #kn, #mn], iterator_types = ["reduction", "parallel", "parallel"]}
    ins(%x, %y : memref<128x64xbf16, "sbuf">, memref<128x512xbf16, "sbuf">) outs(%z : memref<64x512xf32, "psum">) {
  ^bb0(%p: bf16, %q: bf16, %r: f32):
    %a = "scalar.convert"(%p) : (bf16) -> f32
    %b = "scalar.convert"(%q) : (bf16) -> f32
    %s = "scalar.alu"(%a, %b) {fn = "multiply"} : (f32, f32) -> f32
    %t = "scalar.alu"(%r, %s) {fn = "add"} : (f32, f32) -> f32
    linalg.yield %t : f32
  }
  return
}
