# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of models and steps of training, as one would write them in JAX: native code and streams against XLA."""

import numpy as np
import pytest

from nki_mlir.frameworks.stablehlo import run_linked
from tests.graph.lowered_graph import results_of

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
TOLERANCE = 2e-5
MODELS = {}


def drawn(*shapes):
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [(rng.standard_normal(shape) * 0.3).astype(np.float32) for shape in shapes]


def model(*arguments):
    """Register a function as a case, with its arguments."""
    def register(function):
        MODELS[function.__name__] = function, arguments
        return function
    return register


def gradient(name):
    """Register the gradient of a case's sum of squares with respect to all floats."""
    function, arguments = MODELS[name]
    numbers = tuple(k for k, a in enumerate(arguments) if a.dtype == np.float32)

    def loss(*values):
        return sum((v ** 2).sum() for v in jax.tree.leaves(function(*values)))
    MODELS[f"gradient of {name}"] = jax.grad(loss, numbers), arguments


# -- layers ------------------------------------------------------------------------------------------------------------
@model(*drawn((8, 16), (16, 32), (32,), (32, 16)))
def perceptron(x, w, b, v):
    return jax.nn.gelu(x @ w + b) @ v


@model(*drawn((8, 16), (16, 32), (16, 32), (32, 16)))
def gated_perceptron(x, gate, up, down):
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


@model(*drawn((5, 4, 8), (8, 64), (16, 64), (64,), (4, 16), (4, 16)))
def lstm(x, w, u, b, hidden, cell):
    def step(state, column):
        hidden, cell = state
        i, g, o, f = jnp.split(column @ w + hidden @ u + b, 4, -1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden
    return lax.scan(step, (hidden, cell), x)


@model(*drawn((2, 6, 16), (16, 16), (16, 16), (16, 16), (16, 16)))
def causal_attention(x, wq, wk, wv, wo):
    batch, length, width = x.shape
    q, k, v = [(x @ w).reshape(batch, length, 4, width // 4).transpose(0, 2, 1, 3) for w in (wq, wk, wv)]
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), q @ k.transpose(0, 1, 3, 2) / 2, -1e9)
    return (jax.nn.softmax(scores, -1) @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ wo


@model(*drawn((2, 3, 5, 4), (2, 6, 4), (2, 6, 4)))
def grouped_queries(q, k, v):
    return jnp.einsum("hgqk,hkd->hgqd", jax.nn.softmax(jnp.einsum("hgqd,hkd->hgqk", q, k)), v)


@model(*drawn((1, 4), (8, 4), (8, 4)), np.int32(3))
def decoding_step(q, k, v, last):
    return jax.nn.softmax(jnp.where(jnp.arange(8)[None] <= last, q @ k.T, -jnp.inf)) @ v


@model(*drawn((6, 16)))
def rotary_embedding(x):
    length, width = x.shape
    angles = jnp.arange(length)[:, None] * (10000.0 ** (-jnp.arange(0, width, 2) / width))[None]
    a, b = x[:, ::2], x[:, 1::2]
    rotated = a * jnp.cos(angles) - b * jnp.sin(angles), a * jnp.sin(angles) + b * jnp.cos(angles)
    return jnp.stack(rotated, -1).reshape(x.shape)


@model(*drawn((8, 16), (16, 4), (4, 16, 12)))
def mixture_of_experts(x, gate, experts):
    weights, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
    results = jnp.einsum("td,edf->tef", x, experts)
    return jnp.einsum("tk,tkf->tf", weights, jnp.take_along_axis(results, chosen[:, :, None], 1))


@model(*drawn((2, 3, 4, 5)))
def batch_norm(x):
    axes = (0, 2, 3)
    return (x - x.mean(axes, keepdims=True)) / jnp.sqrt(x.var(axes, keepdims=True) + 1e-5)


@model(*map(np.abs, drawn((8, 4))), *drawn((8, 4), (8, 4)))
def selective_scan(a, b, x):
    return lax.scan(lambda h, t: (t[0] * h + t[1] * t[2],) * 2, jnp.zeros(4), (a, b, x))[1]


@model(*map(np.abs, drawn((8, 4))), *drawn((8, 4)))
def parallel_scan(a, x):
    return lax.associative_scan(lambda l, r: (l[0] * r[0], l[1] * r[0] + r[1]), (a, x))[1]


@model(*drawn((2, 3, 8, 8), (12, 6)))
def patches(x, w):
    return x.reshape(2, 3, 4, 2, 4, 2).transpose(0, 2, 4, 1, 3, 5).reshape(2, 16, 12) @ w


@model(*drawn((10, 4)), np.array([1, 3, 3, 9], np.int32))
def embedding(table, numbers):
    return table[numbers]


@model(*drawn((8, 12)), np.arange(8, dtype=np.int32))
def cross_entropy(x, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(x), targets[:, None], 1).mean()


for layer in [*MODELS]:
    if layer != "decoding_step":
        gradient(layer)


# -- steps -------------------------------------------------------------------------------------------------------------
@model(*drawn((16, 32), (16, 32), (16, 32)), np.float32(3))
def adam(parameter, mean, slope, time):
    mean, square = 0.9 * mean + 0.1 * slope, 0.999 * mean ** 2 + 0.001 * slope * slope
    corrected = mean / (1 - 0.9 ** time), square / (1 - 0.999 ** time)
    return parameter - 1e-3 * corrected[0] / (jnp.sqrt(corrected[1]) + 1e-8), mean, square


@model(*drawn((5, 16)))
def quantized(x):
    scale = jnp.abs(x).max(1, keepdims=True) / 127
    return jnp.clip(jnp.round(x / scale), -127, 127).astype(jnp.int8), scale


@model(*drawn((3, 10)))
def nucleus(logits):
    probabilities = -jnp.sort(-jax.nn.softmax(logits * 9))
    return (jnp.cumsum(probabilities, -1) - probabilities < 0.9).sum(-1)


@model(*drawn((3,), (3, 5)))
def beam_search(scores, logits):
    best, numbers = lax.top_k((scores[:, None] + logits).reshape(-1), 3)
    return best, numbers // 5, numbers % 5


@model(*drawn((20, 3), (4, 3)))
def nearest_centers(x, centers):
    nearest = ((x[:, None] - centers[None]) ** 2).sum(-1).argmin(1)
    return nearest, jax.ops.segment_sum(x, nearest, num_segments=4)


@model(*drawn((4, 4)))
def power_iteration(a):
    def step(state):
        product = a @ state[0]
        return product / jnp.linalg.norm(product), state[1] + 1
    return lax.while_loop(lambda state: state[1] < 7, step, (jnp.ones(4), 0))


@model(*drawn((5, 7)))
def resized(x):
    return jax.image.resize(x, (10, 9), "bilinear"), jax.image.resize(x, (10, 9), "nearest")


gradient("resized")


@pytest.mark.share(8)
@pytest.mark.parametrize("name", MODELS)
def test_values(name):
    function, arguments = MODELS[name]
    compiled = jax.jit(function)
    text = compiled.lower(*arguments).as_text()
    expected = jax.tree.leaves(compiled(*arguments))
    for results in (run_linked(text, arguments), results_of(text, arguments, orders=(1,))):
        for got, value in zip(results, expected, strict=True):
            assert got.dtype == value.dtype
            np.testing.assert_allclose(got, value, TOLERANCE, TOLERANCE)
