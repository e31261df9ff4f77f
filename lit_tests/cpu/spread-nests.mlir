// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads share a large computation, and one beside it that is too short to wake a thread: the routine of a part, how
// many parts there are, and steps from part to part.
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --lower-to-vector --cpu-passes=spread-nests %s | FileCheck %s
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --lower-to-vector --cpu-passes=spread-nests{least=10000} %s | FileCheck %s --check-prefix=FEW
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --lower-to-vector --cpu-passes=spread-nests{together=1000} %s | FileCheck %s --check-prefix=MANY
// RUN: env NKI_MLIR_NUM_THREADS=1 nki-opt --lower-to-vector --cpu-passes=spread-nests %s | FileCheck %s --check-prefix=ONE
// RUN: env NKI_MLIR_NUM_THREADS=2 nki-opt --spread-nests %s | FileCheck %s --check-prefix=ALONE

!matrix = memref<2048x512xf32, "hbm">
!rows = memref<128x512xf32, "hbm">
!row = memref<512xf32, "hbm">

// CHECK-LABEL: // @beside(
// CHECK-NEXT:  //   nki_spread(copy_524288_float32_{{[0-9a-f]+}}, 2, 2, x, 2097152, y, 2097152)
// CHECK-NEXT:  //   nki_spread(copy_32768_float32_{{[0-9a-f]+}}, 2, 2, a, 131072, b, 131072)
// CHECK-NEXT:  //   copy_512_float32_{{[0-9a-f]+}}(c, d)
// FEW-LABEL:   // @beside(
// FEW-NEXT:    //   nki_spread(copy_524288_float32_{{[0-9a-f]+}}, 2, 2, x, 2097152, y, 2097152)
// FEW-NEXT:    //   copy_65536_float32_{{[0-9a-f]+}}(a, b)
// ONE-LABEL:   // @beside(
// ONE-NEXT:    //   copy_1048576_float32_{{.*}}(x, y)
// ONE-NEXT:    //   copy_65536_float32_{{.*}}(a, b)
// ALONE-LABEL: func.func @beside(
// ALONE:         linalg.copy {native.spread = 2 : i64} ins({{.*}}memref<1048576xf32
// ALONE:         linalg.copy {native.spread = 2 : i64} ins({{.*}}memref<65536xf32
// ALONE:         linalg.copy ins({{.*}}memref<512xf32
func.func @beside(%x: !matrix {nki.name = "x"}, %y: !matrix {nki.name = "y"}, %a: !rows {nki.name = "a"},
                  %b: !rows {nki.name = "b"}, %c: !row {nki.name = "c"}, %d: !row {nki.name = "d"}) {
  linalg.copy ins(%x : !matrix) outs(%y : !matrix)
  linalg.copy ins(%a : !rows) outs(%b : !rows)
  linalg.copy ins(%c : !row) outs(%d : !row)
  return
}

// Nothing has woken the threads here, unless such short computations together are worth it.
// MANY-LABEL:  // @by_itself(
// MANY-NEXT:   //   nki_spread(copy_32768_float32_{{[0-9a-f]+}}, 2, 2, a, 131072, b, 131072)
// CHECK-LABEL: // @by_itself(
// CHECK-NEXT:  //   copy_65536_float32_{{.*}}(a, b)
func.func @by_itself(%a: !rows {nki.name = "a"}, %b: !rows {nki.name = "b"}) {
  linalg.copy ins(%a : !rows) outs(%b : !rows)
  return
}

// The programs of a grid already run on the threads.
// CHECK-LABEL: // @programs(
// CHECK-NEXT:  //   copy_1048576_float32_{{.*}}(x, y)
// CHECK-NEXT:  //   end
func.func @programs(%x: !matrix {nki.name = "x"}, %y: !matrix {nki.name = "y"},
                    %i: index {nki.program_id = 0 : i64, nki.name = "i"}) attributes {nki.grid = [2]} {
  linalg.copy ins(%x : !matrix) outs(%y : !matrix)
  return
}
