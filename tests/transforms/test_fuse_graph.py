# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What fuse-graph fuses of chains, and what it leaves where operations would lose the extents of an axis."""

from nki_mlir.bindings import Module, ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.transforms.fuse_graph import FuseGraph, access_counts

HEAD = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#number = affine_map<(d0, d1) -> ()>
!hbm = memref<8x4xf32, "hbm">
!half = memref<4x4xf32, strided<[4, 1]>, "hbm">
!other = memref<4x4xf32, strided<[4, 1], offset: 16>, "hbm">
!tile = memref<8x4xf32, "sbuf">
"""


def elementwise(source: str, target: str, operation: str, kinds: str = "!hbm to !hbm") -> str:
    read, written = kinds.split(" to ")
    return f"""
  linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}}
    ins(%{source} : {read}) outs(%{target} : {written}) {{
  ^bb0(%in: f32, %out: f32):
    %v = {operation}
    linalg.yield %v : f32
  }}"""


def fused(function: str) -> Module:
    context = shared_context()
    with context, ir.Location.unknown():
        module = ir.Module.parse(HEAD + function)
        FuseGraph().run(module)
        assert module.operation.verify()
        return module


def operations(module: Module) -> list[str]:
    """What the bodies of its operations compute, in their order."""
    text = str(module)
    return [line.split("= ")[1].split(" ")[0] for line in text.splitlines() if "= arith." in line and " f32" in line
            and "constant" not in line]


def test_what_follows_each_of_two_kernels__is_computed_where_they_store():
    module = fused(f"""
func.func @main(%a: !hbm, %r: !hbm {{nki.shared = 0 : i64}}, %q: !hbm {{nki.shared = 1 : i64}}) {{
  %f = arith.constant 2.0 : f32
  %one = memref.alloc() : !hbm
  %two = memref.alloc() : !hbm
  %tile = memref.alloc() : !tile
  {elementwise("a", "tile", "arith.negf %in : f32", "!hbm to !tile")}
  {elementwise("tile", "one", "arith.divf %f, %in : f32", "!tile to !hbm")}
  {elementwise("one", "r", "arith.mulf %in, %f : f32")}
  {elementwise("tile", "two", "arith.divf %in, %f : f32", "!tile to !hbm")}
  {elementwise("two", "q", "arith.addf %in, %f : f32")}
  return
}}""")
    assert str(module).count("linalg.generic") == 3
    assert operations(module) == ["arith.negf", "arith.divf", "arith.mulf", "arith.divf", "arith.addf"]


def test_a_chain_of_a_graph__becomes_part_of_the_kernel_before_it():
    module = fused(f"""
func.func @main(%a: !hbm, %r: !hbm {{nki.shared = 0 : i64}}) {{
  %f = arith.constant 2.0 : f32
  %stored = memref.alloc() : !hbm
  %scaled = memref.alloc() : !hbm
  %moved = memref.alloc() : !hbm
  %tile = memref.alloc() : !tile
  {elementwise("a", "tile", "arith.negf %in : f32", "!hbm to !tile")}
  {elementwise("tile", "stored", "arith.divf %f, %in : f32", "!tile to !hbm")}
  {elementwise("stored", "scaled", "arith.mulf %in, %f : f32")}
  {elementwise("scaled", "moved", "arith.addf %in, %f : f32")}
  {elementwise("moved", "r", "arith.subf %in, %f : f32")}
  return
}}""")
    assert str(module).count("linalg.generic") == 2
    assert operations(module) == ["arith.negf", "arith.divf", "arith.mulf", "arith.addf", "arith.subf"]


def test_numbers_that_one_of_two_readers_sums__stay_where_they_are():
    """Without the buffer that is summed, nothing says how many columns there are."""
    module = fused(f"""
func.func @main(%r: memref<4x4xf32, "hbm"> {{nki.shared = 0 : i64}}, %s: memref<4xf32, "hbm"> {{nki.shared = 1 : i64}}) {{
  %f = arith.constant 2.0 : f32
  %twos = memref.alloc() : !hbm
  linalg.generic {{indexing_maps = [#number, #id], iterator_types = ["parallel", "parallel"]}}
    ins(%f : f32) outs(%twos : !hbm) {{
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }}
  %above = memref.reinterpret_cast %twos to offset: [0], sizes: [4, 4], strides: [4, 1] : !hbm to !half
  %below = memref.reinterpret_cast %twos to offset: [16], sizes: [4, 4], strides: [4, 1] : !hbm to !other
  {elementwise("above", "r", "arith.negf %in : f32", '!half to memref<4x4xf32, "hbm">')}
  linalg.generic {{indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}}
    ins(%below : !other) outs(%s : memref<4xf32, "hbm">) {{
  ^bb0(%in: f32, %out: f32):
    %v = arith.addf %in, %out : f32
    linalg.yield %v : f32
  }}
  return
}}""")
    assert str(module).count("linalg.generic") == 3 and operations(module) == ["arith.negf", "arith.addf"]


def test_accesses__at_an_unknown_offset_or_in_another_operation_are_not_counted():
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(HEAD + """
func.func @main(%a: !hbm, %n: index, %c: i1) {
  %v = arith.constant 1.0 : f32
  %zero = arith.constant 0 : index
  %part = memref.subview %a[%n, 0] [2, 4] [1, 1] : !hbm to memref<2x4xf32, strided<[4, 1], offset: ?>, "hbm">
  linalg.fill ins(%v : f32) outs(%part : memref<2x4xf32, strided<[4, 1], offset: ?>, "hbm">)
  scf.if %c {
    linalg.fill ins(%v : f32) outs(%a : !hbm)
  }
  linalg.fill ins(%v : f32) outs(%a : !hbm)
  return
}""")
        function = module.body.operations[0]
        buffer = function.regions[0].blocks[0].arguments[0]
        in_if = next(op for op in function.regions[0].blocks[0] if op.operation.name == "scf.if")
        fills = [op for op in function.regions[0].blocks[0] if op.operation.name == "linalg.fill"]
        inner = in_if.regions[0].blocks[0].operations[0]
        accesses = [(op.operation, op.operation.operands[1]) for op in (fills[0], inner, fills[1])]
        assert access_counts(buffer, [accesses[0]]) is None and access_counts(buffer, [accesses[1]]) is None
        assert access_counts(buffer, [accesses[2]] * 2).tolist() == [2] * 32
