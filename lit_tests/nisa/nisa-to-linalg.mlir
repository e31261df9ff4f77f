// RUN: nki-opt --nisa-to-linalg %s | FileCheck %s

// CHECK-DAG: #[[ID:map[0-9]*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROWS:map[0-9]*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: #[[COLUMNS:map[0-9]*]] = affine_map<(d0, d1) -> (d1)>

// Both steps of an instruction, each with its operand; a [P, 1] operand is read with a stride of 0.
// CHECK-LABEL: func.func @tensor_scalar
// CHECK:         memref.reinterpret_cast {{.*}} to offset: [0], sizes: [128, 64], strides: [1, 0]
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[ID]], #[[ID]]]
// CHECK:           (%[[X:.*]]: f32, %[[S:.*]]: f32, %{{.*}}: f32):
// CHECK:           %[[A:.*]] = "scalar.alu"(%[[X]], %[[S]]) {fn = "subtract"}
// CHECK:           %[[C:.*]] = arith.constant 5.0
// CHECK:           %[[B:.*]] = "scalar.alu"(%[[C]], %[[A]]) {fn = "divide"}
// CHECK:           linalg.yield %[[B]]
// CHECK-NOT:     nisa.
func.func @tensor_scalar(%x: memref<128x64xf32, "sbuf">, %s: memref<128x1xf32, "sbuf">) {
  "nisa.tensor_scalar"(%x, %x, %s) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [0, 64]]>],
    mask = affine_set<() : (0 == 0)>, engine = "vector", op0 = "subtract", imm0 = 0.0 : f64, reverse0 = false,
    op1 = "divide", imm1 = 5.0 : f64, reverse1 = true}
    : (memref<128x64xf32, "sbuf">, memref<128x64xf32, "sbuf">, memref<128x1xf32, "sbuf">) -> ()
  return
}

// CHECK-LABEL: func.func @activation
// CHECK:           (%[[X:.*]]: bf16, %[[BIAS:.*]]: f32, %{{.*}}: bf16):
// CHECK:           %[[F:.*]] = "scalar.convert"(%[[X]]) : (bf16) -> f32
// CHECK:           %[[TWO:.*]] = arith.constant 2.0
// CHECK:           %[[M:.*]] = "scalar.alu"(%[[F]], %[[TWO]]) {fn = "multiply"}
// CHECK:           %[[S:.*]] = "scalar.alu"(%[[M]], %[[BIAS]]) {fn = "add"}
// CHECK:           %[[T:.*]] = "scalar.activation"(%[[S]]) {fn = "tanh"}
// CHECK:           "scalar.convert"(%[[T]]) : (f32) -> bf16
func.func @activation(%y: memref<128x64xbf16, "sbuf">, %x: memref<128x64xbf16, "psum">, %b: memref<128x1xf32, "sbuf">) {
  "nisa.activation"(%y, %x, %b) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>,
    access = [#nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [0, 64]]>],
    mask = affine_set<() : (0 == 0)>, engine = "scalar", fn = "tanh", imm = 2.0 : f64}
    : (memref<128x64xbf16, "sbuf">, memref<128x64xbf16, "psum">, memref<128x1xf32, "sbuf">) -> ()
  return
}

// The values and their sum along the rows in one pass.
// CHECK-LABEL: func.func @activation_reduce
// CHECK:         linalg.fill
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[ID]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]}
// CHECK:           (%[[X:.*]]: f32, %{{.*}}: bf16, %[[SUM:.*]]: f32):
// CHECK:           %[[E:.*]] = "scalar.activation"(%[[X]]) {fn = "exp"}
// CHECK:           %[[R:.*]] = "scalar.convert"(%[[E]]) : (f32) -> bf16
// CHECK:           %[[S:.*]] = "scalar.alu"(%[[SUM]], %[[E]]) {fn = "add"}
// CHECK:           linalg.yield %[[R]], %[[S]] : bf16, f32
func.func @activation_reduce(%y: memref<128x64xbf16, "sbuf">, %s: memref<128x1xf32, "sbuf">, %x: memref<128x64xf32, "sbuf">) {
  "nisa.activation_reduce"(%y, %s, %x) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>,
    access = [#nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, engine = "scalar", fn = "exp", reduce_op = "add", imm = 1.0 : f64}
    : (memref<128x64xbf16, "sbuf">, memref<128x1xf32, "sbuf">, memref<128x64xf32, "sbuf">) -> ()
  return
}

// What becomes of the sum at the end is a step of its own: negated, or divided by the count.
// CHECK-LABEL: func.func @negated_maximum
// CHECK:         arith.constant 0xFF800000 : f32
// CHECK:         "scalar.alu"({{.*}}) {fn = "maximum"}
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel"]
// CHECK:           "scalar.alu"({{.*}}) {fn = "negative"}
func.func @negated_maximum(%y: memref<128x1xf32, "sbuf">, %x: memref<128x64xf32, "sbuf">) {
  "nisa.tensor_reduce"(%y, %x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, engine = "vector", op = "maximum", axes = [1], negate = true}
    : (memref<128x1xf32, "sbuf">, memref<128x64xf32, "sbuf">) -> ()
  return
}

// CHECK-LABEL: func.func @across_partitions
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[COLUMNS]]], iterator_types = ["reduction", "parallel"]}
func.func @across_partitions(%y: memref<1x64xf32, "sbuf">, %x: memref<128x64xf32, "sbuf">) {
  "nisa.tensor_partition_reduce"(%y, %x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 1], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, engine = "gpsimd", op = "add"}
    : (memref<1x64xf32, "sbuf">, memref<128x64xf32, "sbuf">) -> ()
  return
}

// Elements that the predicate does not pick keep what the output holds.
// CHECK-LABEL: func.func @predicated
// CHECK:           (%[[S:.*]]: f32, %[[P:.*]]: ui8, %[[OLD:.*]]: f32):
// CHECK:           %[[C:.*]] = "scalar.convert"(%[[P]]) : (ui8) -> f32
// CHECK:           "scalar.alu"(%[[C]], %[[S]], %[[OLD]]) {fn = "select"}
func.func @predicated(%y: memref<128x64xf32, "sbuf">, %x: memref<128x64xf32, "sbuf">, %p: memref<128x64xui8, "sbuf">) {
  "nisa.tensor_copy_predicated"(%y, %x, %p) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, engine = "vector", reverse_pred = false}
    : (memref<128x64xf32, "sbuf">, memref<128x64xf32, "sbuf">, memref<128x64xui8, "sbuf">) -> ()
  return
}

// Bits are combined in the integers' own type.
// CHECK-LABEL: func.func @bits
// CHECK:           (%[[A:.*]]: ui8, %[[B:.*]]: ui8, %{{.*}}: ui8):
// CHECK:           "scalar.alu"(%[[A]], %[[B]]) {fn = "bitwise_xor"} : (ui8, ui8) -> ui8
func.func @bits(%y: memref<128x64xui8, "sbuf">, %a: memref<128x64xui8, "sbuf">, %b: memref<128x64xui8, "sbuf">) {
  "nisa.tensor_tensor"(%y, %a, %b) {
    access = [#nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<ui8, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, engine = "vector", op = "bitwise_xor"}
    : (memref<128x64xui8, "sbuf">, memref<128x64xui8, "sbuf">, memref<128x64xui8, "sbuf">) -> ()
  return
}

// An instruction that is no loop nest stays: its class is its meaning.
// CHECK-LABEL: func.func @scan
// CHECK:         "nisa.tensor_tensor_scan"
func.func @scan(%y: memref<128x64xf32, "sbuf">, %a: memref<128x64xf32, "sbuf">, %b: memref<128x64xf32, "sbuf">) {
  "nisa.tensor_tensor_scan"(%y, %a, %b) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>,
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, engine = "vector", op0 = "multiply", op1 = "add", imm = 0.0 : f64,
    reverse0 = false, reverse1 = false}
    : (memref<128x64xf32, "sbuf">, memref<128x64xf32, "sbuf">, memref<128x64xf32, "sbuf">) -> ()
  return
}
