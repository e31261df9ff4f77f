# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs as JAX writes them, as NKI Python: layers, searches, caches and loops compute what JAX does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nki_mlir.cli.source import read_module
from nki_mlir.printing.kernel import kernel_text

from .reading import reread


def rng():
    return np.random.default_rng(0)


def floats(*shape):
    return rng().standard_normal(shape).astype(np.float32)


def integers(*shape, high=40):
    return rng().integers(0, high, shape).astype(np.int32)


def layer_norm(x, g, b):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def update_cache(cache, keys, position):
    return jax.lax.dynamic_update_slice(cache, keys, (0, position, 0))


def until_large(x):
    return jax.lax.while_loop(lambda c: jnp.sum(c) < 1e3, lambda c: c * 1.5 + 1, x)


def doubled_or_more(n, x):
    return jax.lax.cond(n > 20, lambda y: y * 2, lambda y: y + 1, x)


def switched(n, x):
    return jax.lax.switch(n, [lambda y: y, lambda y: y * 2, lambda y: -y], x)


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


CASES = {
    "var": (lambda x: x.var(-1), floats(128, 64)),
    "layer_norm": (layer_norm, floats(256, 128), floats(128), floats(128)),
    "where": (lambda n, x, y: jnp.where(n > 20, x, y), integers(), floats(6, 5), floats(6, 5)),
    "clip": (lambda x: jnp.clip(x - 20, 0, 10) // 3, integers(64, 32)),
    "floor_divide": (lambda x: (x - 20) // 7, integers(64, 32)),
    "top_k": (lambda x: jax.lax.top_k(x, 8), floats(64, 100)),
    "gather": (lambda t, i: t[i], floats(1000, 64), integers(128)),
    "slice": (lambda x, n: jax.lax.dynamic_slice(x, (n, 0), (16, 32)), floats(64, 32), integers()),
    "update_cache": (update_cache, floats(4, 64, 16), floats(4, 2, 16), integers()),
    "while": (until_large, abs(floats(8, 8))),
    "cond": (doubled_or_more, integers(), floats(6, 5)),
    "switch": (switched, integers(high=3), floats(6, 5)),
    "cross_entropy": (cross_entropy, floats(64, 100), integers(64)),
    "reverse": (lambda x: jnp.exp(x[::-1]) + jnp.exp(x[:, ::-1]), floats(300, 16)),
    "reverse_rows": (lambda x: x[::-1], floats(300, 16)),
    "reverse_columns": (lambda x: x[:, ::-1], floats(8, 16)),
    "reverse_all": (lambda x: x[::-1, :, ::-1], floats(5, 6, 7)),
    "reverse_vector": (lambda x: x[::-1], floats(200)),
    "floor": (lambda x: jnp.floor(x * 5) + jnp.ceil(x * 3), floats(64, 32)),
}


# No instruction of the language rounds to integers, or transfers rows from the last to the first.
NOT_PLACED = {"clip", "floor_divide", "floor", "top_k", *(name for name in CASES if name.startswith("reverse"))}


@pytest.mark.parametrize(("name", "placed"), [*((n, False) for n in CASES), *((n, True) for n in CASES if n not in NOT_PLACED)])
def test_values(name, placed):
    function, *arrays = CASES[name]
    lowered = jax.jit(function).lower(*arrays)
    module = read_module(lowered.as_text(), "graph.mlir")
    kernel = reread(kernel_text([module], comments=False, keep_placement=placed))
    expected = jax.tree.leaves(jax.jit(function)(*arrays))
    for on in ("interpreter", "isa"):
        results = kernel.run([np.asarray(a).copy() for a in arrays], {}, on)
        results = results if isinstance(results, tuple | list) else [results]
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(np.reshape(result, wanted.shape), wanted, rtol=2e-5, atol=2e-5, err_msg=on)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 16, 24, 30, 31])
def test_arithmetic_shifts(count):
    """The language has logical shifts only."""
    edges = np.array([0, 1, -1, 5, -5, 1 << 24, -(1 << 24) - 1, (1 << 31) - 1, -(1 << 31), 0x55555555], np.int32)
    lowered = jax.jit(lambda x: jax.lax.shift_right_arithmetic(x, jnp.int32(count))).lower(edges)
    text = kernel_text([read_module(lowered.as_text(), "graph.mlir")], comments=False)
    kernel = reread(text)
    for on in ("eager", "interpreter", "jit", "isa"):
        np.testing.assert_array_equal(np.reshape(kernel.run([edges.copy()], {}, on), -1), edges >> count, on)
