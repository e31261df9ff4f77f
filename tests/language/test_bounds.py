# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bounds against brute force: an access is refused exactly if some element that the mask lets through is outside."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from ..property_counts import tries
from .conftest import EXECUTORS
from .running import numbers, run

ROWS, COLUMNS, P, F, TURNS = 9, 8, 4, 5, 3
COEFFICIENTS = st.tuples(st.integers(-2, 3), st.integers(-1, 2), st.integers(-3, 4))
TERMS = st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(-2, 2), st.integers(-6, 8),
                           st.sampled_from(["<", ">=", "=="])), max_size=3)


def condition(terms, p, f, i):
    result = True
    for a, b, c, d, op in terms:
        value = a * p + b * f + c * i
        result = result & {"<": value < d, ">=": value >= d, "==": value == d}[op]
    return result


def addresses(row, column, p, f, i):
    return row[0] * p + row[1] * i + row[2], column[0] * f + column[1] * i + column[2]


def expected_of(x, row, column, terms, guard):
    """What is read (0 where the mask does not hold), or None where something outside would be."""
    p, f = np.mgrid[:P, :F]
    expected = np.zeros((TURNS, P, F), np.float32)
    for i in range(TURNS):
        if not condition(guard, 0, 0, i):
            continue
        inside = np.broadcast_to(condition(terms, p, f, i), (P, F))
        r, c = np.broadcast_arrays(*addresses(row, column, p, f, i))
        r, c = r[inside], c[inside]
        if r.size and (r.min() < 0 or r.max() >= ROWS or c.min() < 0 or c.max() >= COLUMNS):
            return None
        expected[i][inside] = x[r, c]
    return expected


def compare(kernel, expected, *arrays):
    for on in EXECUTORS:
        if expected is None:
            with pytest.raises(OutOfBounds, match=r"Out-of-bound access for tensor `\w+`|elements? outside dimension \d of `\w+`"):
                run(on, kernel, *arrays)
        else:
            np.testing.assert_array_equal(run(on, kernel, *arrays), expected)


@tries(100)
@given(COEFFICIENTS, COEFFICIENTS, TERMS, st.lists(st.tuples(
    st.just(0), st.just(0), st.integers(-2, 2), st.integers(-4, 5), st.sampled_from(["<", ">=", "=="])), max_size=1))
def test_bounds_of_masked_and_guarded_loads(row, column, terms, guard):
    x = numbers(ROWS, COLUMNS) + 300

    @nki.jit
    def kernel(x):
        out = nl.ndarray((TURNS, P, F), nl.float32, buffer=nl.shared_hbm)
        p, f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        for i in nl.affine_range(TURNS):
            tile = nl.zeros((P, F), nl.float32)
            if condition(guard, 0, 0, i):
                r, c = addresses(row, column, p, f, i)
                tile[...] = nl.load(x[r, c], mask=condition(terms, p, f, i))
            nl.store(out[i], tile)
        return out
    compare(kernel, expected_of(x, row, column, terms, guard), x)


@tries(60)
@given(st.integers(-2, 2), st.integers(0, 6), st.integers(1, 4), TERMS)
@example(0, 0, 2, [(-1, 0, 0, 0, "<"), (-1, 0, 0, 0, ">=")])            # holds nowhere, whatever the column
def test_bounds_of_tile_columns(by, start, step, terms):
    """On chip, a free offset that leaves its partition is outside, whatever lies there."""
    x = numbers(P, COLUMNS) + 300
    p, f = np.mgrid[:P, :F]
    expected = np.zeros((TURNS, P, F), np.float32)
    for i in range(TURNS):
        inside = np.broadcast_to(condition(terms, p, f, i), (P, F))
        c = np.broadcast_to(start + step * f + by * i, (P, F))
        if expected is not None and inside.any() and (c[inside].min() < 0 or c[inside].max() >= COLUMNS):
            expected = None
        if expected is not None:
            expected[i][inside] = x[p[inside], c[inside]]

    @nki.jit
    def kernel(x):
        out = nl.ndarray((TURNS, P, F), nl.float32, buffer=nl.shared_hbm)
        p, f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        data = nl.load(x)
        for i in nl.affine_range(TURNS):
            tile = nl.zeros((P, F), nl.float32)
            tile[...] = nl.copy(data[p, start + step * f + by * i], mask=condition(terms, p, f, i))
            nl.store(out[i], tile)
        return out
    compare(kernel, expected, x)


@tries(40)
@given(st.integers(1, 7), st.integers(1, 5), st.integers(-3, 6), st.integers(0, 4))
def test_bounds_of_slices(size, by, start, steps):
    """Slices beyond the tensor are refused, not clipped."""
    x = numbers(P, COLUMNS)
    places = [start + by * i for i in range(steps + 1)]

    @nki.jit
    def kernel(x):
        out = nl.ndarray((steps + 1, P, size), nl.float32, buffer=nl.shared_hbm)
        for i in nl.affine_range(steps + 1):
            nl.store(out[i], nl.load(x[:, nl.ds(by * i + start, size)]))
        return out
    fits = min(places) >= 0 and max(places) + size <= COLUMNS
    compare(kernel, np.stack([x[:, a:a + size] for a in places]) if fits else None, x)


def test_error_is_named_in_both_ways_of_running():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((P, F), nl.float32, buffer=nl.shared_hbm)
        p, f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        nl.store(out[p, f], nl.load(x[2 * p, f], mask=p + f < 7))
        return out
    for on in EXECUTORS:
        with pytest.raises(KernelError) as caught:
            run(on, kernel, numbers(6, COLUMNS))
        assert caught.value.name == "err_tensor_access_out_of_bound" and caught.value.at.file == __file__
