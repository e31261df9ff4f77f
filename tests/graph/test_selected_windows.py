# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of pools, compiled and as streams, against their definition in NumPy.

Windows overlap, leave elements out or reach into a padding; elements are equal, or NaN.
"""

import operator
import random

import numpy as np
import pytest

from nki_mlir.frameworks.stablehlo import run_linked

from .lowered_graph import results_of

DIRECTIONS = {"GE": operator.ge, "GT": operator.gt, "LE": operator.le, "LT": operator.lt}


def definition(x, source, init, sizes, steps, low, direction):
    result = np.full_like(x, init)
    for window in np.ndindex(*source.shape):
        selected = None
        for position in np.ndindex(*sizes):
            at = tuple(w * s + p - a for w, s, p, a in zip(window, steps, position, low))
            if all(0 <= n < extent for n, extent in zip(at, x.shape)) and (
                    selected is None or not DIRECTIONS[direction](x[selected], x[at])):
                selected = at
        result[selected] += source[window]
    return result


def graph(x, windows, sizes, steps, padding, direction):
    kind, source = (f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in (x.shape, windows))
    return f"""func.func @main(%x: {kind}, %s: {source}) -> {kind} {{
  %init = stablehlo.constant dense<2.0> : tensor<f32>
  %r = "stablehlo.select_and_scatter"(%x, %s, %init) ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare {direction}, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }}, {{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }}) {{window_dimensions = array<i64: {', '.join(map(str, sizes))}>,
      window_strides = array<i64: {', '.join(map(str, steps))}>, padding = dense<{padding}> : tensor<{len(sizes)}x2xi64>
      }} : ({kind}, {source}, tensor<f32>) -> {kind}
  return %r : {kind}
}}"""


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(6))
def test_gradients_of_pools(seed):
    rng, values = random.Random(seed), np.random.default_rng(seed)
    x = values.integers(-3, 3, [rng.randint(3, 9) for _ in range(rng.randint(1, 3))]).astype(np.float32)
    x[values.random(x.shape) < 0.05] = np.nan
    sizes = [rng.randint(1, min(n, 3)) for n in x.shape]
    steps = [rng.randint(1, 3) for _ in sizes]
    padding = [[rng.randint(0, size - 1), rng.randint(0, size - 1)] for size in sizes]
    windows = [(n + a + b - size) // step + 1 for n, size, step, (a, b) in zip(x.shape, sizes, steps, padding)]
    source = values.integers(-9, 9, windows).astype(np.float32)
    text = graph(x, windows, sizes, steps, padding, direction := rng.choice(sorted(DIRECTIONS)))
    expected = definition(x, source, 2.0, sizes, steps, [a for a, _ in padding], direction)
    np.testing.assert_array_equal(run_linked(text, [x, source])[0], expected)
    np.testing.assert_array_equal(results_of(text, [x, source], orders=(1,))[0], expected)


def test_float64_keeps_its_bits():
    """Numbers beyond float32, and differences that it does not have."""
    values = np.random.default_rng(0)
    x, source = values.standard_normal((7, 8)), (1 + values.random((4, 4)) * 2.0 ** -30) * 1e200
    text = graph(x, (4, 4), (3, 3), (2, 2), [[1, 1], [0, 1]], "GE").replace("f32", "f64")
    expected = definition(x, source, 2.0, (3, 3), (2, 2), (1, 0), "GE")
    np.testing.assert_allclose(run_linked(text, [x, source])[0], expected, rtol=1e-15)


def test_the_first_of_equal_elements__has_the_gradient_of_a_pool():
    jax = pytest.importorskip("jax")
    x = np.random.default_rng(0).integers(-2, 2, (2, 3, 8, 9)).astype(np.float32)
    pool = jax.jit(jax.grad(lambda x: (jax.lax.reduce_window(
        x, -np.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME") ** 2).sum()))
    np.testing.assert_array_equal(run_linked(pool.lower(x).as_text(), [x])[0], pool(x))
    np.testing.assert_array_equal(results_of(pool.lower(x).as_text(), [x], orders=(1,))[0], pool(x))
