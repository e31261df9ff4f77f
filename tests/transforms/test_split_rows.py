# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs whose rows exceed SBUF, block by block: values with forced blocks, and the bytes that large graphs move."""

from math import prod
from unittest.mock import patch

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from nki_mlir.bindings import ir, operations_of  # noqa: E402
from nki_mlir.dialects.kernel_function import the_kernel  # noqa: E402
from nki_mlir.frameworks.stablehlo import simulate_linked  # noqa: E402
from nki_mlir.graph.upstream import graph_context  # noqa: E402
from nki_mlir.passes.pass_manager import pass_named, run_passes  # noqa: E402
from nki_mlir.passes.pipelines import passes_to  # noqa: E402
from nki_mlir.targets.neuron.codegen.mlir_records import read_code  # noqa: E402
from nki_mlir.targets.neuron.codegen.records import InstructionStep, nodes_in  # noqa: E402
from nki_mlir.transforms import split_rows  # noqa: E402
from nki_mlir.transforms.split_rows import split_rows as split_kernel  # noqa: E402

pytestmark = pytest.mark.jax

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.standard_normal((2, 300, 60)).astype(np.float32)
W = RANDOM.standard_normal((60, 60)).astype(np.float32)
G = RANDOM.standard_normal(60).astype(np.float32)


def normalized(x):
    centered = x - x.mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt((centered * centered).mean(-1, keepdims=True) + 1e-5)


def text_of(function, *arguments):
    return jax.jit(function).lower(*arguments).as_text()


def split(function, *arguments, rows=128):
    """Return how many operations there are with blocks of rows and without."""
    counts = []
    for option in ("", f"rows={rows}"):
        with graph_context(), ir.Location.unknown():
            module = ir.Module.parse(text_of(function, *arguments))
            run_passes(module, [pass_named("stablehlo-to-linalg", "widen=0"), pass_named("forward-moves"),
                                pass_named("split-rows", option)])
            counts.append(len(operations_of(module, lambda name: name == "linalg.generic")))
    return counts


ROW_BY_ROW = [
    (jax.nn.softmax, (X,)), (lambda x, g: normalized(x) * g + x, (X, G)),
    (lambda x, w, g: x + jax.nn.gelu(normalized(x) * g) @ w, (X, W, G)),
    (lambda x, y: (x * y, (x + y).max(1), (x - y).astype(jnp.bfloat16)), (X, Y)),
    (lambda x: jnp.concatenate([jnp.exp(x), x * 2], axis=1).sum(1), (X,)),
    (lambda x: normalized(x.reshape(300, 6, 10)).reshape(300, 60) + x, (X,)),
]
ACROSS_ROWS = [
    (lambda x: x - x.mean(0), (X,)), (lambda x: normalized(x)[::-1] + x, (X,)),
    (lambda x, w: (x.T @ x) @ w + w, (X, W)), (lambda x: jnp.cumsum(jax.nn.softmax(x), 0) * x, (X,)),
    (lambda x: jax.nn.softmax(x)[:200] * x[100:], (X,)),
    (lambda x: jnp.concatenate([jax.nn.softmax(x), x * 2]).sum(1), (X,)),
    (lambda x: jax.nn.softmax(x) + jnp.arange(300, dtype=jnp.float32)[:, None], (X,)),
]


@pytest.mark.share(4)
@pytest.mark.parametrize("rows", [100, 128])
@pytest.mark.parametrize("function, arguments", [*ROW_BY_ROW, *ACROSS_ROWS])
def test_blocks_of_rows__agree(function, arguments, rows, monkeypatch):
    """With the same bits as without blocks: each row has the same operations in the same order. BLAS may add in another
    order for another number of rows."""
    monkeypatch.setenv("NKI_MLIR_SUMS", "device")
    text = text_of(function, *arguments)
    at_once = simulate_linked(text, arguments)
    with patch.object(split_rows, "split_rows", lambda kernel, machine, *_: split_kernel(kernel, machine, rows)):
        blocks = simulate_linked(text, arguments)
    for one, other in zip(blocks, at_once, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("function, arguments", ROW_BY_ROW)
def test_each_block_has_its_operations(function, arguments):
    without, with_blocks = split(function, *arguments)
    assert with_blocks == 3 * split(function, *arguments, rows=300)[1] and with_blocks > without


def moved_bytes(function, *arguments):
    """Return the bytes that transfers to and from HBM move, and those of the arguments and results."""
    with graph_context(), ir.Location.unknown():
        module = ir.Module.parse(text_of(function, *arguments))
        run_passes(module, passes_to("nisa", module))
        kernel = the_kernel(module)
        ops = [node.op for node in nodes_in(read_code(kernel).body) if isinstance(node, InstructionStep)]
        least = sum(prod(a.shape) * a.dtype.itemsize for a in kernel.arguments)
    return sum(prod(t.shape) * t.dtype.itemsize for op in ops if op.queued
               for _, t in op.operands() if t.space == "hbm"), least


@pytest.mark.parametrize("function", [jax.nn.softmax, normalized])
def test_graphs_beyond_sbuf__move_their_arguments_once(function):
    moved, least = moved_bytes(function, jax.ShapeDtypeStruct((8192, 512), jnp.float32))
    assert least == 2 * 8192 * 512 * 4
    assert moved <= 1.02 * least


def causal_attention(q, k, v):
    """Attention of [queries, heads, columns], whose scores have the heads first."""
    scores = jnp.einsum("qhd,khd->hqk", q, k).astype(jnp.float32)
    seen = jnp.tril(jnp.ones(scores.shape[1:], bool))
    shares = jax.nn.softmax(jnp.where(seen, scores, -1e9)).astype(q.dtype)
    return jnp.einsum("hqk,khd->hqd", shares, v)


def test_heads_are_blocks():
    """Also with a mask of positions, and with factors in which heads are interleaved."""
    arrays = tuple(RANDOM.standard_normal((3, 40, 3, 16)).astype(jnp.bfloat16))
    text = text_of(causal_attention, *arrays)
    at_once, = simulate_linked(text, arrays)
    with patch.object(split_rows, "split_rows", lambda kernel, machine, *_: split_kernel(kernel, machine, 2)):
        blocks, = simulate_linked(text, arrays)
    np.testing.assert_array_equal(blocks, at_once)
    moved, least = moved_bytes(causal_attention, *[jax.ShapeDtypeStruct((512, 8, 64), jnp.bfloat16)] * 3)
    assert least == 4 * 512 * 8 * 64 * 2
    assert moved <= 1.2 * least


def test_run_of_fills_alone():
    """Beside operations whose rows exceed SBUF."""
    moved, least = moved_bytes(lambda x: (jax.nn.softmax(x), jnp.zeros((64, 3)), jnp.zeros((64, 5))),
                               jax.ShapeDtypeStruct((8192, 512), jnp.float32))
    assert moved <= 1.02 * least


def test_rows_that_share_large_factors__stay_as_they_are():
    """Blocks of rows would load a factor that fills SBUF again and again."""
    factor = jax.ShapeDtypeStruct((2048, 2048), jnp.float32)
    without, with_blocks = split(lambda x, w: x + x @ w, jax.ShapeDtypeStruct((4096, 2048), jnp.float32), factor)
    assert with_blocks == without
