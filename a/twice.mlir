#map = affine_map<() -> (0, 0)>
#map1 = affine_map<() -> (0)>
#set = affine_set<() : (0 == 0)>
module attributes {nki.target = "trn2"} {
  func.func @doubled(%arg0: memref<16x8xf32, "hbm"> {nki.name = "x"}, %arg1: memref<16x8xf32, "hbm"> {nki.name = "out", nki.shared = 0 : i64}) attributes {nki.grid = [], nki.results = [1]} {
    %alloc = memref.alloc() {nki.name = "t0"} : memref<16x8xf32, "sbuf">
    "nki.load"(%alloc, %arg0) {access = [#nki.access<f32, #map, [[1, 16], [1, 8]]>, #nki.access<f32, #map1, [[8, 16], [1, 8]]>], mask = #set} : (memref<16x8xf32, "sbuf">, memref<16x8xf32, "hbm">) -> ()
    %alloc_0 = memref.alloc() {nki.name = "t1"} : memref<16x8xf32, "sbuf">
    "nki.binary_scalar"(%alloc_0, %alloc) {access = [#nki.access<f32, #map, [[1, 16], [1, 8]]>, #nki.access<f32, #map, [[1, 16], [1, 8]]>], mask = #set, op = "multiply", reverse = false, scalar = 2.000000e+00 : f64} : (memref<16x8xf32, "sbuf">, memref<16x8xf32, "sbuf">) -> ()
    "nki.store"(%arg1, %alloc_0) {access = [#nki.access<f32, #map1, [[8, 16], [1, 8]]>, #nki.access<f32, #map, [[1, 16], [1, 8]]>], mask = #set} : (memref<16x8xf32, "hbm">, memref<16x8xf32, "sbuf">) -> ()
    return
  }
}
