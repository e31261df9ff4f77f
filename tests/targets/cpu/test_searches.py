# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches in rows, compiled: order of special numbers, equal values, values that are absent, any dtype and length."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, 1.5, -2.0, 1e-40, 3e38]


@nki.jit
def searched(x, values):
    """Return the eight largest, the indices of values, x with these replaced, and their indices as 16-bit integers."""
    shape = x.shape
    top, indices, short, result = [nl.ndarray(s, d, buffer=nl.shared_hbm) for s, d in (
        ((shape[0], 8), values.dtype), ((shape[0], 8), nl.uint32), ((shape[0], 8), nl.uint16), (shape, x.dtype))]
    t, v = nl.ndarray(shape, x.dtype, buffer=nl.sbuf), nl.ndarray((shape[0], 8), values.dtype, buffer=nl.sbuf)
    best, i, s = [nl.ndarray((shape[0], 8), d, buffer=nl.sbuf) for d in (values.dtype, nl.uint32, nl.uint16)]
    nisa.dma_copy(t, x)
    nisa.dma_copy(v, values)
    nisa.max8(best, t)
    nisa.nc_find_index8(i, t, v)
    nisa.nc_match_replace8(t, t, v, -7.0, dst_idx=s)
    for out, tile in ((top, best), (indices, i), (short, s), (result, t)):
        nisa.dma_copy(out, tile)
    return top, indices, short, result


def order(number):
    """Return the key by which numbers sort: NaN first, -0 before 0."""
    return (0, 0, 0) if np.isnan(number) else (1, number, not np.signbit(number))


def expected_indices(row, values):
    """Return the index of each value; equal values get later occurrences."""
    free, indices = list(row), []
    for value in values:
        index = next((k for k, number in enumerate(free) if number == value), -1)
        indices.append(index)
        if index >= 0:
            free[index] = np.nan
    return indices


@pytest.mark.parametrize("dtype, other", [("float32", "float32"), ("float32", "bfloat16"), ("bfloat16", "bfloat16"),
                                          ("bfloat16", "float32"), ("float16", "float32"), ("int16", "float32")])
@pytest.mark.parametrize("length", [8, 33, 300])
def test_searches(dtype, other, length):
    rng = np.random.default_rng(length)
    kind, values_kind = (getattr(ml_dtypes, name, None) or np.dtype(name).type for name in (dtype, other))
    x = np.round(rng.standard_normal((3, length)) * 4)
    if dtype != "int16":
        x[:2] = rng.choice(SPECIAL + [1.0, 2.0, 3.0], (2, length))
    with np.errstate(over="ignore"):
        x = x.astype(kind)
    wide = x.astype(np.float32)
    values = np.concatenate([wide[:, :4], wide[:, 2:4], [[1.5, 0.3]] * 3], 1).astype(values_kind)
    top, indices, short, result = searched.on("jit")(x, values)
    largest = [sorted(row, key=order)[:-9:-1] for row in wide]
    with np.errstate(over="ignore"):
        largest = np.array(largest, np.float32).astype(values_kind).astype(np.float32)
    top = np.asarray(top).astype(np.float32)
    np.testing.assert_array_equal(top, largest)
    np.testing.assert_array_equal(np.signbit(top)[~np.isnan(top)], np.signbit(largest)[~np.isnan(largest)])
    where = np.array([expected_indices(row, v) for row, v in zip(wide, values.astype(np.float32))])
    np.testing.assert_array_equal(indices, where.astype(np.uint32))
    # nc_match_replace8 looks for the last value first.
    where = np.array([expected_indices(row, v[::-1])[::-1] for row, v in zip(wide, values.astype(np.float32))])
    np.testing.assert_array_equal(short, where.astype(np.uint16))
    replaced = wide.copy()
    for row, positions in zip(replaced, where):
        row[positions[positions >= 0]] = -7
    np.testing.assert_array_equal(np.asarray(result).astype(np.float32), replaced)


@nki.jit
def largest_of_columns(x):
    """Return the eight largest of every third element of two axes, and of all elements."""
    out = nl.ndarray((8, 16), x.dtype, buffer=nl.shared_hbm)
    t, v = nl.ndarray((8, 6, 24), x.dtype, buffer=nl.sbuf), nl.ndarray((8, 16), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(t, x)
    nisa.max8(v[:, 0:8], t[:, 1:5, 2:24:3])
    nisa.max8(v[:, 8:16], t)
    nisa.dma_copy(out, v)
    return out


def test_rows_of_two_axes():
    x = np.random.default_rng(0).permutation(8 * 144).reshape(8, 6, 24).astype(np.float32)
    parts = [-np.sort(-part.reshape(8, -1), 1)[:, :8] for part in (x[:, 1:5, 2:24:3], x)]
    np.testing.assert_array_equal(largest_of_columns.on("jit")(x), np.concatenate(parts, 1))
