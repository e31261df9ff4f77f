# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run instructions on tiles of given arrays, and kernels on an executor."""

from typing import Any

import numpy as np

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.tensor import NkiTensor

from ..language.running import floats as floats
from ..language.running import numbers as numbers
from ..tolerances import assert_within


def run(on: str, kernel: Any, *arguments: Any, cores: int | None = None) -> Any:
    """What the kernel returns; it gets copies of the arrays."""
    chosen = nki.jit(kernel)
    chosen = chosen if cores is None else chosen[cores]
    return chosen.on(on)(*(a.copy() if isinstance(a, np.ndarray) else a for a in arguments))


def filled(tile: NkiTensor, value: Any) -> NkiTensor:
    nisa.memset(tile, value)
    return tile


def on_tiles(on: str, body: Any, outputs: list, *arrays: np.ndarray, memory: Any = nl.sbuf) -> list[np.ndarray]:
    """What the tiles hold after ``body(*destinations, *tiles)``.

    ``outputs`` are (shape, dtype) or (shape, dtype, what it holds before).
    """
    def kernel(inputs):
        tiles = [nl.load(x) for x in inputs]
        destinations = []
        for shape, dtype, *before in outputs:
            destinations.append(nl.ndarray(shape, dtype, buffer=memory))
            if before:
                filled(destinations[-1], before[0])
        body(*destinations, *tiles)
        results = []
        for tile in destinations:
            out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
            if memory is nl.psum:
                tile = nl.copy(tile)
            nisa.dma_copy(out, tile)
            results.append(out)
        return tuple(results)
    return list(nki.jit(kernel).on(on)(tuple(a.copy() for a in arrays)))


def check(on: str, body: Any, expected: Any, *arrays: np.ndarray, before: Any = None, dtype: Any = None,
          rtol: float = 0.0, atol: float = 0.0, within: Any = None, memory: Any = nl.sbuf) -> None:
    """One destination: it holds ``expected`` after ``body(dst, *tiles)``, bit for bit unless a tolerance is given.

    That is relative and absolute, or an array of bounds (``within``).
    """
    expected = np.asarray(expected)
    output = (expected.shape, dtype or expected.dtype) + (() if before is None else (before,))
    got, = on_tiles(on, body, [output], *arrays, memory=memory)
    assert got.shape == expected.shape
    if within is not None:
        assert_within(got, expected, within)
    elif rtol or atol:
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(got, expected)
