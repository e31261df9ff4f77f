# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A function of the waist as records: what each node says, and what is refused."""

import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT32, INT64
from nki_mlir.waist.function import (
    BufferAllocation,
    ElementLoad,
    ForLoop,
    FunctionBlock,
    IfBranch,
    IndexCast,
    IndexMap,
    IndexOperation,
    NestComputation,
    ScalarConstant,
    ScalarStep,
    WhileLoop,
    nodes_of,
)
from nki_mlir.waist.reader import Executor, read_function, scalar_value

HERE = Executor("in this test")
KERNEL = """
func.func @k(%x: memref<8x4xf32, "hbm">, %y: memref<8x4xf32, "hbm">) attributes {nki.kernel, nki.results = [1 : i64],
    arg_attrs = [{nki.name = "x"}, {nki.name = "y", nki.shared = 0 : i64}], nki.target = "trn2"} {
  BODY
  return
}"""


def read(body: str) -> tuple[ir.Module, FunctionBlock]:
    module = ir.Module.parse(KERNEL.replace("BODY", body), shared_context())
    return module, read_function(the_kernel(module).op, HERE)


def test_nodes__are_those_of_all_blocks_in_order():
    _module, block = read("""
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %n = memref.alloc() : memref<1x1xi32, "sbuf">
  scf.for %i = %c0 to %c8 step %c2 {
    %k = memref.load %n[%c0, %c0] : memref<1x1xi32, "sbuf">
    %j = arith.index_cast %k : i32 to index
    %less = arith.cmpi ult, %j, %i : index
    scf.if %less {
      memref.copy %x, %y : memref<8x4xf32, "hbm"> to memref<8x4xf32, "hbm">
    } else {
      %m = affine.min affine_map<(d0)[s0] -> (d0, s0 + 4)>(%i)[%j]
      scf.while : () -> () {
        %more = arith.cmpi slt, %i, %m : index
        scf.condition(%more)
      } do {
        scf.yield
      }
    }
  } {nki.loop = "parallel"}
""")
    nodes = list(nodes_of(block))
    assert [type(n) for n in nodes] == [
        ScalarConstant, ScalarConstant, ScalarConstant, BufferAllocation, ForLoop, ElementLoad, IndexCast, IndexOperation,
        IfBranch, NestComputation, IndexMap, WhileLoop, IndexOperation]
    loop, load, cast, less, branch, copy, least, endless, more = nodes[4:]
    assert (loop.span, loop.parallel) == (range(0, 8, 2), True)
    assert (less.function, more.function, least.choice) == ("ult", "lt", "min")
    assert list(less.operands) == [cast.result, loop.variable] and branch.condition == less.result
    assert load.memref == nodes[3].result and list(load.subscripts) == [nodes[0].result] * 2
    assert (copy.read.nest.extents, copy.read.nest.steps, copy.read.nest.results) == ((8, 4), (), (0,))
    assert endless.test.condition == more.result and endless.body.nodes == []


@pytest.mark.parametrize("marks, parallel", [("", False), ('{nki.loop = "sequential"}', False),
                                             ('{nki.loop = "parallel"}', True)])
def test_iterations_are_independent__where_the_author_says_so(marks, parallel):
    _module, block = read(f"""
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  scf.for %i = %c0 to %c2 step %c2 {{ }} {marks}
""")
    assert block.nodes[-1].parallel is parallel


@pytest.mark.parametrize("inner, idle", [
    ("", True),
    ("%m = arith.muli %j, %c2 : index", True),
    ("scf.for %k = %c0 to %c2 step %c2 { }", True),
    ("memref.copy %x, %y : memref<8x4xf32, \"hbm\"> to memref<8x4xf32, \"hbm\">", False),
    ("%t = arith.cmpi slt, %j, %c2 : index\n scf.if %t { }", False),
], ids=["empty", "numbers", "a loop", "a copy", "a branch"])
def test_loops_are_idle__that_only_count_and_compute_numbers(inner, idle):
    """The loop around such a loop is idle as well."""
    _module, block = read(f"""
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  scf.for %i = %c0 to %c2 step %c2 {{
    scf.for %j = %c0 to %i step %c2 {{
      {inner}
    }}
  }}
""")
    outer = block.nodes[-1].body
    assert (outer.nodes[-1].body.is_idle, outer.is_idle, block.is_idle) == (idle, idle, idle)


def test_views__are_offsets_in_bytes_from_their_buffer():
    module, block = read("""
  %c3 = arith.constant 3 : index
  %a = memref.subview %x[%c3, 1][2, 2][1, 1]
      : memref<8x4xf32, "hbm"> to memref<2x2xf32, strided<[4, 1], offset: ?>, "hbm">
  %b = memref.reinterpret_cast %x to offset: [%c3], sizes: [2, 2], strides: [4, 1]
      : memref<8x4xf32, "hbm"> to memref<2x2xf32, strided<[4, 1], offset: ?>, "hbm">
  %c = memref.transpose %x (i, j) -> (j, i) : memref<8x4xf32, "hbm"> to memref<4x8xf32, strided<[1, 4]>, "hbm">
  %d = memref.subview %a[1, 0][1, 2][1, 1] : memref<2x2xf32, strided<[4, 1], offset: ?>, "hbm">
      to memref<1x2xf32, strided<[4, 1], offset: ?>, "hbm">
  %e = memref.subview %c[0, 0][1, 2][1, 1] : memref<4x8xf32, strided<[1, 4]>, "hbm">
      to memref<1x2xf32, strided<[1, 4]>, "hbm">
  memref.copy %a, %b : memref<2x2xf32, strided<[4, 1], offset: ?>, "hbm">
      to memref<2x2xf32, strided<[4, 1], offset: ?>, "hbm">
  memref.copy %d, %e : memref<1x2xf32, strided<[4, 1], offset: ?>, "hbm"> to memref<1x2xf32, strided<[1, 4]>, "hbm">
""")
    three, *copies = block.nodes
    assert list(block.index_values) == [three.result]
    x = the_kernel(module).op.regions[0].blocks[0].arguments[0]
    assert all(region.root == x for copy in copies for region in copy.regions)
    assert [[region.offset for region in copy.regions] for copy in copies] == [
        [Linear(4, ((0, 16),)), Linear(0, ((0, 4),))], [Linear(20, ((0, 16),)), Linear()]]


def test_structures_that_are_equal__are_read_once():
    _module, block = read("""
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<8x4xf32, "hbm">)
  linalg.fill ins(%zero : f32) outs(%y : memref<8x4xf32, "hbm">)
  linalg.fill ins(%one : f32) outs(%y : memref<8x4xf32, "hbm">)
""")
    first, second, third = (node.read for node in block.nodes[2:])
    assert first.structure is second.structure and first.structure is not third.structure
    assert [nest.steps[0].number for nest in (first.nest, third.nest)] == ["0.0", "1.0"]


@pytest.mark.parametrize("arithmetic, factor", [("arith.addi", 1), ("arith.subi", -1)])
def test_body__integers_from_outside_are_its_symbols(arithmetic, factor):
    """Numbers that are computed outside, in the body's own arithmetic and in its places."""
    _module, block = read("""
  %c0 = arith.constant 0 : index
  %n = memref.alloc() : memref<1x1xi32, "sbuf">
  %k = memref.load %n[%c0, %c0] : memref<1x1xi32, "sbuf">
  %j = arith.index_cast %k : i32 to index
  linalg.generic {indexing_maps = [affine_map<(p, f) -> (p, f)>], iterator_types = ["parallel", "parallel"]}
    outs(%y : memref<8x4xf32, "hbm">) {
  ^bb0(%old: f32):
    %f = linalg.index 1 : index
    %place = ARITHMETIC %f, %j : index
    %number = arith.index_cast %place : index to i32
    %sum = "scalar.alu"(%number, %k) {fn = "add"} : (i32, i32) -> i32
    %value = "scalar.convert"(%sum) : (i32) -> f32
    linalg.yield %value : f32
  }
""".replace("ARITHMETIC", arithmetic))
    _, _, load, cast, generic = block.nodes
    position, number, total, value = generic.read.nest.steps
    assert position.number == Linear(0, ((0, factor),), ((1, 1),)) and number.number == Linear(0, ((1, 1),))
    assert list(generic.read.symbols) == [cast.result, load.result]
    assert (total.kind, total.name, value.kind) == ("alu", "add", "convert")


def test_body__integers_from_elements_are_computed_with_positions():
    _module, block = read("""
  linalg.generic {indexing_maps = [affine_map<(p, f) -> (p, f)>], iterator_types = ["parallel", "parallel"]}
    outs(%y : memref<8x4xf32, "hbm">) {
  ^bb0(%old: f32):
    %data = "scalar.convert"(%old) : (f32) -> i32
    %moved = arith.index_cast %data : i32 to index
    %f = linalg.index 1 : index
    %sum = arith.addi %f, %moved : index
    %number = arith.index_cast %sum : index to i32
    %value = "scalar.convert"(%number) : (i32) -> f32
    linalg.yield %value : f32
  }
""")
    nest = block.nodes[0].read.nest
    assert [(s.kind, s.name, s.dtype, s.operands) for s in nest.steps] == [
        ("convert", "", INT32, (0,)), ("position", "", INT32, ()), ("alu", "add", INT32, (2, 1)),
        ("convert", "", FLOAT32, (3,))]
    assert nest.steps[1].number == Linear(0, (), ((1, 1),))


def test_functions_of_indices__read_64_bits():
    _module, block = read("""
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  scf.for %i = %c0 to %c2 step %c2 {
    %n = "scalar.convert"(%i) : (index) -> i32
    %m = "scalar.alu"(%n, %n) {fn = "add"} : (i32, i32) -> i32
  }
""")
    steps = [node for node in nodes_of(block) if isinstance(node, ScalarStep)]
    assert [(node.step.kind, node.dtypes) for node in steps] == [("convert", [INT64]), ("alu", [INT32, INT32])]


@pytest.mark.parametrize("body, text", [
    ("%c = arith.constant 1 : index\n %v = scf.for %i = %c to %c step %c iter_args(%a = %c) -> (index) {\n"
     " scf.yield %a : index\n }",
     "'scf.for' with loop-carried values is not supported; keep them in a buffer"),
    ("%t = arith.constant true\n %v = scf.if %t -> (i1) {\n scf.yield %t : i1\n } else {\n scf.yield %t : i1\n }",
     "'scf.if' with loop-carried values is not supported; keep them in a buffer"),
    ("%n = memref.dim %x, %c : memref<8x4xf32, \"hbm\">",
     "'memref.dim' in this test is not supported; lower to the nki, waist or nisa level"),
    ("%h = memref.alloc() : memref<8x4xf16, \"hbm\">\n"
     " linalg.copy ins(%x : memref<8x4xf32, \"hbm\">) outs(%h : memref<8x4xf16, \"hbm\">)",
     "'linalg.copy' between memref<8x4xf32, \"hbm\"> and memref<8x4xf16, \"hbm\"> is not supported; "
     "convert the elements"),
    ("linalg.generic {indexing_maps = [affine_map<(p, f) -> (p, f)>], iterator_types = [\"parallel\", \"parallel\"]}\n"
     " outs(%y : memref<8x4xf32, \"hbm\">) {\n^bb0(%old: f32):\n %sum = arith.addf %old, %old : f32\n"
     " linalg.yield %sum : f32\n}",
     "'arith.addf' in a scalar expression is not supported; use operations of the scalar dialect"),
])
def test_what_no_executor_takes__is_refused(body, text):
    with pytest.raises(Unsupported) as caught:
        read("%c = arith.constant 0 : index\n" + body if "memref.dim" in body else body)
    assert f"{caught.value.headline}; {caught.value.values['instead']}" == text


def test_functions_of_narrow_floats__are_computed_in_float32_and_rounded_once():
    text = KERNEL.replace("f32", "bf16").replace("BODY", """
    linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>],
                    iterator_types = ["parallel", "parallel"]} ins(%x : memref<8x4xbf16, "hbm">)
        outs(%y : memref<8x4xbf16, "hbm">) {
    ^bb0(%in: bf16, %out: bf16):
      %0 = "scalar.activation"(%in) {fn = "gelu"} : (bf16) -> bf16
      %1 = "scalar.alu"(%0, %in) {fn = "multiply"} : (bf16, bf16) -> bf16
      linalg.yield %1 : bf16
    }""")
    module = ir.Module.parse(text, shared_context())
    nest = next(node.read.nest for node in nodes_of(read_function(the_kernel(module).op, HERE))
                if isinstance(node, NestComputation))
    assert [(s.kind, s.dtype) for s in nest.steps] == [
        ("convert", FLOAT32), ("activation", FLOAT32), ("convert", BFLOAT16),
        ("convert", FLOAT32), ("convert", FLOAT32), ("alu", FLOAT32), ("convert", BFLOAT16)]


@pytest.mark.parametrize("text", [
    "affine.store %a, %t[%i] : memref<4xf32>",
    "%0, %1 = arith.mulsi_extended %n, %n : i32"])
def test_operations_of_other_numbers_of_results_are_no_scalar_values(text):
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(
            f"func.func @f(%a: f32, %i: index, %n: i32) {{\n%t = memref.alloc() : memref<4xf32>\n{text}\nreturn\n}}")
        _, op, _ = module.body.operations[0].regions[0].blocks[0].operations
        assert scalar_value(op.operation) is None
