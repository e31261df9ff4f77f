# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors without elements in HBM: batches of nothing."""

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.current import isa as current_nisa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki

EXECUTORS = ("eager", "interpreter", "jit", "isa")


@nki.jit
def by_blocks(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((x.shape[0] + 127) // 128):
        p, f = i * 128 + nl.arange(128)[:, None], nl.arange(x.shape[1])[None, :]
        nl.store(out[p, f], nl.load(x[p, f], mask=p < x.shape[0]) * 2, mask=p < x.shape[0])
    return out


@nki.jit
def at_once(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


@nki.jit
def with_a_sum(x, scale):
    """One empty result, one that is not."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    other = nl.ndarray(scale.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        nl.store(out[i:i + 1, :], nl.load(x[i:i + 1, :]) * 2)
    nl.store(other, nl.load(scale) * 3)
    return out, other


@current_nki.jit
def current_by_blocks(x):
    out = current_nl.ndarray(x.shape, dtype=x.dtype, buffer=current_nl.shared_hbm)
    for i in range((x.shape[0] + 127) // 128):
        rows = slice(i * 128, min((i + 1) * 128, x.shape[0]))
        tile = current_nl.load(x[rows, :])
        current_nl.store(out[rows, :], current_nl.multiply(tile, 2.0))
    return out


@current_nki.jit
def current_copy(x):
    out = current_nl.ndarray(x.shape, dtype=x.dtype, buffer=current_nl.shared_hbm)
    current_nisa.dma_copy(out, x)
    return out


@pytest.mark.parametrize("on", EXECUTORS)
@pytest.mark.parametrize("kernel", [by_blocks, at_once, current_by_blocks])
def test_a_batch_of_nothing__gives_nothing(kernel, on):
    result = kernel.on(on)(np.ones((0, 8), np.float32))
    assert result.shape == (0, 8) and result.dtype == np.float32
    assert np.array_equal(kernel.on(on)(np.ones((3, 8), np.float32)), np.full((3, 8), 2.0))


@pytest.mark.parametrize("on", EXECUTORS)
@pytest.mark.parametrize("shape", [(0, 8), (128, 0), (0, 0)])
def test_a_copy_of_nothing__is_nothing(shape, on):
    assert current_copy.on(on)(np.ones(shape, np.float16)).shape == shape


@pytest.mark.parametrize("on", EXECUTORS)
def test_results_beside_it__are_computed(on):
    nothing, other = with_a_sum.on(on)(np.ones((0, 8), np.float32), np.ones((2, 4), np.float32))
    assert nothing.shape == (0, 8) and np.array_equal(other, np.full((2, 4), 3.0))


def test_frameworks__take_it():
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    import jax
    assert by_blocks(torch.ones(0, 8)).shape == (0, 8)
    assert torch.compile(by_blocks)(torch.ones(0, 8)).shape == (0, 8)
    assert by_blocks(jnp.ones((0, 8))).shape == (0, 8)
    assert jax.jit(by_blocks)(jnp.ones((0, 8))).shape == (0, 8)
    assert jax.vmap(by_blocks)(jnp.ones((3, 0, 8))).shape == (3, 0, 8)


def test_tiles__have_elements():
    @nki.jit
    def empty_tile(x):
        tile = nl.ndarray((0, 8), dtype=x.dtype, buffer=nl.sbuf)
        nl.store(x, tile)

    @current_nki.jit
    def current_empty_tile(x):
        out = current_nl.ndarray(x.shape, x.dtype, buffer=current_nl.shared_hbm)
        current_nl.store(out, current_nl.load(x))
        return out
    for kernel, shape in ((empty_tile, (2, 8)), (current_empty_tile, (0, 8)), (current_empty_tile, (128, 0))):
        with pytest.raises(NkiMlirError, match="has an empty dimension") as caught:
            kernel(np.ones(shape, np.float32))
        assert caught.value.at is not None and caught.value.at.file == __file__
