# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decides whether results of two executors, or of two versions of a kernel, agree.

Executors compute equal values, except that native code, or a kernel with other tiles, adds the terms of a sum in
another order (docs/numerics.md). Two orders may round a sum to neighboring values of its dtype, which in bfloat16 are
0.8% apart.
"""

from collections.abc import Sequence

import ml_dtypes
import numpy as np

TOLERANCE = 1e-5            # relative to max(1, |value|), for results whose sums have the same order
SUMS_TOLERANCE = 1e-4       # relative to the largest value, for sums in another order: their terms may cancel


def error_of(first: object, second: object) -> float:
    """Return the largest difference, relative to max(1, |value|). NaN equals NaN, and infinities equal themselves."""
    a, b = (np.asarray(x).astype(np.float64) for x in (first, second))
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    if equal.all():
        return 0.0
    with np.errstate(invalid="ignore"):
        off = np.where(equal, 0.0, np.abs(a - b) / np.maximum(1.0, np.abs(a)))
    return float(np.where(np.isnan(off), np.inf, off).max())


def largest_error(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    """Return the largest error among results."""
    return max((error_of(a, b) for a, b in zip(first, second, strict=True)), default=0.0)


def orders_explain(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> bool:
    """Return whether another order of additions may explain all differences between results.

    An element may differ by ``SUMS_TOLERANCE`` of the largest value of its array, and by one rounding step, in the
    narrowest dtype among the results, of the largest value of its row. Integers, NaN and infinities are equal.
    """
    step = max((rounding_step(array) for array in (*first, *second)), default=0.0)
    return all(_order_explains(a, b, step) for a, b in zip(first, second, strict=True))


def rounding_step(array: np.ndarray) -> float:
    """Return the largest relative distance of neighboring values in an array's dtype; 0 for integers."""
    return float(ml_dtypes.finfo(array.dtype).eps) if "float" in array.dtype.name else 0.0


def _order_explains(first: np.ndarray, second: np.ndarray, step: float) -> bool:
    if not rounding_step(first):
        return np.array_equal(first, second)
    a, b = (np.atleast_1d(x).astype(np.float64) for x in (first, second))
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(np.where(finite, 0, a), np.where(finite, 0, b), equal_nan=True):
        return False
    a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    sizes = np.maximum(np.abs(a), np.abs(b))
    allowed = SUMS_TOLERANCE * sizes.max(initial=0.0) + step * sizes.max(axis=-1, keepdims=True, initial=0.0)
    return bool((np.abs(a - b) <= allowed).all())
