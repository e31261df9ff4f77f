# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sorts of graphs as networks of exchanges on the engines, against sorts of NumPy and JAX; and the bits of numbers."""

from itertools import product

import numpy as np
import pytest

from nki_mlir.bindings import ir, operations_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.frameworks.stablehlo import run_linked
from nki_mlir.graph import sorting_network
from nki_mlir.graph.sorting_network import steps
from nki_mlir.graph.upstream import graph_context
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.passes.pipelines import GRAPH_ON_ENGINES
from tests.graph.lowered_graph import bits, results_of

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
SPECIAL = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5], np.float32)      # denormals are zeros to XLA


@pytest.mark.parametrize("extent", range(1, 12))
def test_the_network_sorts_all_zeros_and_ones(extent):
    """A network that sorts every sequence of two values sorts every sequence."""
    for values in product((0, 1), repeat=extent):
        line = list(values)
        for distance, is_compared in steps(extent):
            for i in np.flatnonzero(is_compared):
                line[i], line[i + distance] = sorted((line[i], line[i + distance]))
        assert line == sorted(values)


@pytest.mark.parametrize("extent", [2, 7, 64, 100, 129])
def test_a_step_compares_each_element_once(extent):
    for distance, is_compared in steps(extent):
        positions = np.flatnonzero(is_compared)
        assert len({*positions, *(positions + distance)}) == 2 * len(positions)


def numbers(seed, *shape):
    """Numbers with ties and special values."""
    rng = np.random.default_rng(seed)
    return rng.choice([*SPECIAL, *rng.standard_normal(8).astype(np.float32)], shape).astype(np.float32)


def agrees(function, *arguments):
    """The streams of a function have the bits of its values in JAX."""
    compiled = jax.jit(function)
    expected = jax.tree.leaves(compiled(*arguments))
    for got, value in zip(results_of(compiled.lower(*arguments).as_text(), arguments, orders=(1,)), expected,
                          strict=True):
        np.testing.assert_array_equal(bits(got), bits(np.asarray(value)))


INTEGERS = np.random.default_rng(3).integers(-4, 4, (5, 11)).astype(np.int32)
WIDE = np.random.default_rng(4).integers(-2 ** 31, 2 ** 31 - 1, (5, 11)).astype(np.int32)


@pytest.mark.share(4)
@pytest.mark.parametrize("function, arguments", [
    (lambda x: jnp.argsort(x, axis=1), [numbers(0, 3, 13)]),
    (lambda x: jnp.sort(x, axis=0), [numbers(1, 9, 4)]),
    (lambda x: jnp.sort(x, axis=1, descending=True), [numbers(2, 2, 6, 3)]),
    (lambda x: jnp.sort(x), [numbers(5, 16).astype(jnp.bfloat16)]),
    (lambda x: lax.top_k(x, 3), [WIDE]),
    (lambda x, y: lax.sort((x, y), num_keys=2), [INTEGERS, WIDE]),
    (lambda x: jnp.sort(x, axis=1), [INTEGERS.astype(np.uint8)]),
    (lambda x: jnp.sort(x, axis=1), [numbers(6, 4, 1)]),
], ids=["argsort", "columns", "descending", "bfloat16", "top_k", "two_keys", "uint8", "one_element"])
def test_sorts(function, arguments):
    agrees(function, *arguments)


@pytest.mark.share(4)
@pytest.mark.parametrize("function, arguments", [
    (lambda x: jnp.sort(x, axis=1), [numbers(0, 8, 5)]),
    (lambda x: jnp.argsort(x, axis=1), [numbers(1, 11, 6)]),
    (lambda x: jnp.sort(x, axis=0, descending=True), [numbers(2, 3, 5, 3)]),
    (lambda x, y: lax.sort((x, y, x * 2), num_keys=2), [INTEGERS.T, WIDE.T]),
    (lambda x: lax.fori_loop(0, 3, lambda i, t: jnp.sort(t * -0.5, axis=1), x), [numbers(3, 9, 4)]),
    (lambda x: jnp.argsort(x, axis=1), [numbers(4, 6, 5)]),
], ids=["complete_blocks", "positions_and_rest", "columns", "three_operands", "in_a_loop", "small_blocks"])
def test_sorts_in_blocks_of_rows(function, arguments, monkeypatch):
    monkeypatch.setattr(sorting_network, "ROWS", 6)
    monkeypatch.setattr(sorting_network, "BLOCK", 4)
    monkeypatch.setattr(sorting_network, "SMALL_BLOCK", 2)
    agrees(function, *arguments)


def test_time_of_a_sort_does_not_grow_with_its_rows():
    """The program of a sort of more blocks has the same operations."""
    texts = []
    for rows in (2_048, 8_192):
        with graph_context(), ir.Location.unknown():
            module = ir.Module.parse(jax.jit(jnp.sort).lower(np.zeros((rows, 4), np.float32)).as_text())
            run_passes(module, [pass_named("stablehlo-to-linalg", GRAPH_ON_ENGINES)])
            texts.append(str(module))
    assert texts[0].count("scf.for") == 1 and texts[0].count("linalg.generic") == texts[1].count("linalg.generic")


@pytest.mark.parametrize("rows, blocks", [(256, []), (384, []), (768, [256]), (1_024, [256]), (1_152, [512])])
def test_blocks_of_a_sort(rows, blocks):
    """Multiples of 256 rows up to 1,024 are sorted in a loop over small blocks, more rows in one over larger blocks."""
    with graph_context(), ir.Location.unknown():
        module = ir.Module.parse(jax.jit(jnp.sort).lower(np.zeros((rows, 2), np.float32)).as_text())
        sorting_network.rewrite_sorts(module)
        slices = operations_of(module.operation, lambda name: name == "stablehlo.dynamic_slice")
        assert [next(iter(op.attributes["slice_sizes"])) for op in slices] == blocks


@pytest.mark.share(3)
@pytest.mark.parametrize("count", [4, 9], ids=["searched", "sorted"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
def test_largest_numbers_in_total_order(count, dtype):
    """-NaN is below all numbers, -0.0 below 0.0; of equal numbers the first comes first."""
    x = np.array([[0.0, -0.0, -np.nan, np.nan, 1.0, -np.inf, 1.0, np.inf, 6e-8], [-np.nan, -0.0, -6e-8, 0.0] + [-1.0] * 5])
    x = x.astype(dtype)
    order = np.array([[3, 7, 4, 6, 8, 0, 1, 5, 2], [3, 1, 2, 4, 5, 6, 7, 8, 0]])[:, :count]
    values, positions = results_of(jax.jit(lambda x: lax.top_k(x, count)).lower(x).as_text(), [x], orders=(1,))
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(bits(values), bits(np.take_along_axis(x, order, 1)))


@pytest.mark.share(4)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32])
@pytest.mark.parametrize("is_least", [False, True])
def test_the_first_elements_of_a_sort(dtype, is_least):
    """Integers, with ties and the ends of the type; the program reads the second and third values, and positions."""
    ends = np.iinfo(dtype)
    x = np.random.default_rng(8).choice(np.array([ends.min, ends.min + 1, 0, 1, ends.max - 1, ends.max], dtype), (2, 3, 20))
    kind = f"tensor<2x3x20x{np.dtype(dtype).name.replace('uint', 'ui').replace('int', 'i')}>"
    scalar = kind.replace("2x3x20x", "")
    text = f"""func.func @main(%x: {kind}) -> ({kind.replace("20", "2")}, tensor<2x3x3xi32>) {{
  %i = stablehlo.iota dim = 2 : tensor<2x3x20xi32>
  %v, %p = "stablehlo.sort"(%x, %i) <{{dimension = 2 : i64, is_stable = true}}> ({{
  ^bb0(%a: {scalar}, %b: {scalar}, %c: tensor<i32>, %d: tensor<i32>):
    %0 = stablehlo.compare {"LT" if is_least else "GT"}, %a, %b : ({scalar}, {scalar}) -> tensor<i1>
    stablehlo.return %0 : tensor<i1>
  }}) : ({kind}, tensor<2x3x20xi32>) -> ({kind}, tensor<2x3x20xi32>)
  %first = stablehlo.slice %v [0:2, 0:3, 1:3] : ({kind}) -> {kind.replace("20", "2")}
  %where = stablehlo.slice %p [0:2, 0:3, 0:3] : (tensor<2x3x20xi32>) -> tensor<2x3x3xi32>
  return %first, %where : {kind.replace("20", "2")}, tensor<2x3x3xi32>
}}"""
    order = np.argsort(x.astype(np.int64) * (1 if is_least else -1), axis=2, kind="stable")
    for values, positions in (run_linked(text, [x]), results_of(text, [x], orders=(1,))):
        np.testing.assert_array_equal(positions, order[:, :, :3])
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 2)[:, :, 1:3])


def test_a_gradient_through_a_sort():
    x = np.random.default_rng(7).standard_normal(9).astype(np.float32)
    agrees(jax.grad(lambda x: (jnp.sort(x) * jnp.arange(9.0)).sum()), x)


def test_a_sort_that_does_not_say_the_axis():
    """StableHLO sorts along the last axis then."""
    text = """func.func @main(%x: tensor<2x3xi32>) -> tensor<2x3xi32> {
  %0 = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<2x3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}"""
    x = np.array([[3, 1, 2], [0, -1, -2]], np.int32)
    for results in (run_linked(text, [x]), results_of(text, [x], orders=(1,))):
        assert results[0].tolist() == [[1, 2, 3], [-2, -1, 0]]


def test_a_comparison_that_is_not_elementwise():
    text = """func.func @main(%x: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.count_leading_zeros %a : tensor<i32>
    %2 = stablehlo.compare LT, %1, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %2 : tensor<i1>
  }) : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}"""
    with pytest.raises(Unsupported, match=r"'stablehlo.count_leading_zeros' in the comparison of a sort"):
        results_of(text, [np.zeros(4, np.int32)])


@pytest.mark.parametrize("function, argument", [
    (lambda x: lax.bitcast_convert_type(x, jnp.int32), numbers(0, 6, 13)),
    (lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x * 2, jnp.int32) & 0x7FFFFFFF, jnp.float32) + 1,
     numbers(1, 200, 3)),
    (lambda x: lax.bitcast_convert_type(x, jnp.bfloat16) * 2, numbers(2, 5, 7).astype(jnp.bfloat16).view(np.int16)),
    (lambda x: (x + 1, lax.bitcast_convert_type(x + 1, jnp.uint32)), numbers(3, 4, 4)),
    (lambda x: lax.bitcast_convert_type(x.T, jnp.int32) + 1, numbers(4, 4, 6)),
], ids=["result", "inside", "bfloat16", "both", "transposed"])
def test_bits_of_numbers(function, argument):
    agrees(function, argument)
