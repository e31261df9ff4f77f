// RUN: nki-opt --nisa-to-linalg --split-input-file --verify-diagnostics %s

// Tile operations are lowered by nki-to-linalg, before this pass.
func.func @tiles(%x: memref<64x64xf32, "sbuf">) {
  // expected-error @+1 {{'nki.unary' is not legal at the waist level}}
  "nki.unary"(%x, %x) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>, fn = "exp"} : (memref<64x64xf32, "sbuf">, memref<64x64xf32, "sbuf">) -> ()
  return
}
