# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Create a kernel from an expression, run it on an executor, and compare its results with NumPy."""

from typing import Any

import numpy as np

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import Kernel, unwrap

from ..tolerances import assert_steps, assert_within
from .evaluating import evaluated, is_evaluated


def output_of(tile: Any) -> Any:
    """In a kernel: its output, which is the tile."""
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def kernel_of(body: Any) -> Any:
    """A kernel that loads all its arguments, and stores what ``body`` makes of them."""
    @nki.jit
    def kernel(*arrays):
        return output_of(body(*[nl.load(a) for a in arrays]))
    return kernel


def run(on: str, kernel: Any, *arguments: Any, grid: Any = None, **keywords: Any) -> Any:
    """What the kernel returns; arrays it was given are copied first, so that each executor starts from the same ones."""
    chosen: Kernel = unwrap(kernel)
    chosen = chosen if grid is None else chosen[grid]
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    return chosen.on(on)(*copies, **keywords)


def check(on: str, kernel: Any, expected: Any, *arguments: Any, rtol: float = 0.0, atol: float = 0.0, steps: int = 0,
          within: Any = None, grid: Any = None, **keywords: Any) -> None:
    """The kernel's results are ``expected``, bit for bit unless a tolerance is given, in shape and dtype, too.

    The tolerance is relative and absolute, or in ``steps`` of the dtype, or an array of bounds (``within``). The
    evaluator that shares nothing with the executors gives the results as well; it is asked once.
    """
    compare(run(on, kernel, *arguments, grid=grid, **keywords), expected, rtol, atol, steps, within)
    if on == "eager" and is_evaluated():
        compare(evaluated(kernel, arguments, keywords, grid).results, expected, rtol, atol, steps, within)


def compare(got: Any, expected: Any, rtol: float = 0.0, atol: float = 0.0, steps: int = 0, within: Any = None) -> None:
    if isinstance(expected, (tuple, list)):
        assert isinstance(got, (tuple, list)) and len(got) == len(expected)
        for g, e in zip(got, expected):
            compare(g, e, rtol, atol, steps, within)
        return
    assert isinstance(got, np.ndarray)
    assert got.shape == expected.shape, f"shape {got.shape}, expected {expected.shape}"
    assert got.dtype == expected.dtype, f"dtype {got.dtype}, expected {expected.dtype}"
    if within is not None:
        assert_within(got, expected, within)
    elif steps:
        assert_steps(got, expected, steps)
    elif rtol or atol:
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(got, expected)


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Distinct small integers as any dtype, so that a wrong element is seen and arithmetic on them is exact."""
    count = int(np.prod(shape)) if shape else 1
    values = np.random.default_rng(seed).permutation(count) % 251 - (0 if np.dtype(dtype).kind == "u" else 125)
    return values.reshape(shape).astype(dtype)


def floats(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
