// RUN: nki-opt %s --reduce --test='grep -q "nki.unary.(%%b"' 2>&1 | FileCheck %s
// RUN: not nki-opt %s --reduce --test=false 2>&1 | FileCheck %s --check-prefix=REFUSED
// RUN: not nki-opt %s --reduce 2>&1 | FileCheck %s --check-prefix=TEST

// CHECK: characters: 1 line, {{[0-9]+}} characters after {{[0-9]+}} tests
// CHECK: nki.unary{{.}}(%b

// REFUSED: error: --test does not end with status 0 on {{.*}}reduce.mlir as it is
// TEST: error: --reduce needs --test=COMMAND

#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>
func.func @k(%a: memref<4x8xf32, "sbuf">, %b: memref<4x8xf32, "sbuf">) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  "nki.memset"(%a) {access = [#tile],
    mask = affine_set<() : (0 == 0)>, value = 2.5 : f64} : (memref<4x8xf32, "sbuf">) -> ()
  scf.for %i = %c0 to %c2 step %c1 {
    "nki.unary"(%b, %b) {access = [#tile, #tile],
      mask = affine_set<() : (0 == 0)>, fn = "exp"}
      : (memref<4x8xf32, "sbuf">, memref<4x8xf32, "sbuf">) -> ()
  }
  return
}
func.func private @other() {
  return
}
