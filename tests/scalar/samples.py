# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values on which scalar functions are compared: edges, ties, limits and random bits."""

import math

import numpy as np

from nki_mlir.scalar.dtypes import FLOAT32, DType

_TINY = np.finfo(np.float32).smallest_subnormal
_NORMAL = np.finfo(np.float32).smallest_normal


def _floats() -> np.ndarray:
    limits = [float(2**n) for n in (7, 8, 15, 16, 24, 31, 32, 63, 64)]
    # The largest finite value and the least denormal of each narrow type, with the ties beside them.
    narrow = [65504, 65520, 2.0**-24, 2.0**-25, 240, 248, 2.0**-9, 2.0**-10, 448, 464, 57344, 61440, 2.0**-16, 2.0**-17,
              3.3895314e38, 3.3961776e38, 9.183549615799121e-41]
    plain = [0.0, _TINY, 3 * _TINY, _NORMAL, 1.0, 0.5, 1.5, 2.5, 3.5, 0.1, 1e-3, 10, 88.7, 88.8, 103.9, 104, 1e10, 1e30,
             np.finfo(np.float32).max, np.inf, math.pi, math.pi / 2, math.pi / 4, math.e, *limits, *narrow]
    values = np.array(plain, np.float32)
    with np.errstate(all="ignore"):
        around = np.concatenate([values, np.nextafter(values, np.float32(0)),
                                 np.nextafter(values, np.float32(np.inf)), values - np.float32(0.5)])
    around = around[~np.isnan(around)]
    return np.concatenate([around, -around, [np.float32(np.nan)]]).astype(np.float32)


EDGES = _floats()


def random_bits(dtype: DType, count: int, seed: int = 1) -> np.ndarray:
    """Values of random bits: floats of each exponent, infinities and NaN included; quiet NaN only."""
    rng = np.random.default_rng(seed)
    if dtype.name == "bool":
        return rng.integers(0, 2, count).astype(bool)
    bits = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(f"u{dtype.itemsize}")
    values = bits.view(dtype.numpy)
    if dtype.is_float:
        with np.errstate(invalid="ignore"):
            values = np.where(values != values, np.array(np.nan, dtype.numpy), values)
    return values.view(dtype.numpy)


def of_dtype(dtype: DType, count: int = 6000) -> np.ndarray:
    """Edge values and random ones of ``dtype``."""
    with np.errstate(all="ignore"):
        if dtype is FLOAT32:
            edges = EDGES
        elif dtype.is_float:
            edges = EDGES.astype(dtype.numpy)
        elif dtype.name == "bool":
            edges = np.array([False, True])
        else:
            low, high = int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max)
            limits = [2**n + k for n in (7, 8, 15, 16, 31, 32, 63, 64) for k in (-2, -1, 0)]
            # 24 bits and a tie of float32, its neighbors, and a double rounding of bfloat16.
            ties = [2**24 + 1, 2**24 + 3, 2**25 + 2, 2**25 + 6, 0x1010001, 0x1018000]
            both = [s * v for v in (*limits, *ties, 0, 1, 2, 3, dtype.bits - 1, dtype.bits) for s in (1, -1)]
            edges = np.array([v for v in (*both, low, low + 1, high) if low <= v <= high], dtype.numpy)
    return np.concatenate([edges, random_bits(dtype, count)]).astype(dtype.numpy)


def assert_same(got: np.ndarray, wanted: np.ndarray, *inputs: np.ndarray) -> None:
    """Bit for bit, but any NaN is like any other."""
    unsigned = f"u{wanted.dtype.itemsize}"
    wrong = got.view(unsigned) != wanted.view(unsigned)
    if wanted.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            wrong &= (got == got) | (wanted == wanted)
    first = np.flatnonzero(wrong)[:5]
    assert not first.size, f"{[i[first] for i in inputs]} give {got[first]}, wanted {wanted[first]}"


NUMPY_ULP = 4               # NumPy's own float32 functions


def ulp_error(got: np.ndarray, exact: np.ndarray, absolute: float = 0.0) -> float:
    """The largest distance of float32 values from float64 ones, in units in the last place of float32.

    A result that overflows must be infinite, NaN must be NaN; ``absolute`` is taken off each distance.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        finite = np.isfinite(rounded)
        assert np.array_equal(np.isnan(got), np.isnan(rounded))
        beyond = np.isinf(rounded)
        assert np.all((got[beyond] == rounded[beyond]) | (np.abs(got[beyond]) == np.finfo(np.float32).max))
        error = np.maximum(np.abs(got[finite].astype(np.float64) - exact[finite]) - absolute, 0)
        # An infinity beside the largest finite value counts as one unit.
        error = np.where(np.isinf(got[finite]) & (np.abs(rounded[finite]) >= 3.4028e38), 0, error)
        return float(np.max(error / np.spacing(np.abs(rounded[finite])), initial=0))
