// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pairs of a transposed copy are neighbors in the rows of the tile before: words of two elements are copied from there.
// RUN: nki-opt --copy-words %s | FileCheck %s

#id = affine_map<(p, f) -> (p, f)>
!bytes = memref<1x4096xui8, "sbuf">
!halves = memref<1x2048xui16, "sbuf">
!rows = memref<32x64xui16, strided<[64, 1]>, "sbuf">
!columns = memref<64x32xui16, strided<[1, 64]>, "sbuf">
!turned = memref<64x32xui16, strided<[32, 1]>, "sbuf">
!even = memref<32x32xui16, strided<[64, 1]>, "sbuf">
!odd = memref<32x32xui16, strided<[64, 1], offset: 32>, "sbuf">
!first = memref<16x32xui16, strided<[128, 1]>, "sbuf">
!third = memref<16x32xui16, strided<[128, 1], offset: 64>, "sbuf">
!fewer = memref<16x32xui32, "hbm">
!input = memref<32x64xui16, "hbm">
!words = memref<32x32xui32, "hbm">

// CHECK-LABEL: func.func @neighbors(
// CHECK:         %[[BYTES:.*]] = memref.alloc()
// CHECK:         %[[WORDS:.*]] = "nki.reinterpret"(%[[BYTES]]) : (memref<1x4096xui8, "sbuf">) -> memref<1x1024xf32, "sbuf">
// CHECK-NEXT:    %[[COLUMNS:.*]] = memref.reinterpret_cast %[[WORDS]] to offset: [0], sizes: [32, 32], strides: [1, 32]
// CHECK:         linalg.copy ins(%[[COLUMNS]] :
// CHECK-NOT:     bitwise_or
// CHECK:         return
func.func @neighbors(%x: !input {nki.name = "x"}, %y: !words {nki.name = "y", nki.shared = 0 : i64}) {
  %bytes = memref.alloc() : !bytes
  %tile = "nki.reinterpret"(%bytes) : (!bytes) -> !halves
  %rows = memref.reinterpret_cast %tile to offset: [0], sizes: [32, 64], strides: [64, 1] : !halves to !rows
  linalg.copy ins(%x : !input) outs(%rows : !rows)
  %columns = memref.reinterpret_cast %tile to offset: [0], sizes: [64, 32], strides: [1, 64] : !halves to !columns
  %others = memref.alloc() : !bytes
  %copy = "nki.reinterpret"(%others) : (!bytes) -> !halves
  %turned = memref.reinterpret_cast %copy to offset: [0], sizes: [64, 32], strides: [32, 1] : !halves to !turned
  linalg.copy ins(%columns : !columns) outs(%turned : !turned)
  %even = memref.reinterpret_cast %copy to offset: [0], sizes: [32, 32], strides: [64, 1] : !halves to !even
  %odd = memref.reinterpret_cast %copy to offset: [32], sizes: [32, 32], strides: [64, 1] : !halves to !odd
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%even, %odd : !even, !odd) outs(%y : !words) {
  ^bb0(%a: ui16, %b: ui16, %old: ui32):
    %0 = "scalar.wrap"(%a) : (ui16) -> ui32
    %1 = "scalar.wrap"(%b) : (ui16) -> ui32
    %c16 = arith.constant 16 : i32
    %2 = "scalar.wrap"(%c16) : (i32) -> ui32
    %3 = "scalar.alu"(%1, %2) {fn = "left_shift"} : (ui32, ui32) -> ui32
    %4 = "scalar.alu"(%0, %3) {fn = "bitwise_or"} : (ui32, ui32) -> ui32
    linalg.yield %4 : ui32
  }
  return
}

// The copies move floats of 16 bits, the join reads their bits.
// CHECK-LABEL: func.func @neighbors_of_floats(
// CHECK:         %[[BYTES:.*]] = memref.alloc()
// CHECK:         %[[WORDS:.*]] = "nki.reinterpret"(%[[BYTES]]) : (memref<1x4096xui8, "sbuf">) -> memref<1x1024xf32, "sbuf">
// CHECK-NEXT:    %[[COLUMNS:.*]] = memref.reinterpret_cast %[[WORDS]] to offset: [0], sizes: [32, 32], strides: [1, 32]
// CHECK:         linalg.copy ins(%[[COLUMNS]] :
// CHECK-NOT:     bitwise_or
// CHECK:         return
!floats = memref<1x2048xbf16, "sbuf">
!float_rows = memref<32x64xbf16, strided<[64, 1]>, "sbuf">
!float_columns = memref<64x32xbf16, strided<[1, 64]>, "sbuf">
!float_turned = memref<64x32xbf16, strided<[32, 1]>, "sbuf">
!float_input = memref<32x64xbf16, "hbm">
func.func @neighbors_of_floats(%x: !float_input {nki.name = "x"}, %y: !words {nki.name = "y", nki.shared = 0 : i64}) {
  %bytes = memref.alloc() : !bytes
  %tile = "nki.reinterpret"(%bytes) : (!bytes) -> !floats
  %rows = memref.reinterpret_cast %tile to offset: [0], sizes: [32, 64], strides: [64, 1] : !floats to !float_rows
  linalg.copy ins(%x : !float_input) outs(%rows : !float_rows)
  %columns = memref.reinterpret_cast %tile to offset: [0], sizes: [64, 32], strides: [1, 64] : !floats to !float_columns
  %others = memref.alloc() : !bytes
  %copy = "nki.reinterpret"(%others) : (!bytes) -> !halves
  %copied = "nki.reinterpret"(%others) : (!bytes) -> !floats
  %turned = memref.reinterpret_cast %copied to offset: [0], sizes: [64, 32], strides: [32, 1] : !floats to !float_turned
  linalg.copy ins(%columns : !float_columns) outs(%turned : !float_turned)
  %even = memref.reinterpret_cast %copy to offset: [0], sizes: [32, 32], strides: [64, 1] : !halves to !even
  %odd = memref.reinterpret_cast %copy to offset: [32], sizes: [32, 32], strides: [64, 1] : !halves to !odd
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%even, %odd : !even, !odd) outs(%y : !words) {
  ^bb0(%a: ui16, %b: ui16, %old: ui32):
    %0 = "scalar.wrap"(%a) : (ui16) -> ui32
    %1 = "scalar.wrap"(%b) : (ui16) -> ui32
    %c16 = arith.constant 16 : i32
    %2 = "scalar.wrap"(%c16) : (i32) -> ui32
    %3 = "scalar.alu"(%1, %2) {fn = "left_shift"} : (ui32, ui32) -> ui32
    %4 = "scalar.alu"(%0, %3) {fn = "bitwise_or"} : (ui32, ui32) -> ui32
    linalg.yield %4 : ui32
  }
  return
}

// Elements of a pair with another one between them are no word.
// CHECK-LABEL: func.func @apart(
// CHECK:         "scalar.alu"({{.*}}) {fn = "bitwise_or"}
// CHECK:         return
func.func @apart(%x: !input {nki.name = "x"}, %y: !fewer {nki.name = "y", nki.shared = 0 : i64}) {
  %bytes = memref.alloc() : !bytes
  %tile = "nki.reinterpret"(%bytes) : (!bytes) -> !halves
  %rows = memref.reinterpret_cast %tile to offset: [0], sizes: [32, 64], strides: [64, 1] : !halves to !rows
  linalg.copy ins(%x : !input) outs(%rows : !rows)
  %columns = memref.reinterpret_cast %tile to offset: [0], sizes: [64, 32], strides: [1, 64] : !halves to !columns
  %others = memref.alloc() : !bytes
  %copy = "nki.reinterpret"(%others) : (!bytes) -> !halves
  %turned = memref.reinterpret_cast %copy to offset: [0], sizes: [64, 32], strides: [32, 1] : !halves to !turned
  linalg.copy ins(%columns : !columns) outs(%turned : !turned)
  %first = memref.reinterpret_cast %copy to offset: [0], sizes: [16, 32], strides: [128, 1] : !halves to !first
  %third = memref.reinterpret_cast %copy to offset: [64], sizes: [16, 32], strides: [128, 1] : !halves to !third
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%first, %third : !first, !third) outs(%y : !fewer) {
  ^bb0(%a: ui16, %b: ui16, %old: ui32):
    %0 = "scalar.wrap"(%a) : (ui16) -> ui32
    %1 = "scalar.wrap"(%b) : (ui16) -> ui32
    %c16 = arith.constant 16 : i32
    %2 = "scalar.wrap"(%c16) : (i32) -> ui32
    %3 = "scalar.alu"(%1, %2) {fn = "left_shift"} : (ui32, ui32) -> ui32
    %4 = "scalar.alu"(%0, %3) {fn = "bitwise_or"} : (ui32, ui32) -> ui32
    linalg.yield %4 : ui32
  }
  return
}

// Words begin behind the first ones of the tile before.
// CHECK-LABEL: func.func @words_behind_others(
// CHECK:         %[[WORDS:.*]] = "nki.reinterpret"(%{{.*}}) : (memref<1x4352xui8, "sbuf">) -> memref<1x1088xf32, "sbuf">
// CHECK-NEXT:    %[[COLUMNS:.*]] = memref.reinterpret_cast %[[WORDS]] to offset: [32], sizes: [32, 32], strides: [1, 32]
// CHECK:         linalg.copy ins(%[[COLUMNS]] :
// CHECK-NOT:     bitwise_or
// CHECK:         return
!more_bytes = memref<1x4352xui8, "sbuf">
!more_halves = memref<1x2176xui16, "sbuf">
!rows_behind = memref<32x64xui16, strided<[64, 1], offset: 64>, "sbuf">
!columns_behind = memref<64x32xui16, strided<[1, 64], offset: 64>, "sbuf">
func.func @words_behind_others(%x: !input {nki.name = "x"}, %y: !words {nki.name = "y", nki.shared = 0 : i64}) {
  %bytes = memref.alloc() : !more_bytes
  %tile = "nki.reinterpret"(%bytes) : (!more_bytes) -> !more_halves
  %rows = memref.reinterpret_cast %tile to offset: [64], sizes: [32, 64], strides: [64, 1] : !more_halves to !rows_behind
  linalg.copy ins(%x : !input) outs(%rows : !rows_behind)
  %columns = memref.reinterpret_cast %tile to offset: [64], sizes: [64, 32], strides: [1, 64] : !more_halves to !columns_behind
  %others = memref.alloc() : !bytes
  %copy = "nki.reinterpret"(%others) : (!bytes) -> !halves
  %turned = memref.reinterpret_cast %copy to offset: [0], sizes: [64, 32], strides: [32, 1] : !halves to !turned
  linalg.copy ins(%columns : !columns_behind) outs(%turned : !turned)
  %even = memref.reinterpret_cast %copy to offset: [0], sizes: [32, 32], strides: [64, 1] : !halves to !even
  %odd = memref.reinterpret_cast %copy to offset: [32], sizes: [32, 32], strides: [64, 1] : !halves to !odd
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%even, %odd : !even, !odd) outs(%y : !words) {
  ^bb0(%a: ui16, %b: ui16, %old: ui32):
    %0 = "scalar.wrap"(%a) : (ui16) -> ui32
    %1 = "scalar.wrap"(%b) : (ui16) -> ui32
    %c16 = arith.constant 16 : i32
    %2 = "scalar.wrap"(%c16) : (i32) -> ui32
    %3 = "scalar.alu"(%1, %2) {fn = "left_shift"} : (ui32, ui32) -> ui32
    %4 = "scalar.alu"(%0, %3) {fn = "bitwise_or"} : (ui32, ui32) -> ui32
    linalg.yield %4 : ui32
  }
  return
}

// Pairs from an odd element on lie in two words each.
// CHECK-LABEL: func.func @pairs_in_two_words(
// CHECK:         "scalar.alu"({{.*}}) {fn = "bitwise_or"}
// CHECK:         return
!rows_odd_start = memref<32x64xui16, strided<[64, 1], offset: 63>, "sbuf">
!columns_odd_start = memref<64x32xui16, strided<[1, 64], offset: 63>, "sbuf">
func.func @pairs_in_two_words(%x: !input {nki.name = "x"}, %y: !words {nki.name = "y", nki.shared = 0 : i64}) {
  %bytes = memref.alloc() : !more_bytes
  %tile = "nki.reinterpret"(%bytes) : (!more_bytes) -> !more_halves
  %rows = memref.reinterpret_cast %tile to offset: [63], sizes: [32, 64], strides: [64, 1] : !more_halves to !rows_odd_start
  linalg.copy ins(%x : !input) outs(%rows : !rows_odd_start)
  %columns = memref.reinterpret_cast %tile to offset: [63], sizes: [64, 32], strides: [1, 64] : !more_halves to !columns_odd_start
  %others = memref.alloc() : !bytes
  %copy = "nki.reinterpret"(%others) : (!bytes) -> !halves
  %turned = memref.reinterpret_cast %copy to offset: [0], sizes: [64, 32], strides: [32, 1] : !halves to !turned
  linalg.copy ins(%columns : !columns_odd_start) outs(%turned : !turned)
  %even = memref.reinterpret_cast %copy to offset: [0], sizes: [32, 32], strides: [64, 1] : !halves to !even
  %odd = memref.reinterpret_cast %copy to offset: [32], sizes: [32, 32], strides: [64, 1] : !halves to !odd
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%even, %odd : !even, !odd) outs(%y : !words) {
  ^bb0(%a: ui16, %b: ui16, %old: ui32):
    %0 = "scalar.wrap"(%a) : (ui16) -> ui32
    %1 = "scalar.wrap"(%b) : (ui16) -> ui32
    %c16 = arith.constant 16 : i32
    %2 = "scalar.wrap"(%c16) : (i32) -> ui32
    %3 = "scalar.alu"(%1, %2) {fn = "left_shift"} : (ui32, ui32) -> ui32
    %4 = "scalar.alu"(%0, %3) {fn = "bitwise_or"} : (ui32, ui32) -> ui32
    linalg.yield %4 : ui32
  }
  return
}
