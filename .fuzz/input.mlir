#map = affine_map<() -> (0, 0)>
#set = affine_set<() : (0 == 0)>
"builtin.module"() ({
  "func.func"() <{function_type = (memref<1x512xf32, "sbuf">, memref<128x512xf32, "sbuf">) -> (), sym_name = "kernel"}> ({
  ^bb0(%arg0: memref<1x512xf32, "sbuf">, %arg1: memref<128x512xf32, "sbuf">):
    "nisa.tensor_partition_reduce"(%arg0, %arg1) {access = [#nki.access<f32, #map, [[1, 1], [1, 512]]>, #nki.access<f32, #map, [[1, 128], [1, 512]]>], engine = "nothing", mask = #set, op = "add"} : (memref<1x512xf32, "sbuf">, memref<128x512xf32, "sbuf">) -> ()
    "func.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
