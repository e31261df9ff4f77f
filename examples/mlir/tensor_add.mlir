// The addition of two 256x1024 matrices over a 2x2 grid, at the nki level.
//
//   nki-opt --lower-to-isa examples/mlir/tensor_add.mlir
//   nki-run examples/mlir/tensor_add.mlir --on=jit --compare

#tile = #nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>, [[1, 128], [1, 512]]>
#block = #nki.access<f32, affine_map<()[s0, s1] -> (s0 * 131072 + s1 * 512)>, [[1024, 128], [1, 512]]>
#local = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 512]]>
#all = affine_set<() : (0 == 0)>

module attributes {nki.target = "trn2"} {
  func.func @tensor_add(%a: memref<256x1024xf32, "hbm"> {nki.name = "a"},
                        %b: memref<256x1024xf32, "hbm"> {nki.name = "b"},
                        %c: memref<256x1024xf32, "hbm"> {nki.name = "c", nki.shared = 0 : i64},
                        %i: index {nki.program_id = 0 : i64},
                        %j: index {nki.program_id = 1 : i64}) attributes {nki.grid = [2, 2], nki.results = [2]} {
    %left = memref.alloc() : memref<128x512xf32, "sbuf">
    %right = memref.alloc() : memref<128x512xf32, "sbuf">
    %sum = memref.alloc() : memref<128x512xf32, "sbuf">
    "nki.load"(%left, %a, %i, %j) {access = [#tile, #block], mask = #all}
      : (memref<128x512xf32, "sbuf">, memref<256x1024xf32, "hbm">, index, index) -> ()
    "nki.load"(%right, %b, %i, %j) {access = [#tile, #block], mask = #all}
      : (memref<128x512xf32, "sbuf">, memref<256x1024xf32, "hbm">, index, index) -> ()
    "nki.binary"(%sum, %left, %right) {access = [#local, #local, #local], mask = #all, op = "add"}
      : (memref<128x512xf32, "sbuf">, memref<128x512xf32, "sbuf">, memref<128x512xf32, "sbuf">) -> ()
    "nki.store"(%c, %sum, %i, %j) {access = [#block, #tile], mask = #all}
      : (memref<256x1024xf32, "hbm">, memref<128x512xf32, "sbuf">, index, index) -> ()
    return
  }
}
