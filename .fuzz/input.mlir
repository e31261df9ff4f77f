#map = affine_map<() -> (0, 0)>
#set = affine_set<() : (0 == 0)>
"builtin.module"() ({
  "func.func"() <{function_type = (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4xtf32, "sbuf">) -> (), sym_name = "kernel"}> ({
  ^bb0(%arg0: memref<4x6xf32, "sbuf">, %arg1: memref<4x6xf32, "sbuf">, %arg2: memref<4xtf32, "sbuf">):
    "nisa.scalar_tensor_tensor"(%arg0, %arg1, %arg2) {access = [#nki.access<f32, #map, [[1, 4], [1, 6]]>, #nki.access<f32, #map, [[1, 4], [1, 6]]>, #nki.access<tf32, #map, [[1, 4]]>], engine = "minimum", imm0 = 5.000000e-01 : f64, mask = #set, op0 = "exp", op1 = "subtract", operandSegmentSizes = array<i32: 1, 1, 0, 1, 0>, reverse0 = false, reverse1 = false} : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4xtf32, "sbuf">) -> ()
    "func.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
