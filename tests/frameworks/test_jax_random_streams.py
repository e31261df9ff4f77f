# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""JAX's random numbers as instruction streams: the bits are JAX's, as a program of 32-bit integers without a sign."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from tests.graph.lowered_graph import bits, results_of  # noqa: E402

pytestmark = pytest.mark.jax

KEY = np.asarray(jax.random.PRNGKey(3))
X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
A, B = np.random.default_rng(1).integers(0, 1 << 32, (2, 8, 64), np.uint32)
EDGES = np.array([0, 1, 2, 3, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, (1 << 32) - 1], np.uint32)


def results(function, *arguments):
    text = jax.jit(function, keep_unused=True).lower(*arguments).as_text()
    return results_of(text, arguments, orders=(None, 1))


@pytest.mark.share(4)
@pytest.mark.parametrize("function, arguments", [
    (lambda k: jax.random.bits(k, (5, 7)), [KEY]), (lambda k: jax.random.uniform(k, (8, 40)), [KEY]),
    (lambda k: jax.random.uniform(k, (301,), minval=-2, maxval=5), [KEY]),
    (lambda k: jax.random.uniform(k, (8, 40), jnp.bfloat16), [KEY]),
    (lambda k: jax.random.bernoulli(k, 0.3, (16, 33)), [KEY]), (lambda k: jax.random.split(k, 5), [KEY]),
    (lambda k: jax.random.fold_in(k, 7), [KEY]), (lambda k: jax.random.randint(k, (8, 40), -3, 17), [KEY]),
    (lambda s: jax.random.uniform(jax.random.PRNGKey(s), (8,)), [np.int32(-7)]),
    (lambda x, k: jnp.where(jax.random.bernoulli(k, 0.9, x.shape), x / 0.9, 0), [X, KEY]),
    (lambda x: (lax.bitcast_convert_type(x, jnp.int32), lax.bitcast_convert_type(x, jnp.uint32)), [X]),
    (lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.uint16) ^ 1, jnp.float16),
     [X.astype(jnp.bfloat16)]),
    (lambda x: lax.bitcast_convert_type(x, jnp.int16) + 1, [X.astype(jnp.bfloat16)]),
    (lambda a, b: (lax.div(a, b), lax.rem(a, b)), [A, B]), (lambda a, b: (a // b, a % b), [A, B >> 20]),
    (lambda a, b: (lax.div(a, b), lax.rem(a, b)), [np.repeat(EDGES, 8), np.tile(EDGES, 8)])],
    ids=lambda value: str(value.__code__.co_firstlineno) if callable(value) else "")
def test_bits(function, arguments):
    """Without XLA's fusion, which contracts products and sums."""
    with jax.disable_jit():
        expected = jax.tree_util.tree_leaves(function(*arguments))
    for got, wanted in zip(results(function, *arguments), expected, strict=True):
        np.testing.assert_array_equal(bits(got), bits(np.asarray(wanted)))


def test_normal_numbers():
    function = lambda k: (jax.random.normal(k, (8, 40)), jax.random.gumbel(k, (8, 40)))
    for got, wanted in zip(results(function, KEY), function(KEY), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def layer(x, key, qkv, out, up, down):
    """A layer of a transformer with dropout in its three positions."""
    def dropout(value, key):
        return jnp.where(jax.random.bernoulli(key, 0.8, value.shape), value / 0.8, 0)

    def norm(value):
        centered = value - value.mean(-1, keepdims=True)
        return centered * lax.rsqrt((centered ** 2).mean(-1, keepdims=True) + 1e-5)
    keys = jax.random.split(key, 3)
    q, k, v = jnp.split(norm(x) @ qkv, 3, axis=-1)
    scores = jnp.where(jnp.tril(jnp.ones((32, 32), bool)), q @ k.T / 4, -jnp.inf)
    x = x + dropout(dropout(jax.nn.softmax(scores), keys[0]) @ v @ out, keys[1])
    return x + dropout(jax.nn.gelu(norm(x) @ up) @ down, keys[2])


def test_dropout_of_a_transformer_layer():
    random = np.random.default_rng(2)
    x = random.standard_normal((32, 16)).astype(np.float32)
    weights = [random.standard_normal(shape).astype(np.float32) / 8 for shape in ((16, 48), (16, 16), (16, 64), (64, 16))]
    both = lambda *arguments: (layer(*arguments), *jax.grad(lambda *a: (layer(*a) ** 2).sum(), (0, 2, 5))(*arguments))
    expected = jax.jit(both)(x, KEY, *weights)
    for got, wanted in zip(results(both, x, KEY, *weights), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
