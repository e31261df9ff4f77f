// RUN: nki-opt --nki-to-linalg %s | FileCheck %s

// Operands become views of their buffers, sources are converted to float32 and the result to bfloat16, once.
// CHECK-DAG: #[[AT:map[0-9]*]] = affine_map<()[s0] -> (s0 * 64)>
// CHECK-DAG: #[[ID:map[0-9]*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROWS:map[0-9]*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: #[[NONE:map[0-9]*]] = affine_map<(d0, d1) -> ()>
// CHECK-DAG: #[[TRIANGLE:set[0-9]*]] = affine_set<(d0, d1)[s0] : (d0 + s0 - d1 >= 0)>

// CHECK-LABEL: func.func @add
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<128x512xf32, "sbuf">, %[[C:[a-z0-9]+]]: memref<128x512xbf16, "sbuf">
// CHECK:         scf.for %[[I:.*]] =
// CHECK:           %[[O:.*]] = affine.apply #[[AT]]()[%[[I]]]
// CHECK:           %[[X:.*]] = memref.reinterpret_cast %[[A]] to offset: [%[[O]]], sizes: [128, 64], strides: [512, 1]
// CHECK-SAME:        to memref<128x64xf32, strided<[512, 1], offset: ?>, "sbuf">
// CHECK:           %[[B:.*]] = memref.reinterpret_cast %[[A]] to offset: [512], sizes: [128, 64], strides: [0, 1]
// CHECK:           %[[Y:.*]] = memref.reinterpret_cast %[[C]] to offset: [%[[O]]]
// CHECK:           linalg.generic {indexing_maps = [#[[ID]], #[[ID]], #[[ID]]], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME:        ins(%[[X]], %[[B]] :
// CHECK-SAME:        outs(%[[Y]] :
// CHECK-SAME:        attrs = {nki.name = "sum"}
// CHECK:             (%[[P:.*]]: f32, %[[Q:.*]]: f32, %{{.*}}: bf16):
// CHECK:             %[[S:.*]] = "scalar.alu"(%[[P]], %[[Q]]) {fn = "add"} : (f32, f32) -> f32
// CHECK:             %[[R:.*]] = "scalar.convert"(%[[S]]) : (f32) -> bf16
// CHECK:             linalg.yield %[[R]] : bf16
// CHECK-NOT:       "nki.binary"
func.func @add(%a: memref<128x512xf32, "sbuf">, %c: memref<128x512xbf16, "sbuf">) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    "nki.binary"(%c, %a, %a, %i) {
      access = [#nki.access<bf16, affine_map<()[s0] -> (0, s0 * 64)>, [[1, 128], [1, 64]]>,
                #nki.access<f32, affine_map<()[s0] -> (0, s0 * 64)>, [[1, 128], [1, 64]]>,
                #nki.access<f32, affine_map<()[s0] -> (1, 0)>, [[0, 128], [1, 64]]>],
      mask = affine_set<() : (0 == 0)>, op = "add", nki.name = "sum"}
      : (memref<128x512xbf16, "sbuf">, memref<128x512xf32, "sbuf">, memref<128x512xf32, "sbuf">, index) -> ()
  }
  return
}

// A sum is accumulated in float32, whatever it is stored as. Its result has no axis 1.
// CHECK-LABEL: func.func @sum
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x64xbf16, "sbuf">, %[[Y:[a-z0-9]+]]: memref<128x1xbf16, "sbuf">
// CHECK:         %[[T:.*]] = memref.alloc() : memref<128x1xf32, "sbuf">
// CHECK:         %[[S:.*]] = memref.reinterpret_cast %[[T]] to offset: [0], sizes: [128], strides: [1]
// CHECK:         %[[ZERO:.*]] = arith.constant 0.0
// CHECK:         linalg.fill ins(%[[ZERO]] : f32) outs(%[[S]] :
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]}
// CHECK:           (%[[IN:.*]]: bf16, %[[TOTAL:.*]]: f32):
// CHECK:           %[[V:.*]] = "scalar.convert"(%[[IN]]) : (bf16) -> f32
// CHECK:           %[[R:.*]] = "scalar.alu"(%[[TOTAL]], %[[V]]) {fn = "add"}
// CHECK:           linalg.yield %[[R]] : f32
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel"]
// CHECK:           "scalar.convert"({{.*}}) : (f32) -> bf16
func.func @sum(%x: memref<128x64xbf16, "sbuf">, %y: memref<128x1xbf16, "sbuf">) {
  "nki.reduce"(%y, %x) {
    access = [#nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 1]]>,
              #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, op = "add", axes = [1]}
    : (memref<128x1xbf16, "sbuf">, memref<128x64xbf16, "sbuf">) -> ()
  return
}

// The first product of a group starts from zero, the next ones add to it.
// CHECK-LABEL: func.func @products
// CHECK:         linalg.fill
// CHECK:         linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]
// CHECK:           (%[[A:.*]]: bf16, %[[B:.*]]: f32, %[[TOTAL:.*]]: f32):
// CHECK:           %[[C:.*]] = "scalar.convert"(%[[A]]) : (bf16) -> f32
// CHECK:           %[[P:.*]] = "scalar.alu"(%[[C]], %[[B]]) {fn = "multiply"}
// CHECK:           %[[S:.*]] = "scalar.alu"(%[[TOTAL]], %[[P]]) {fn = "add"}
// CHECK:           linalg.yield %[[S]] : f32
// CHECK-NOT:     linalg.fill
// CHECK:         linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]
func.func @products(%a: memref<128x64xbf16, "sbuf">, %b: memref<128x512xf32, "sbuf">, %c: memref<64x512xf32, "psum">) {
  "nki.matmul"(%c, %a, %b) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 512]]>,
              #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>],
    mask = affine_set<() : (0 == 0)>, accumulate = false}
    : (memref<64x512xf32, "psum">, memref<128x64xbf16, "sbuf">, memref<128x512xf32, "sbuf">) -> ()
  "nki.matmul"(%c, %a, %b) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 512]]>,
              #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>],
    mask = affine_set<() : (0 == 0)>, accumulate = true}
    : (memref<64x512xf32, "psum">, memref<128x64xbf16, "sbuf">, memref<128x512xf32, "sbuf">) -> ()
  return
}

// All reads come before any write: a transpose in place goes through a temporary.
// CHECK-LABEL: func.func @transpose
// CHECK:         %[[T:.*]] = memref.alloc() : memref<64x64xf32, "sbuf">
// CHECK:         %[[TV:.*]] = memref.reinterpret_cast %[[T]]
// CHECK:         linalg.generic {{.*}} outs(%[[TV]]
// CHECK:         linalg.generic {{.*}} ins(%[[TV]]
func.func @transpose(%x: memref<64x64xf32, "sbuf">) {
  "nki.transpose"(%x, %x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>} : (memref<64x64xf32, "sbuf">, memref<64x64xf32, "sbuf">) -> ()
  return
}

// An elementwise operation in place needs none.
// CHECK-LABEL: func.func @in_place
// CHECK-NOT:     memref.alloc
// CHECK:         %[[V:.*]] = memref.reinterpret_cast
// CHECK:         linalg.generic {{.*}} ins(%[[V]] :{{.*}} outs(%[[V]] :
// CHECK:           "scalar.activation"({{.*}}) {fn = "exp"} : (f32) -> f32
func.func @in_place(%x: memref<64x64xf32, "sbuf">) {
  "nki.unary"(%x, %x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, fn = "exp"} : (memref<64x64xf32, "sbuf">, memref<64x64xf32, "sbuf">) -> ()
  return
}

// A mask that is a box here makes the loops smaller: rows 0 to 99, columns 8 to 63.
// CHECK-LABEL: func.func @box
// CHECK:         memref.reinterpret_cast {{.*}} to offset: [8], sizes: [100, 56], strides: [64, 1]
// CHECK:         memref.reinterpret_cast {{.*}} to offset: [8], sizes: [100, 56], strides: [64, 1]
// CHECK-NOT:     nki.mask
func.func @box(%x: memref<6400xf32, "hbm">, %y: memref<128x64xf32, "sbuf">) {
  "nki.load"(%y, %x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0)>, [[64, 128], [1, 64]]>],
    mask = affine_set<(d0, d1) : (99 - d0 >= 0, d1 - 8 >= 0)>}
    : (memref<128x64xf32, "sbuf">, memref<6400xf32, "hbm">) -> ()
  return
}

// Any other mask stays. Its symbols are the last inputs.
// CHECK-LABEL: func.func @triangle
// CHECK-SAME:    %[[I:[a-z0-9]+]]: index {nki.program_id
// CHECK:         linalg.generic {indexing_maps = [#[[ID]], #[[NONE]], #[[ID]]]
// CHECK-SAME:      ins(%{{.*}}, %[[I]] : memref<{{.*}}>, index)
// CHECK-SAME:      attrs = {nki.mask = #[[TRIANGLE]]}
// CHECK:           (%[[IN:.*]]: f32, %{{.*}}: index, %{{.*}}: f32):
// CHECK:           linalg.yield %[[IN]]
func.func @triangle(%x: memref<128x128xf32, "sbuf">, %y: memref<128x128xf32, "sbuf">,
                    %i: index {nki.program_id = 0 : i64}) attributes {nki.grid = [4]} {
  "nki.copy"(%y, %x, %i) {
    access = [#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 128]]>,
              #nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 128]]>],
    mask = affine_set<(d0, d1)[s0] : (d0 + s0 - d1 >= 0)>}
    : (memref<128x128xf32, "sbuf">, memref<128x128xf32, "sbuf">, index) -> ()
  return
}

// A sum under such a mask starts from zero only where something will be added.
// CHECK-LABEL: func.func @triangle_sum
// CHECK-NOT:     linalg.fill
// CHECK:         linalg.generic {{.*}} attrs = {nki.mask =
// CHECK:           %[[ZERO:.*]] = arith.constant 0.0
// CHECK:           linalg.yield %[[ZERO]]
// CHECK:         linalg.generic {{.*}} attrs = {nki.mask =
// CHECK:           "scalar.alu"({{.*}}) {fn = "add"}
func.func @triangle_sum(%x: memref<64x64xf32, "sbuf">, %y: memref<64x1xf32, "sbuf">) {
  "nki.reduce"(%y, %x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 1]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>],
    mask = affine_set<(d0, d1) : (d0 - d1 >= 0)>, op = "add", axes = [1]}
    : (memref<64x1xf32, "sbuf">, memref<64x64xf32, "sbuf">) -> ()
  return
}

// An index expression is computed where it is used.
// CHECK-LABEL: func.func @iota
// CHECK-SAME:    %{{.*}}: memref<128x64xf32, "sbuf">, %[[I:[a-z0-9]+]]: index
// CHECK:         linalg.generic {indexing_maps = [#[[NONE]], #[[ID]]]
// CHECK-SAME:      ins(%[[I]] : index)
// CHECK:           (%[[J:.*]]: index, %{{.*}}: f32):
// CHECK:           %[[P:.*]] = linalg.index 0
// CHECK:           %[[F:.*]] = linalg.index 1
// CHECK:           %[[V:.*]] = affine.apply #{{.*}}(%[[P]], %[[F]])[%[[J]]]
// CHECK:           %[[W:.*]] = arith.index_cast %[[V]] : index to i32
// CHECK:           "scalar.convert"(%[[W]]) : (i32) -> f32
func.func @iota(%x: memref<128x64xf32, "sbuf">, %i: index {nki.program_id = 0 : i64}) attributes {nki.grid = [4]} {
  "nki.iota"(%x, %i) {
    access = [#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, expression = affine_map<(d0, d1)[s0] -> (d0 * 256 + d1 + s0 * 64)>}
    : (memref<128x64xf32, "sbuf">, index) -> ()
  return
}

// A constant has no inputs. It is held in the type that is exact for it, here a 32-bit integer.
// CHECK-LABEL: func.func @memset
// CHECK:         linalg.generic {{{.*}}} outs(
// CHECK:           %[[C:.*]] = arith.constant 16777217 : i32
// CHECK:           linalg.yield %[[C]] : i32
func.func @memset(%x: memref<128x64xi32, "sbuf">) {
  "nki.memset"(%x) {
    access = [#nki.access<i32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, value = 16777217.0 : f64} : (memref<128x64xi32, "sbuf">) -> ()
  return
}

// A pattern of another type than its buffer's looks at the same bytes. Integers keep their sign.
// CHECK-LABEL: func.func @bytes
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x16xf32, "sbuf">
// CHECK:         %[[B:.*]] = "nki.reinterpret"(%[[X]]) : (memref<128x16xf32, "sbuf">) -> memref<128x64xui8, "sbuf">
// CHECK:         memref.reinterpret_cast %[[B]] to offset: [3], sizes: [128, 16], strides: [64, 4]
// CHECK:           "scalar.convert"({{.*}}) : (ui8) -> i32
func.func @bytes(%x: memref<128x16xf32, "sbuf">, %y: memref<128x16xi32, "sbuf">) {
  "nki.copy"(%y, %x) {
    access = [#nki.access<i32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>,
              #nki.access<ui8, affine_map<() -> (0, 3)>, [[1, 128], [4, 16]]>],
    mask = affine_set<() : (0 == 0)>} : (memref<128x16xi32, "sbuf">, memref<128x16xf32, "sbuf">) -> ()
  return
}

// Instructions and prints stay as they are.
// CHECK-LABEL: func.func @stays
// CHECK:         "nisa.reciprocal"
// CHECK:         "nki.device_print"
// CHECK-NOT:     linalg
func.func @stays(%x: memref<128x16xf32, "sbuf">) {
  "nisa.reciprocal"(%x, %x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>],
    mask = affine_set<() : (0 == 0)>, engine = "vector"} : (memref<128x16xf32, "sbuf">, memref<128x16xf32, "sbuf">) -> ()
  "nki.device_print"(%x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 16]]>],
    mask = affine_set<() : (0 == 0)>, prefix = "x"} : (memref<128x16xf32, "sbuf">) -> ()
  return
}
