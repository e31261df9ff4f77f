# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that kernels use again have a buffer for each live range, and values stay those of one buffer."""

import random

import numpy as np
import pytest

from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.targets.cpu.lowering import at_waist
from nki_mlir.transforms.split_tiles import OverwrittenTiles

ROWS, COLUMNS = 128, 96
OPERATIONS = (nl.add, nl.subtract, nl.multiply, nl.maximum)


def kernel_of(seed: int):
    """Return a kernel that writes its three tiles again and again: all of a tile, some columns, or in a loop."""
    rng = random.Random(seed)
    steps = [(rng.choice(("all", "all", "all", "columns", "loop", "store", "sum")), rng.choice(OPERATIONS),
              *(rng.randrange(3) for _ in range(3)), 16 * rng.randrange(1, 5)) for _ in range(14)]

    @nki.jit
    def kernel(x, y):
        out = nl.ndarray((len(steps) + 3, ROWS, COLUMNS), dtype=x.dtype, buffer=nl.shared_hbm)
        sums = nl.ndarray((len(steps), ROWS, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        tiles = [nl.ndarray((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3)]
        zero = nl.ndarray((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=zero, value=0.0)
        nisa.memset(dst=total, value=0.0)
        for tile, source in zip(tiles, (x, y, x)):
            nisa.dma_copy(dst=tile, src=source)
        for n in range(len(steps)):
            nisa.dma_copy(dst=out[n], src=zero)
            nisa.dma_copy(dst=sums[n], src=total)
        for n, (form, operation, target, left, right, width) in enumerate(steps):
            a, b, t = tiles[left], tiles[right], tiles[target]
            if form == "all":
                nisa.tensor_tensor(dst=t, data1=a, data2=b, op=operation)
            elif form == "columns":
                nisa.tensor_tensor(dst=t[:, 0:width], data1=a[:, 0:width], data2=b[:, 0:width], op=operation)
            elif form == "loop":
                for _ in nl.sequential_range(3):
                    nisa.tensor_tensor(dst=t, data1=a, data2=b, op=operation)
                    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=0.5)
            elif form == "store":
                nisa.dma_copy(dst=out[n], src=t)
            else:
                nisa.tensor_reduce(dst=total, op=nl.add, data=t, axis=1)
                nisa.dma_copy(dst=sums[n], src=total)
        for k, tile in enumerate(tiles):
            nisa.dma_copy(dst=out[len(steps) + k], src=tile)
        return out, sums
    return kernel


@pytest.mark.parametrize("seed", range(24))
def test_tiles_that_are_written_again__keep_their_values(seed: int) -> None:
    kernel, rng = kernel_of(seed), np.random.default_rng(seed)
    arrays = [rng.integers(-3, 4, (ROWS, COLUMNS)).astype(np.float32) for _ in range(2)]
    for result, expected in zip(kernel.on("jit")(*arrays), kernel.on("interpreter")(*arrays)):
        np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_random_kernels__have_live_ranges_to_split(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((ROWS, COLUMNS), np.float32)
    modules = [kernel_of(seed).lower(x, x).module() for seed in range(24)]

    def buffers() -> int:
        return sum(str(at_waist(module)).count("memref.alloc(") for module in modules)
    with_pass = buffers()
    monkeypatch.setattr(OverwrittenTiles, "split", lambda self: None)
    assert with_pass >= buffers() + 50


@nki.jit
def reused(x, w):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    a, b, p = (nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf) for _ in range(3))
    s = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=w)
    nisa.tensor_tensor(dst=p, data1=a, data2=b, op=nl.add)
    nisa.dma_copy(dst=out, src=p)
    nisa.tensor_tensor(dst=p, data1=a, data2=b, op=nl.multiply)
    nisa.tensor_reduce(dst=s, op=nl.add, data=p, axis=1)
    nisa.dma_copy(dst=sums, src=s)
    return out, sums


def test_a_live_range_with_one_reader__is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product is computed where it is added; without the pass it is stored, since its tile has other readers."""
    x = np.random.default_rng(0).random((ROWS, 2048), np.float32)

    def operations() -> int:
        return str(at_waist(reused.lower(x, x).module())).count("linalg.generic")
    fused = operations()
    total, sums = reused.on("jit")(x, x)
    np.testing.assert_array_equal(total, x + x)
    np.testing.assert_allclose(sums, (x * x).sum(1, keepdims=True), rtol=1e-5)
    monkeypatch.setattr(OverwrittenTiles, "split", lambda self: None)
    assert operations() == fused + 2


def test_tiles_with_addresses__stay() -> None:
    """Other tiles may share their memory."""
    @nki.jit
    def placed(x):
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        for k in range(2):
            nisa.dma_copy(dst=tile, src=x)
            nisa.dma_copy(dst=out[k], src=tile)
        return out
    x = np.random.default_rng(0).random((ROWS, COLUMNS), np.float32)
    module = placed.lower(x).module("nisa")
    assert len(kernel_functions(module)) == 1
    assert str(at_waist(module)).count("memref.alloc(") == 1
    np.testing.assert_array_equal(placed.on("jit")(x), np.stack([x, x]))
