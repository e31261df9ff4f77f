// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A function becomes a program: loops, branches, index arithmetic, buffers that share memory.
// RUN: nki-opt --lower-to-vector %s | FileCheck %s

!row = memref<64xf32, strided<[1], offset: ?>, "hbm">

// A linear offset is part of the instruction; `mod` is computed.
// CHECK:      // @loop(x, y)
// CHECK-NEXT: //   nki_set(&[[I:%[0-9]+]], 0)
// CHECK-NEXT: // [[BODY:L[0-9]+]]:
// CHECK-NEXT: //   nki_mod(&[[MOD:%[0-9]+]], [[I]], 2)
// CHECK-NEXT: //   copy_64_float32_{{.*}}(x + 256 * [[I]], y + 256 * [[MOD]])
// CHECK-NEXT: //   nki_next(&[[I]], 1, 4, [[BODY]])
func.func @loop(%x: memref<4x64xf32, "hbm"> {nki.name = "x"}, %y: memref<2x64xf32, "hbm"> {nki.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %from = affine.apply affine_map<()[s] -> (s * 64)>()[%i]
    %to = affine.apply affine_map<()[s] -> ((s mod 2) * 64)>()[%i]
    %a = memref.reinterpret_cast %x to offset: [%from], sizes: [64], strides: [1] : memref<4x64xf32, "hbm"> to !row
    %b = memref.reinterpret_cast %y to offset: [%to], sizes: [64], strides: [1] : memref<2x64xf32, "hbm"> to !row
    linalg.copy ins(%a : !row) outs(%b : !row)
  }
  return
}

// CHECK:      // @branch(x, y)
// CHECK-NEXT: //   nki_cmpi_sge(&[[C:%[0-9]+]], id0, 3)
// CHECK-NEXT: //   nki_unless([[C]], [[ELSE:L[0-9]+]])
// CHECK-NEXT: //   copy_{{.*}}(x, y)
// CHECK-NEXT: //   nki_unless(0, [[END:L[0-9]+]])
// CHECK-NEXT: // [[ELSE]]:
// CHECK-NEXT: //   set_{{.*}}(y)
// CHECK-NEXT: // [[END]]:
// CHECK-NEXT: //   end
func.func @branch(%x: memref<64xf32, "hbm"> {nki.name = "x"}, %y: memref<64xf32, "hbm"> {nki.name = "y"},
                  %i: index {nki.program_id = 0 : i64, nki.name = "i"}) attributes {nki.grid = [8]} {
  %c3 = arith.constant 3 : index
  %large = arith.cmpi sge, %i, %c3 : index
  scf.if %large {
    linalg.copy ins(%x : memref<64xf32, "hbm">) outs(%y : memref<64xf32, "hbm">)
  } else {
    %zero = arith.constant 0.0 : f32
    linalg.fill ins(%zero : f32) outs(%y : memref<64xf32, "hbm">)
  }
  return
}

// The first and the third buffer are never needed together.
// CHECK:      // @chain(x, y): 512 bytes of memory
// CHECK-NEXT: //   copy_{{.*}}(x, memory)
// CHECK-NEXT: //   copy_{{.*}}(memory, memory + 256)
// CHECK-NEXT: //   copy_{{.*}}(memory + 256, memory)
// CHECK-NEXT: //   copy_{{.*}}(memory, y)
func.func @chain(%x: memref<64xf32, "hbm"> {nki.name = "x"}, %y: memref<64xf32, "hbm"> {nki.name = "y"}) {
  %a = memref.alloc() : memref<64xf32, "sbuf">
  linalg.copy ins(%x : memref<64xf32, "hbm">) outs(%a : memref<64xf32, "sbuf">)
  %b = memref.alloc() : memref<64xf32, "sbuf">
  linalg.copy ins(%a : memref<64xf32, "sbuf">) outs(%b : memref<64xf32, "sbuf">)
  %c = memref.alloc() : memref<64xf32, "sbuf">
  linalg.copy ins(%b : memref<64xf32, "sbuf">) outs(%c : memref<64xf32, "sbuf">)
  linalg.copy ins(%c : memref<64xf32, "sbuf">) outs(%y : memref<64xf32, "hbm">)
  return
}
