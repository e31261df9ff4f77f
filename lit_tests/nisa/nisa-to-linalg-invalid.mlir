// RUN: nki-opt --nisa-to-linalg --split-input-file --verify-diagnostics %s

// The sum of a row less its other elements: which is the first of them, a mask that is no box does not say.
func.func @less(%x: memref<64x64xf32, "sbuf">, %y: memref<64x1xf32, "sbuf">) {
  // expected-error @+1 {{a mask that is no box on a reduction by 'subtract' is not supported}}
  "nisa.tensor_reduce"(%y, %x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 1]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>],
    mask = affine_set<(d0, d1) : (d0 - d1 >= 0)>, engine = "vector", op = "subtract", axes = [1], negate = false}
    : (memref<64x1xf32, "sbuf">, memref<64x64xf32, "sbuf">) -> ()
  return
}

// -----

// Tile operations are lowered by nki-to-linalg, before this pass.
func.func @tiles(%x: memref<64x64xf32, "sbuf">) {
  // expected-error @+1 {{'nki.unary' is not legal at the waist level}}
  "nki.unary"(%x, %x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, fn = "exp"} : (memref<64x64xf32, "sbuf">, memref<64x64xf32, "sbuf">) -> ()
  return
}
