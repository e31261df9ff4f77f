# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of graphs that count: how often they run, and what their counters are, by counting with numbers that wrap.

Also conversions of constants, outer products, barriers, and sums that are joined.
"""

import numpy as np
import pytest

from nki_mlir.bindings import ir, operations_of
from nki_mlir.frameworks.stablehlo import read_graph, run_linked
from nki_mlir.graph.integer_functions import rewrite_counts_of_bits
from nki_mlir.graph.rewrites import fold_conversions, rewrite_counted_loops
from nki_mlir.graph.upstream import graph_context
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.passes.pipelines import GRAPH_ON_ENGINES
from tests.graph.lowered_graph import results_of
from tests.graph.reference import results_before_and_after

HOLDS = {"LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__}
EDGE = 127                          # the greatest int8


def wrapped(number: int) -> int:
    return (number + 128) % 256 - 128


def counted(first: int, step: int, direction: str, last: int) -> list[int] | None:
    """The counter in each iteration and behind the last one; None where it leaves int8."""
    values = [first]
    while HOLDS[direction](values[-1], last):
        values.append(values[-1] + step)
        if wrapped(values[-1]) != values[-1]:
            return None
    return values


def rewritten(first: int, step: int, direction: str, last: int, other: int, pace: int) -> tuple[int, list[int | None]]:
    """How often the loop runs that counts by constants, 0 where it was kept, and its counters behind it."""
    text = f"""func.func @main() -> (tensor<i8>, tensor<i8>) {{
  %first = stablehlo.constant dense<{first}> : tensor<i8>
  %other = stablehlo.constant dense<{other}> : tensor<i8>
  %r:2 = stablehlo.while(%i = %first, %k = %other) : tensor<i8>, tensor<i8> cond {{
    %last = stablehlo.constant dense<{last}> : tensor<i8>
    %go = stablehlo.compare {direction}, %i, %last : (tensor<i8>, tensor<i8>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %step = stablehlo.constant dense<{step}> : tensor<i8>
    %pace = stablehlo.constant dense<{pace}> : tensor<i8>
    %n = stablehlo.add %i, %step : tensor<i8>
    %m = stablehlo.add %k, %pace : tensor<i8>
    stablehlo.return %n, %m : tensor<i8>, tensor<i8>
  }}
  return %r#0, %r#1 : tensor<i8>, tensor<i8>
}}"""
    with graph_context(), ir.Location.unknown():
        module = read_graph(text)
        rewrite_counted_loops(module)
        assert module.operation.verify()
        loops = operations_of(module, lambda name: name == "scf.for")
        if not loops:
            return 0, []
        end, = operations_of(module, lambda name: name == "func.return")
        behind = [v.owner for v in end.operands]
        return (ir.IntegerAttr(loops[0].operands[1].owner.attributes["value"]).value,
                [int(ir.DenseIntElementsAttr(op.attributes["value"])[0]) if op.name == "stablehlo.constant" else None
                 for op in behind])


@pytest.mark.share(3)
@pytest.mark.parametrize("direction, sign, limit", [("LT", 1, EDGE), ("LE", 1, EDGE), ("GT", -1, -EDGE - 1),
                                                   ("GE", -1, -EDGE - 1)])
@pytest.mark.parametrize("step", [1, 2, 7])
@pytest.mark.parametrize("before", range(4))
def test_a_loop_is_counted_unless_its_counter_leaves_its_type(direction, sign, limit, step, before):
    """At both ends of int8, up to three steps before them; another counter begins so that it ends beside an edge."""
    last = limit - sign * before
    first = last - sign * 3 * step
    values = counted(first, sign * step, direction, last)
    for beyond in range(3):
        iterations = len(values or [0]) - 1
        other = wrapped(limit - sign * (iterations - 1 + beyond))
        number, behind = rewritten(first, sign * step, direction, last, other, sign)
        if values is None:
            assert number == 0
        else:
            exact = other + sign * iterations
            assert number == iterations
            assert behind == [values[-1], exact if wrapped(exact) == exact else None]


def test_counting_wraps_as_int8_does():
    assert counted(120, 4, "LT", 127) is None and counted(120, 3, "LT", 126) == [120, 123, 126]


@pytest.mark.parametrize("kind, first, step, last", [("f32", "0.0", "1.0", "5.0"), ("f64", "0.0", "0.5", "5.0"), ("i4", 0, 1, 5),
                                                   ("ui8", 0, 1, 5)])
def test_a_counter_of_another_type_stays_in_the_loop(kind, first, step, last):
    text = f"""func.func @main() -> tensor<{kind}> {{
  %first = stablehlo.constant dense<{first}> : tensor<{kind}>
  %r = stablehlo.while(%i = %first) : tensor<{kind}> cond {{
    %last = stablehlo.constant dense<{last}> : tensor<{kind}>
    %go = stablehlo.compare LT, %i, %last : (tensor<{kind}>, tensor<{kind}>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %step = stablehlo.constant dense<{step}> : tensor<{kind}>
    %n = stablehlo.add %i, %step : tensor<{kind}>
    stablehlo.return %n : tensor<{kind}>
  }}
  return %r : tensor<{kind}>
}}"""
    with graph_context(), ir.Location.unknown():
        module = read_graph(text)
        before = str(module)
        rewrite_counted_loops(module)
        assert str(module) == before


@pytest.mark.parametrize("source, number, result, expected", [
    ("f64", "0.1", "f32", 0.10000000149011612), ("i64", "-3", "f32", -3.0), ("i64", "7", "i32", 7), ("i32", "-2", "i64", -2),
    ("i64", "9007199254740993", "f32", None), ("i64", "4294967296", "i32", None), ("f64", "1.5", "i32", None),
    ("f64", "0.1", "bf16", 0.10009765625), ("f64", "0.1", "f16", 0.0999755859375),
    ("f64", "1.00390625000091", "bf16", None), ("i1", "true", "f32", None)])
def test_conversions_of_constants__are_folded_where_all_executors_agree(source, number, result, expected):
    text = f"""func.func @main() -> tensor<2x{result}> {{
  %c = stablehlo.constant dense<{number}> : tensor<2x{source}>
  %r = stablehlo.convert %c : (tensor<2x{source}>) -> tensor<2x{result}>
  return %r : tensor<2x{result}>
}}"""
    with graph_context(), ir.Location.unknown():
        module = read_graph(text)
        fold_conversions(module)
        assert module.operation.verify()
        end, = operations_of(module, lambda name: name == "func.return")
        op = end.operands[0].owner
        if expected is None:
            assert op.name == "stablehlo.convert"
        else:
            assert op.name == "stablehlo.constant"
            assert op.attributes["value"].get_splat_value().value == expected


@pytest.mark.parametrize("reads_product", [False, True])
def test_an_outer_product_in_loops_with_more_axes(reads_product):
    """Each element of the product is computed once, also where a later operation repeats it along another axis."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((8, 3), (8, 2)))
    text = f"""func.func @main(%a: tensor<8x3xf32>, %b: tensor<8x2xf32>) -> (tensor<8x4x3x2xf32>, tensor<8x3x2xf32>) {{
  %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [] x []
    : (tensor<8x3xf32>, tensor<8x2xf32>) -> tensor<8x3x2xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 2, 3] : (tensor<8x3x2xf32>) -> tensor<8x4x3x2xf32>
  %2 = stablehlo.add %1, %1 : tensor<8x4x3x2xf32>
  %3 = stablehlo.constant dense<1.0> : tensor<8x3x2xf32>
  return %2, {"%0" if reads_product else "%3"} : tensor<8x4x3x2xf32>, tensor<8x3x2xf32>
}}"""
    product = a[:, :, None] * b[:, None]
    for results in (run_linked(text, [a, b]), results_of(text, [a, b], orders=(1,))):
        np.testing.assert_array_equal(results[0], np.repeat(2 * product[:, None], 4, 1))
        np.testing.assert_array_equal(results[1], product if reads_product else np.ones_like(product))


def test_barriers_of_optimizations_compute_nothing():
    """``jax.checkpoint`` has such barriers in gradients."""
    text = """func.func @main(%a: tensor<4x6xf32>, %b: tensor<6xi32>) -> (tensor<6xi32>, tensor<4x6xf32>) {
  %0:2 = stablehlo.optimization_barrier %a, %b : tensor<4x6xf32>, tensor<6xi32>
  %1 = stablehlo.add %0#1, %b : tensor<6xi32>
  %2 = stablehlo.multiply %0#0, %a : tensor<4x6xf32>
  return %1, %2 : tensor<6xi32>, tensor<4x6xf32>
}"""
    a, b = np.arange(24, dtype=np.float32).reshape(4, 6), np.arange(6, dtype=np.int32)
    for results in (run_linked(text, [a, b]), results_of(text, [a, b])):
        for result, expected in zip(results, (b + b, a * a), strict=True):
            np.testing.assert_array_equal(result, expected, strict=True)


def test_sums_that_are_joined_while_others_are_computed():
    """Each sum writes its part of the joined buffer."""
    text = """func.func @main(%x: tensor<2x8x4xf32>) -> tensor<2x24xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [2] : (tensor<2x8x4xf32>, tensor<f32>) -> tensor<2x8xf32>
  %y = stablehlo.multiply %x, %x : tensor<2x8x4xf32>
  %b = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [2] : (tensor<2x8x4xf32>, tensor<f32>) -> tensor<2x8xf32>
  %w = stablehlo.multiply %x, %y : tensor<2x8x4xf32>
  %d = stablehlo.reduce(%w init: %z) applies stablehlo.add across dimensions = [2] : (tensor<2x8x4xf32>, tensor<f32>) -> tensor<2x8xf32>
  %c = stablehlo.concatenate %a, %b, %d, dim = 1 : (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x24xf32>
  %r = stablehlo.multiply %c, %c : tensor<2x24xf32>
  return %r : tensor<2x24xf32>
}"""
    x = np.random.default_rng(0).integers(-3, 4, (2, 8, 4)).astype(np.float32)
    expected = np.concatenate([(x ** k).sum(2) for k in (1, 2, 3)], 1) ** 2
    for results in (run_linked(text, [x]), results_of(text, [x])):
        np.testing.assert_array_equal(results[0], expected)


@pytest.mark.parametrize("name", ["popcnt", "count_leading_zeros"])
@pytest.mark.parametrize("kind", ["i8", "i16", "i32"])
def test_counts_of_bits(name, kind):
    width = int(kind[1:])
    x = np.arange(-128, 128).astype(f"int{width}") * np.array(1 << width - 8, f"int{width}") + np.arange(256).astype(f"int{width}")
    text = f"func.func @main(%x: tensor<256x{kind}>) -> tensor<256x{kind}> {{\n" \
        f"  %y = stablehlo.{name} %x : tensor<256x{kind}>\n  return %y : tensor<256x{kind}>\n}}"
    _, (counts,), module = results_before_and_after(text, rewrite_counts_of_bits, [x])
    bits = [np.binary_repr(n, width) for n in x]
    assert counts.tolist() == [b.count("1") if name == "popcnt" else len(b) - len(b.lstrip("0")) for b in bits]
    assert f"stablehlo.{name}" not in module


SCALAR_CONDITION = """func.func @main(%c: tensor<i32>, %x: tensor<130x3xf32>, %y: tensor<130x3xf32>) -> tensor<130x3xf32> {
  %limit = stablehlo.constant dense<7> : tensor<i32>
  %p = stablehlo.compare LT, %c, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %r = stablehlo.select %p, %x, %y : tensor<i1>, tensor<130x3xf32>
  return %r : tensor<130x3xf32>
}"""


@pytest.mark.parametrize("number", [6, 7, 8, -1 << 31, (1 << 31) - 1])
def test_one_condition_for_all_elements(number):
    x, y = np.random.default_rng(0).standard_normal((2, 130, 3)).astype(np.float32)
    y[0, 0], x[1, 1] = np.nan, -np.inf
    result, = results_of(SCALAR_CONDITION, (np.int32(number), x, y), orders=(None, 1))
    np.testing.assert_array_equal(result.reshape(130, 3), x if number < 7 else y)


def test_a_constant_condition_for_all_elements__is_folded():
    constant = SCALAR_CONDITION.replace("%c: tensor<i32>, ", "").replace(
        "  %limit", "  %c = stablehlo.constant dense<6> : tensor<i32>\n  %limit")
    with graph_context(), ir.Location.unknown():
        module = ir.Module.parse(constant)
        run_passes(module, [pass_named("stablehlo-to-linalg", GRAPH_ON_ENGINES)])
        assert "select" not in str(module) and "memref.load" not in str(module)
