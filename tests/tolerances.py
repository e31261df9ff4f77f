# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bounds of the difference between a computed value and the exact one, which follow from the arithmetic.

A rounding moves a value by at most half a step of its dtype, ``unit(dtype)`` of the value. A result that rounds once is
compared in steps (``assert_steps``), a sum of products with ``product_bound`` (``assert_within``).
"""

from typing import Any

import ml_dtypes
import numpy as np


def unit(dtype: Any) -> float:
    """The largest relative error of one rounding to a float dtype: 2**-24 for float32, 2**-8 for bfloat16."""
    return float(ml_dtypes.finfo(dtype).eps) / 2


def assert_steps(got: np.ndarray, expected: np.ndarray, most: int) -> None:
    """Each element is at most so many numbers of their dtype away from the expected one; NaN is NaN."""
    assert got.dtype == expected.dtype and got.shape == expected.shape, (got.dtype, got.shape)
    places = []
    for values in (got, expected):
        bits = np.ascontiguousarray(values).view(f"i{values.itemsize}").astype(np.int64)
        places.append(np.where(bits < 0, -(bits & ((1 << 8 * values.itemsize - 1) - 1)), bits))
    one, other = (np.isnan(values.astype(np.float64)) for values in (got, expected))
    np.testing.assert_array_equal(one, other)
    apart = np.where(one, 0, np.abs(places[0] - places[1]))
    assert apart.max(initial=0) <= most, f"{apart.max()} steps of {got.dtype}: {got[apart > most]} {expected[apart > most]}"


def assert_within(got: np.ndarray, exact: np.ndarray, bound: Any) -> None:
    """|got - exact| <= bound for each element, in float64."""
    assert got.shape == exact.shape, (got.shape, exact.shape)
    excess = np.abs(got.astype(np.float64) - exact.astype(np.float64)) / np.maximum(bound, np.finfo(np.float64).tiny)
    assert np.all(excess <= 1), f"{np.sum(~(excess <= 1))} elements, the worst {excess.max():.3} times its bound"


def product_bound(left: np.ndarray, right: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    """How far ``left.T @ right``, summed in float32 in any order and stored as ``dtype``, is from the exact product.

    For terms of random sign. Partial sums are about S, the root of the sum of the squared terms, or the result; each of
    the K additions moves them by at most unit(float32) of that. Errors of random sign add to sqrt(K) of one, which is
    2.4 standard deviations of their sum; the bound is four times that.
    """
    a, b = left.astype(np.float64), right.astype(np.float64)
    exact = np.abs(a.T @ b)
    partial = np.maximum(np.sqrt(np.square(a).T @ np.square(b)), exact)
    return 4 * np.sqrt(len(a)) * unit(np.float32) * partial + unit(dtype) * exact
