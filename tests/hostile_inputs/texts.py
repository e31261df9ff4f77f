# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules whose text would exhaust MLIR's parser: nested too deeply, with numbers too large, or with too many names."""

N = 20_000
CONVOLUTION = """func.func @main(%a: tensor<1x4x4x1xf32>, %b: tensor<1x1x1x1xf32>) -> tensor<1x4x4x1xf32> {
 %0 = stablehlo.convolution(%a, %b) dim_numbers = [b,0,1,f]x[0,1,i,o]->[b,f,4294967296,1], window = {}
   {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
   : (tensor<1x4x4x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x4x4x1xf32>
 return %0 : tensor<1x4x4x1xf32> }"""
HOSTILE = {
    "modules": "builtin.module {" * N + "}" * N,
    "regions": '"a.b"() (' + '{"a.b"() (' * N + "{}" + ") : () -> ()}" * N + ") : () -> ()",
    "lists": "module attributes {a.a = " + "[" * N + "]" * N + "} {}",
    "dictionaries": "module attributes {a.a = " + "{a = " * N + "1" + "}" * N + "} {}",
    "affine maps": "#m = affine_map<(d0) -> (" + "(" * N + "d0" + ")" * N + ")>\nmodule {}",
    "affine sums": "#m = affine_map<(d0) -> (d0" + " floordiv 2 mod 3" * N + ")>\nmodule {}",
    "minus signs": "#m = affine_map<(d0) -> (" + "-" * N + "d0)>\nmodule {}",
    "integer sets": "#m = affine_set<(d0) : (" + "(" * N + "d0" + ")" * N + " >= 0)>\nmodule {}",
    "tuples": "module attributes {a.a = " + "tuple<" * N + "i32" + ">" * N + "} {}",
    "locations": 'module {} loc(' + '"a"(' * N + '"b"' + ")" * N + ")",
    "integers": "module attributes {a.a = " + "9" * 1_000_000 + " : i32} {}",
    "layouts": CONVOLUTION,
    "results": '%0:4000000000 = "a.b"() : () -> ()',
    "widths": "module attributes {a.a = 1 : i16777215} {}",
    "wide constants": "module attributes {a.a = dense<[" + "1," * 9999 + "1]> : tensor<10000xi1025>} {}",
    "hexadecimal integers": "module attributes {a.a = 0x" + "f" * 1_000_000 + " : i64} {}",
    "shapes": "func.func private @f(tensor<" + "1x" * 200_000 + "f32>)",
    "shapes with blanks": "func.func private @f(tensor< " + "? x 1x" * 100_000 + "f32>)",
    "dimensions of maps": "#m = affine_map<(" + ",".join(f"d{k}" for k in range(100_000)) + ") -> (d0)>\nmodule {}",
    "symbols of sets": "#m = affine_set<(d0) [" + ",".join(f"s{k}" for k in range(100_000)) + "] : (d0 >= 0)>\nmodule {}",
    "dialects": "module attributes {" + ",".join(f"d{k}.a" for k in range(100_000)) + "} {}",
    "dialects of types": "func.func private @f(" + ",".join(f"!d{k}.a" for k in range(20_000)) + ")",
    "dialects of operations": "\n".join(f'"d{k}.a" () : () -> ()' for k in range(20_000)),
    "distinct attributes": "module attributes {" + ",".join(f"a.k{k} = distinct//\n[{k}]<1>" for k in range(100_000)) + "} {}",
    "what is behind a comment": "// c\rmodule attributes {a.a = " + "[" * N + "]" * N + "} {}",
    "chains of aliases": "!t0 = i32\n" + "".join(f"!t{k + 1} = tuple<!t{k}>\n" for k in range(N)) + "module {}",
    "chains of locations": "module {} loc(#l0)\n" + "".join(f'#l{k} = loc("a"(#l{k + 1}))\n' for k in range(N)),
    "doubling types": "!t0 = i32\n" + "".join(f"!t{k + 1} = tuple<!t{k}, !t{k}>\n" for k in range(60)) + "module {}",
    "doubling attributes": "#t0 = 1 " + "".join(f"#t{k + 1} = [#t{k}, #t{k}] " for k in range(60)) + "module {}",
}
