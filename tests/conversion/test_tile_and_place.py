# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of any size on tiles: values on the simulator against JAX, and the sizes of what is made."""

from dataclasses import fields
from math import prod

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from nki_mlir.bindings import ir, operations_of  # noqa: E402
from nki_mlir.dialects.access import Access, Linear  # noqa: E402
from nki_mlir.dialects.isa.program import descriptors  # noqa: E402
from nki_mlir.dialects.kernel_function import the_kernel  # noqa: E402
from nki_mlir.frameworks.stablehlo import simulate_linked  # noqa: E402
from nki_mlir.graph.choices import TileChoices  # noqa: E402
from nki_mlir.graph.tile_cache import Elements  # noqa: E402
from nki_mlir.graph.upstream import graph_context  # noqa: E402
from nki_mlir.passes.pass_manager import run_passes  # noqa: E402
from nki_mlir.passes.pipelines import passes_to  # noqa: E402
from nki_mlir.scalar.dtypes import FLOAT32  # noqa: E402
from nki_mlir.targets.neuron.codegen.mlir_records import read_code  # noqa: E402
from nki_mlir.targets.neuron.codegen.records import InstructionStep, nodes_in  # noqa: E402

from ..graph.lowered_graph import results_of  # noqa: E402
from ..tolerances import assert_within, product_bound  # noqa: E402

pytestmark = pytest.mark.jax

RANDOM = np.random.default_rng(0)
A, B = RANDOM.standard_normal((2, 200, 300)).astype(np.float32)
V = RANDOM.standard_normal(10007).astype(np.float32)
N = RANDOM.integers(-2**31, 2**31, (7, 300), dtype=np.int32)


def agrees(function, *arguments, tolerance=1e-5):
    """Compare a graph's streams with JAX. Elements of a sum that cancel may be off by ``tolerance`` of a usual element,
    or of 1."""
    expected = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    text = jax.jit(function).lower(*arguments).as_text()
    got = simulate_linked(text, [np.asarray(a) for a in arguments])
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        wide = np.asarray(other).astype(np.float64)
        finite = wide[np.isfinite(wide)]
        usual = np.sqrt(np.square(finite).mean()) if finite.size else 0
        # Terms of a usual element's size cancel in elements near 0.
        np.testing.assert_allclose(one.astype(np.float64), wide, rtol=tolerance, atol=tolerance * max(1, usual))


@pytest.mark.parametrize("function, arguments", [
    (lambda a, b: a * b + 1, (A, B)),
    (lambda a, b: a * b[0] + b[:, :1], (A, B)),
    (lambda v: v * 2 - 1, (V,)),
    (lambda v: v * 2, (np.float32(3),)),
    (lambda a: jnp.exp(a.reshape(2, 5, 20, 300)[:, None] + a[:2, None, None, None, :]), (A,)),
    (lambda a: a.T + 1, (A,)),
    (lambda a: a.reshape(10, 20, 300).transpose(2, 0, 1), (A,)),
    (lambda a, b: jnp.concatenate([a.reshape(300, 200)[5:50:3], b.reshape(300, 200)]), (A, B)),
    (lambda a, b: jnp.where(a > b, a, -b), (A, B)),
    (lambda a: ((a * 10).astype(jnp.int32), a.astype(jnp.bfloat16), a > 0, (a * 10).astype(jnp.int8)), (A,)),
    (lambda a: a + jnp.arange(300, dtype=jnp.float32) + jnp.arange(200, dtype=jnp.int32)[:, None], (A,)),
    (lambda a: jnp.pad(a, ((1, 2), (3, 4)), constant_values=2.0), (A,)),
    (lambda a: jnp.tril(a) + jnp.floor(a) + jnp.round(a * 3), (A,)),
], ids=lambda value: "" if not callable(value) else str(value.__code__.co_firstlineno))
def test_elementwise__and_movement(function, arguments):
    agrees(function, *arguments)


@pytest.mark.share(3)
@pytest.mark.parametrize("function", [
    lambda a: a.sum(1), lambda a: a.sum(0), lambda a: a.max(), lambda a: a.min(0), lambda a: a.sum(),
    lambda a: a.reshape(4, 50, 300).sum((0, 2)), lambda a: (a.prod(1), (a > 0).any(1), (a > -1).all(0)),
    lambda a: (a * 1000).astype(jnp.int32).sum(1), lambda a: (a * 1000).astype(jnp.int32).max(),
    lambda a: jax.nn.softmax(a), lambda a: (a - a.mean(1, keepdims=True)) / jnp.sqrt(a.var(1, keepdims=True) + 1e-5),
], ids=lambda value: str(value.__code__.co_firstlineno))
def test_reductions(function):
    agrees(function, A, tolerance=5e-5)


@pytest.mark.parametrize("function, arguments", [
    (lambda a, b: a @ b.T, (A, B)), (lambda a, b: a.T @ b, (A, B)), (lambda a, b: a @ b[0], (A, B)),
    (lambda a, b: a[0] @ b[0], (A, B)), (lambda a, b: jnp.outer(a[0], b[1]), (A, B)),
    (lambda a, b: jnp.einsum("bij,bjk->bik", a.reshape(4, 50, 300), b.reshape(4, 300, 50)), (A, B)),
    (lambda a, b: jnp.einsum("bijk,bljk->bil", a.reshape(2, 20, 15, 100), b.reshape(2, 20, 15, 100)), (A, B)),
    (lambda a: (a @ jnp.tile(a.T, (1, 4))), (A[:130],)),
], ids=lambda value: "" if not callable(value) else str(value.__code__.co_firstlineno))
def test_products(function, arguments):
    agrees(function, *arguments, tolerance=5e-5)


def test_products__of_bfloat16_are_added_in_float32():
    a, b = (np.asarray(v.astype(jnp.bfloat16)) for v in (A, B))
    got, = simulate_linked(jax.jit(lambda a, b: a @ b.T).lower(a, b).as_text(), [a, b])
    assert got.dtype == jnp.bfloat16
    assert_within(got, a.astype(np.float64) @ b.T.astype(np.float64), product_bound(a.T, b.T, jnp.bfloat16))


@pytest.mark.parametrize("function", [
    lambda a, i: a[i], lambda a, i: jax.nn.softmax(a[i.reshape(10, 13)] * 2 + 1),
    lambda a, i: jnp.take(a, i, axis=0, mode="clip").sum(1), lambda a, i: a[jnp.array([5, 1, 199])] + i[0],
    lambda a, i: (a.argmax(1), a.argmin(0), (a + i[0]).argmax())],
    ids=["rows", "embedding", "clipped", "constant", "argmax"])
def test_gathers__and_places_of_extremes(function):
    agrees(function, A, RANDOM.integers(-200, 200, 130).astype(np.int32))


def test_integers__are_exact():
    """Comparisons, extremes, quotients and remainders over the whole range."""
    other = np.roll(N, 1)
    small = (N % 1000).astype(np.int32)
    agrees(lambda n, m: (n > m, n == m, jnp.maximum(n, m), jnp.minimum(n, m), n + m, n * m, n ^ m), N, other,
           tolerance=0)
    agrees(lambda n, m: (n // (m + 1), n % (m + 1), jax.lax.div(n, m - 7), jax.lax.rem(n, m - 1001)), N, small,
           tolerance=0)


def test_tiles__fit_on_chip():
    with graph_context(), ir.Location.unknown():
        module = ir.Module.parse(jax.jit(lambda a, b: jax.nn.gelu(a @ b)).lower(
            np.zeros((1000, 500), np.float32), np.zeros((500, 3000), np.float32)).as_text())
        run_passes(module, passes_to("linalg", module))
        kinds = [ir.MemRefType(op.results[0].type) for op in operations_of(module, lambda name: name == "memref.alloc")]
    on_chip = [k for k in kinds if k.memory_space.value != "hbm"]
    assert on_chip and all(k.shape[0] <= 128 and np.prod(k.shape[1:]) <= 1024 for k in on_chip)
    assert all(np.prod(k.shape[1:]) <= 512 for k in on_chip if k.memory_space.value == "psum")


@pytest.mark.parametrize("function", [
    lambda a: (a.T @ a, a.T @ (a + 1)), lambda a: jnp.einsum("hqd,hkd->hqk", *(a.reshape(10, 20, 300)[:4],) * 2),
    lambda a: jnp.einsum("qhd,khd->hqk", *(a.reshape(20, 10, 300),) * 2),
    lambda a: a.reshape(20, 10, 300).transpose(1, 0, 2).reshape(200, 300) @ a.T,
    lambda a: (a @ a.T) + (a @ a[::-1].T) @ (a @ a.T), lambda a: (t := a.T.copy(), t + 1, t @ a),
    lambda a: jax.lax.fori_loop(0, 3, lambda i, x: (x.T @ x)[:200, :200] * 1e-3 + x.T * i, a[:, :200]),
], ids=lambda value: str(value.__code__.co_firstlineno))
def test_transposed_operands(function):
    agrees(function, A)


def transformer_layer(x, wq, wk, wv, wo, up, down):
    """One of 8 heads, causal, whose products are bfloat16."""
    steps, width = x.shape

    def heads(t):
        return t.reshape(steps, 8, -1).swapaxes(0, 1)

    def normal(t):
        wide = t.astype(jnp.float32)
        return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)).astype(t.dtype)
    q, k, v = (heads(normal(x) @ w) for w in (wq, wk, wv))
    scores = (q @ k.swapaxes(1, 2)).astype(jnp.float32) * (width // 8) ** -0.5
    weights = jax.nn.softmax(jnp.where(jnp.tri(steps, dtype=bool), scores, -1e9), axis=-1).astype(x.dtype)
    x = x + (weights @ v).swapaxes(0, 1).reshape(steps, width) @ wo
    return x + jax.nn.gelu(normal(x) @ up) @ down


@pytest.mark.share(3)
@pytest.mark.parametrize("steps", [256, 200])           # 128 does not divide the rows of 8 heads of 200
def test_a_transformer_layer__stays_on_chip_between_its_operations(steps):
    """Its HBM traffic is its arguments and its result, in runs of 512 bytes or more."""
    width = 512
    shapes = [(steps, width), *[(width, width)] * 4, (width, 4 * width), (4 * width, width)]
    arguments = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    with graph_context(), ir.Location.unknown():
        module = ir.Module.parse(jax.jit(transformer_layer).lower(*arguments).as_text())
        run_passes(module, passes_to("nisa", module))
        ops = [node.op for node in nodes_in(read_code(the_kernel(module)).body) if isinstance(node, InstructionStep)]
    moved = [(prod(t.shape) * t.dtype.itemsize, descriptors(op)) for op in ops if op.queued
             for _, t in op.operands() if t.space == "hbm"]
    least = 2 * (sum(prod(shape) for shape in shapes) + steps * width)
    assert sum(nbytes for nbytes, _ in moved) == least
    assert min(run for _, (_, run) in moved) >= 512


def test_a_transformer_layer__agrees():
    shapes = [(64, 128), *[(128, 128)] * 4, (128, 512), (512, 128)]
    arguments = [(RANDOM.standard_normal(shape) / (4 if k else 1)).astype(jnp.bfloat16)
                 for k, shape in enumerate(shapes)]
    got, = simulate_linked(jax.jit(transformer_layer).lower(*arguments).as_text(), arguments)
    expected = jax.jit(transformer_layer)(*(a.astype(np.float32) for a in arguments))
    # Intermediate results are rounded to bfloat16, whose steps at the largest are 2**-8 of it.
    assert np.abs(got.astype(np.float32) - expected).max() <= 8 * 2.0**-8 * np.abs(expected).max()


CHOICES = [("tile-and-place", f"{choice.name.replace('_', '-')}=0") for choice in fields(TileChoices)
           if choice.name != "elements"]


@pytest.mark.share(6)
@pytest.mark.parametrize("name, option", [*CHOICES, ("forward-moves", "targets=0"), ("split-rows", "inner=0"),
                                          ("tile-and-place", "elements=64")])
def test_a_transformer_layer__without_one_choice(name, option):
    """Each optimization changes tiles and loads, never what is computed beside the order of sums."""
    shapes = [(72, 128), *[(128, 128)] * 4, (128, 256), (256, 128)]
    arguments = [RANDOM.standard_normal(shape).astype(np.float32) / (8 if k else 1) for k, shape in enumerate(shapes)]
    got, = results_of(jax.jit(transformer_layer).lower(*arguments).as_text(), arguments, {name: option}, (1,))
    np.testing.assert_allclose(got, jax.jit(transformer_layer)(*arguments), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_tiles__are_the_elements_that_are_wanted(seed):
    """Against all elements, one by one: what is a part of another pattern, and what does not meet."""
    draw = np.random.default_rng(seed)

    def pattern():
        rows, columns = draw.integers(1, 5, 2)
        dims = ((16, int(rows)), *[(4, int(draw.integers(1, 4)))] * int(draw.integers(0, 2)), (1, int(columns)))
        return Elements("buffer", Access(FLOAT32, None, Linear(int(draw.integers(0, 24))), dims), frozenset())

    def elements(access):
        numbers = np.full([1] * len(access.dims), access.free.const)
        for axis, (step, count) in enumerate(access.dims):
            numbers = numbers + step * np.arange(count).reshape([-1 if a == axis else 1 for a in range(len(access.dims))])
        return numbers
    for _ in range(200):
        one, other = pattern(), pattern()
        mine, theirs = elements(one.access), elements(other.access)
        if not one.region.overlaps(other.region):
            assert not set(mine.flat) & set(theirs.flat)
        part = one.part_in(other)
        if part is not None:
            box = theirs[tuple(slice(start, start + count) for start, count in zip(*part))]
            np.testing.assert_array_equal(box.reshape(mine.shape), mine)


def test_each_choice__is_made_unless_an_option_switches_it_off():
    fields = vars(TileChoices())
    assert fields == {"elements": 1024} | dict.fromkeys(fields.keys() - {"elements"}, True)
