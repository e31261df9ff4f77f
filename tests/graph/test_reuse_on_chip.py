# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Totals, rows of later partitions and packed factors of graphs as instruction streams, against JAX."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from .lowered_graph import results_of  # noqa: E402

pytestmark = pytest.mark.jax

RANDOM = np.random.default_rng(0)


def patches(image, weights):
    rows, columns = (n // 8 for n in image.shape[:2])
    pieces = image.reshape(rows, 8, columns, 8, 3).transpose(0, 2, 1, 3, 4)
    return pieces.reshape(rows * columns, 192) @ weights


def heads(x, weights, keys):
    queries = (x @ weights).reshape(keys.shape[0], 1, keys.shape[1])
    return queries @ keys


GRAPHS = {
    "packed": (patches, [(112, 112, 3), (192, 512)]),
    "packed, of another number of rows": (patches, [(72, 136, 3), (192, 512)]),
    "totals": (lambda x: x / jnp.sum(x * x), [(512,)]),
    "totals of a row": (lambda x: jnp.tanh(x - jnp.mean(x)) + x, [(1, 300)]),
    "totals of all elements": (lambda x: x / (jnp.sum(x) + 7) + jnp.max(x), [(96, 40)]),
    "totals of few parts": (lambda x: x * jnp.sum(x), [(4, 67)]),
    "totals that are results": (lambda x: (jnp.sum(x), x + jnp.sum(x)), [(512,)]),
    "later-rows": (heads, [(1, 64), (64, 128), (2, 64, 256)]),
    "later-rows, of four heads": (heads, [(1, 64), (64, 128), (4, 32, 100)]),
    "later-rows, that are not legal starts": (heads, [(1, 64), (64, 120), (3, 40, 100)]),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name, applied):
    function, shapes = GRAPHS[name]
    arguments = [RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes]
    option = name.partition(",")[0].partition(" ")[0]
    jitted = jax.jit(function)
    got = results_of(jitted.lower(*arguments).as_text(), arguments, {} if applied else {"tile-and-place": f"{option}=0"}, (1,))
    for one, other in zip(got, jax.tree.leaves(jitted(*arguments)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5 * float(np.abs(other).max()))
