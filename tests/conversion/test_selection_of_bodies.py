# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""linalg-to-nisa on bodies of several scalar operations: every expression keeps its value, bit for bit."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import is_tile_op, shared_context
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.targets.interpreter.module import compile_function

from ..property_counts import tries

P, F = 6, 10
DATA = np.random.default_rng(3)
# Each input: its shape in memory, the strides of its view over the nest, its element type, its values.
INPUTS = [
    ((P, F), (F, 1), "f32", DATA.standard_normal((P, F)).astype(np.float32) * 3),
    ((P, F), (F, 1), "bf16", DATA.standard_normal((P, F)).astype(ml_dtypes.bfloat16)),
    ((P, 1), (1, 0), "f32", DATA.standard_normal((P, 1)).astype(np.float32)),
    ((P, F), (F, 1), "i32", DATA.integers(-2**31, 2**31 - 1, (P, F)).astype(np.int32)),
    ((P, F), (F, 1), "ui8", DATA.integers(0, 255, (P, F)).astype(np.uint8)),
    ((1, F), (0, 1), "f32", DATA.standard_normal((1, F)).astype(np.float32)),
]
RESULTS = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "i8": np.int8}


class Body:
    """The text of a body; each method adds an operation and gives the name of its value."""

    def __init__(self):
        self.lines = []

    def emit(self, text):
        self.lines.append(f"  %v{len(self.lines)} = {text}")
        return f"%v{len(self.lines) - 1}"

    def alu(self, fn, kind, *values):
        kinds = ", ".join([kind] * len(values))
        return self.emit(f'"scalar.alu"({", ".join(values)}) {{fn = "{fn}"}} : ({kinds}) -> {kind}')

    def activation(self, fn, value):
        return self.emit(f'"scalar.activation"({value}) {{fn = "{fn}"}} : (f32) -> f32')

    def convert(self, value, frm, to):
        return value if frm == to else self.emit(f'"scalar.convert"({value}) : ({frm}) -> {to}')

    def constant(self, value, kind):
        return self.emit(f"arith.constant {value!r} : {kind}")

    def position(self, a, b, c):
        i, j = self.emit("linalg.index 0 : index"), self.emit("linalg.index 1 : index")
        at = self.emit(f"affine.apply affine_map<(d0, d1) -> (d0 * {a} + d1 * {b} + {c})>({i}, {j})")
        return self.emit(f"arith.index_cast {at} : index to i32")


def build(tree, b):
    """Add a tree to a body. A tree is (kind of node, parameter, children...)."""
    name, value, *children = tree
    parts = [build(c, b) for c in children]
    match name:
        case "input":
            return b.convert(f"%in{value}", INPUTS[value][2], "f32")
        case "integer input":
            return b.convert(f"%in{value}", INPUTS[value][2], "i32")
        case "f32" | "i32":
            return b.constant(value, name)
        case "position":
            return b.convert(b.position(*value), "i32", "f32")
        case "alu":
            return b.alu(value, "f32", *parts)
        case "integer alu":
            return b.alu(value, "i32", *parts)
        case "activation":
            return b.activation(value, *parts)
        case "round":
            return b.convert(b.convert(parts[0], "f32", value), value, "f32")
        case "to float":
            return b.convert(parts[0], "i32", "f32")
    return b.convert(parts[0], "f32", "i32")


def node(name, values, *children):
    return st.tuples(st.just(name), st.sampled_from(values), *children)


BINARY = ["add", "subtract", "multiply", "maximum", "minimum", "less", "equal", "greater_equal", "logical_and",
          "divide"]
FLOATS = st.deferred(lambda: st.one_of(
    node("input", range(len(INPUTS))), node("f32", [0.0, -0.0, 1.0, -1.5, 0.25]),
    node("position", [(1, 2, -5), (-1, 1, 0), (0, 1, -4)]), node("alu", BINARY, FLOATS, FLOATS),
    node("alu", ["abs", "square", "relu", "negative", "logical_not", "reciprocal"], FLOATS),
    node("activation", ["square", "tanh", "negative", "sign"], FLOATS), node("alu", ["select"], FLOATS, FLOATS, FLOATS),
    node("round", ["bf16", "i8", "i32", "i1"], FLOATS), node("to float", [None], INTEGERS)))
INTEGERS = st.deferred(lambda: st.one_of(
    node("integer input", [3, 4]), node("i32", [0, 1, -3, 1 << 20]),
    node("integer alu", ["add", "subtract", "multiply", "bitwise_and", "bitwise_xor"], INTEGERS, INTEGERS),
    node("to integer", [None], FLOATS)))


def kernel_text(tree, result):
    body = Body()
    integer = tree[0].startswith(("integer", "i32", "to integer"))
    value = body.convert(build(tree, body), "i32" if integer else "f32", result)
    copies, views, kinds = [], [], []
    for k, (shape, strides, dtype, _) in enumerate(INPUTS):
        flat = "x".join(map(str, (*shape, dtype)))
        view = f'memref<{P}x{F}x{dtype}, strided<[{strides[0]}, {strides[1]}]>, "sbuf">'
        copies.append(f"""
  %t{k} = memref.alloc() : memref<{flat}, "sbuf">
  linalg.copy ins(%arg{k} : memref<{flat}, "hbm">) outs(%t{k} : memref<{flat}, "sbuf">)
  %w{k} = memref.reinterpret_cast %t{k} to offset: [0], sizes: [{P}, {F}], strides: [{strides[0]}, {strides[1]}]
    : memref<{flat}, "sbuf"> to {view}""")
        views.append(view)
        kinds.append(f"%in{k}: {dtype}")
    arguments = ", ".join(f'%arg{k}: memref<{"x".join(map(str, (*shape, dtype)))}, "hbm">'
                          for k, (shape, _, dtype, _) in enumerate(INPUTS))
    same, out = "affine_map<(d0, d1) -> (d0, d1)>", f"{P}x{F}x{result}"
    return f"""
func.func @k({arguments}, %result: memref<{out}, "hbm"> {{nki.shared = 0 : i64}}) attributes {{nki.results = [6]}} {{
  {"".join(copies)}
  %y = memref.alloc() : memref<{out}, "sbuf">
  linalg.generic {{indexing_maps = [{", ".join([same] * 7)}], iterator_types = ["parallel", "parallel"]}}
    ins({", ".join(f"%w{k}" for k in range(6))} : {", ".join(views)}) outs(%y : memref<{out}, "sbuf">) {{
  ^bb0({", ".join(kinds)}, %out: {result}):
{chr(10).join(body.lines)}
    linalg.yield {value} : {result}
  }}
  linalg.copy ins(%y : memref<{out}, "sbuf">) outs(%result : memref<{out}, "hbm">)
  return
}}"""


def run(module, result):
    output = np.zeros((P, F), RESULTS[result])
    compile_function(the_kernel(module))((), [x for *_, x in INPUTS], [output])
    return output


def lowered(text):
    with shared_context():
        module = ir.Module.parse(text)
    run_passes(module, [pass_named("linalg-to-nisa"), pass_named("verify-target")])
    assert module.operation.verify()
    return module


def instructions(module):
    names = []

    def visit(op):
        if is_tile_op(op) and op.name != "nisa.dma_copy":
            names.append(op.name.removeprefix("nisa."))
        return ir.WalkResult.ADVANCE
    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return names


@given(st.one_of(FLOATS, INTEGERS), st.sampled_from(list(RESULTS)))
@tries(50, suppress_health_check=list(HealthCheck))
def test_any_expression(tree, result):
    text = kernel_text(tree, result)
    with shared_context():
        waist = ir.Module.parse(text)
    want, got = run(waist, result), run(lowered(text), result)
    nan = np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    np.testing.assert_array_equal(got[~nan].view(f"u{got.itemsize}"), want[~nan].view(f"u{got.itemsize}"))


X, W, COLUMN, ROW = ("input", 0), ("input", 1), ("input", 2), ("input", 5)


def check(tree, *expected):
    assert instructions(lowered(kernel_text(tree, "f32"))) == list(expected)


def test_two_operations_with_scalar_operands_are_one_instruction():
    check(("alu", "add", ("alu", "multiply", X, ("f32", 2.0)), COLUMN), "tensor_scalar")
    check(("alu", "maximum", ("f32", 0.0), ("alu", "subtract", COLUMN, X)), "tensor_scalar")
    check(("alu", "abs", ("alu", "subtract", X, COLUMN)), "tensor_scalar")


def test_a_scalar_operation_and_a_tile_are_one_instruction():
    check(("alu", "add", ("alu", "multiply", X, COLUMN), W), "scalar_tensor_tensor")
    check(("alu", "subtract", W, ("alu", "multiply", X, ("f32", 2.0))), "scalar_tensor_tensor")


def test_scale_and_bias_go_into_the_activation():
    check(("activation", "tanh", ("alu", "add", ("alu", "multiply", X, ("f32", 0.5)), COLUMN)), "activation")
    check(("activation", "tanh", ("alu", "multiply", X, COLUMN)), "activation")
    check(("activation", "tanh", ("alu", "add", X, W)), "tensor_tensor", "activation")


def test_a_short_reciprocal_loads_no_functions():
    check(("activation", "reciprocal", X), "reciprocal")
    check(("activation", "reciprocal", ("alu", "multiply", X, ("f32", 0.5))), "activation")


def test_a_value_that_is_used_twice_is_computed_once():
    once = ("activation", "tanh", X)
    check(("alu", "multiply", once, once), "activation", "tensor_tensor")


def test_rounding_inside_a_body_is_a_buffer_of_that_type():
    check(("alu", "add", ("round", "bf16", ("alu", "multiply", X, W)), X), "tensor_tensor", "tensor_tensor")


def test_a_part_that_is_one_number_a_partition_is_computed_on_one_column():
    check(("alu", "multiply", X, ("alu", "reciprocal", ("alu", "add", COLUMN, ("f32", 1.0)))), "tensor_scalar",
          "reciprocal", "tensor_scalar")


def test_selection_by_position_is_an_affine_selection():
    inside = ("alu", "greater_equal", ("position", (1, -1, 0)), ("f32", 0.0))
    check(("alu", "select", inside, X, ("f32", -1.5)), "affine_select")


@pytest.mark.parametrize("fn", ["add", "subtract", "multiply"])
@pytest.mark.parametrize("result", RESULTS)
def test_integer_arithmetic_is_computed_in_its_type_and_converted_then(fn, result):
    text = kernel_text(("integer alu", fn, ("integer input", 3), ("i32", 3)), result)
    selected = instructions(lowered(text))
    assert selected == ["tensor_scalar"] + ["tensor_copy"] * (result != "i32")
    with shared_context():
        waist = ir.Module.parse(text)
    np.testing.assert_array_equal(run(lowered(text), result), run(waist, result))
