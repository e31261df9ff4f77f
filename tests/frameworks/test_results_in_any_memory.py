# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that return tiles and tensors of private memory, called with tensors of PyTorch and arrays of JAX."""

import numpy as np
import pytest

from nki_mlir.language.beta import language as beta
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

X = np.arange(32, dtype=np.float32).reshape(8, 4)


@beta_nki.jit
def tiles(x):
    return beta.load(x) * 2, beta.load(x)[0:2, 0:3]


@beta_nki.jit
def halves(x):
    out = beta.ndarray(x.shape, x.dtype, buffer=beta.hbm)
    rows = beta.ds(beta.program_id(0) * 4, 4)
    beta.store(out[rows, :], beta.load(x[rows, :]) * 2)
    return out


@nki.jit
def doubled(x):
    return nl.multiply(nl.load(x), 2.0)


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit"])
def test_torch(on):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X)
    twice, corner = tiles.on(on)(x)
    assert torch.equal(twice, x * 2) and torch.equal(corner, x[0:2, 0:3])
    assert torch.equal(halves[2].on(on)(x), x * 2) and torch.equal(doubled.on(on)(x), x * 2)


def test_jax():
    jax = pytest.importorskip("jax")
    twice, corner = tiles(jax.numpy.asarray(X))
    np.testing.assert_array_equal(twice, X * 2)
    np.testing.assert_array_equal(corner, X[0:2, 0:3])
    np.testing.assert_array_equal(halves[2](jax.numpy.asarray(X)), X * 2)
    np.testing.assert_array_equal(jax.jit(lambda v: doubled(v) + 1)(X), X * 2 + 1)
