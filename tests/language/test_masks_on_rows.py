# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks on what works on rows: scans, searches, gathers, statistics; and conditions with != and | on what combines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.analysis.mask_boxes import UnderMask
from nki_mlir.capture.errors import UnsupportedMask
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from ..property_counts import tries
from .conftest import EXECUTORS
from .masking import COLUMNS, ROWS, TURNS, comparisons, grid_of, holds
from .running import check, run

SOME = tries(12)
MASKS = st.lists(comparisons(), min_size=1, max_size=2)
X = np.random.default_rng(0).permuted(np.tile(np.arange(COLUMNS, dtype=np.float32), (ROWS, 1)), axis=1)
TABLE = np.random.default_rng(1).standard_normal((30, COLUMNS)).astype(np.float32)
PICKED = np.random.default_rng(2).permutation(30)[:ROWS].astype(np.int32).reshape(ROWS, 1)
MEMBERS = np.random.default_rng(3).integers(0, COLUMNS, (ROWS, COLUMNS)).astype(np.uint32)


def axes():
    return nl.arange(ROWS)[:, None], nl.arange(COLUMNS)[None, :]


def agree(kernel, terms, expected, *arguments, shape=(ROWS, COLUMNS), rtol=0.0):
    """``expected(row, active places)`` gives what becomes of a row of 77, and where."""
    wanted = np.full((TURNS, *shape), 77, np.float32)
    for i, active in enumerate(grid_of(terms)):
        for row in range(ROWS):
            if active[row].any():
                where, values = expected(row, np.flatnonzero(active[row]))
                wanted[i, row, where] = values
    for on in EXECUTORS:
        check(on, kernel, wanted, *arguments, rtol=rtol)


@SOME
@given(MASKS)
def test_scan(terms):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((TURNS, ROWS, COLUMNS), nl.float32, buffer=nl.shared_hbm)
        (p, f), tile = axes(), nl.load(x)
        for i in nl.affine_range(TURNS):
            scanned = nl.full((ROWS, COLUMNS), 77, nl.float32)
            scanned[p, f] = nisa.tensor_tensor_scan(tile[p, f], tile[p, f], 0.0, nl.add, nl.maximum,
                                                    mask=holds(terms, p, f, i, True))
            nl.store(out[i], scanned)
        return out

    def expected(row, active):
        carry, values = np.float32(0), []
        for f in active:
            carry = max(X[row, f] + carry, X[row, f])
            values.append(carry)
        return active, values
    agree(kernel, terms, expected, X)


@SOME
@given(MASKS)
def test_statistics(terms):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((TURNS, ROWS, 6), nl.float32, buffer=nl.shared_hbm)
        (p, f), tile = axes(), nl.load(x)
        for i in nl.affine_range(TURNS):
            statistics = nl.full((ROWS, 6), 77, nl.float32)
            statistics[...] = nisa.bn_stats(tile[p, f], mask=holds(terms, p, f, i, True))
            nl.store(out[i], statistics)
        return out

    def expected(row, active):
        values = []
        for part in (X[row, active[0::2]], X[row, active[1::2]]):
            values += [len(part), part.mean(), part.var() * len(part)] if len(part) else [0, 0, 0]
        return slice(None), values
    agree(kernel, terms, expected, X, shape=(ROWS, 6), rtol=1e-5)


@SOME
@given(MASKS, st.booleans())
def test_gathers(terms, flattened):
    @nki.jit
    def kernel(data, places):
        out = nl.ndarray((TURNS, ROWS, COLUMNS), nl.float32, buffer=nl.shared_hbm)
        (p, f), index = axes(), nl.load(places)
        for i in nl.affine_range(TURNS):
            gathered, mask = nl.full((ROWS, COLUMNS), 77, nl.float32), holds(terms, p, f, i, True)
            if flattened:
                gathered[p, f] = nl.gather_flattened(nl.load(data), index, mask=mask)
            else:
                gathered[p, f] = nl.load(data[index[p, 0], f], mask=mask)
            nl.store(out[i], gathered)
        return out
    picked = np.take_along_axis(X, MEMBERS.astype(int), 1) if flattened else TABLE[PICKED[:, 0]]
    agree(kernel, terms, lambda row, active: (active, picked[row, active]), *((X, MEMBERS) if flattened else (TABLE, PICKED)))


def test_scatter_of_a_triangle(on):
    @nki.jit
    def kernel(table, rows, x):
        out = nl.ndarray(table.shape, nl.float32, buffer=nl.shared_hbm)
        (p, f), index = axes(), nl.load(rows)
        nl.store(out, nl.load(table))
        nl.store(out[index[p, 0], f], nl.load(x), mask=f <= p)
        return out
    expected, lower = TABLE.copy(), np.tri(ROWS, COLUMNS, dtype=bool)
    expected[PICKED[:, 0]] = np.where(lower, X, TABLE[PICKED[:, 0]])
    check(on, kernel, expected, TABLE, PICKED, X)


def test_searches_in_a_triangle(on):
    rows, columns = 24, 32
    x = np.random.default_rng(4).permuted(np.tile(np.arange(columns, dtype=np.float32), (rows, 1)), axis=1)

    @nki.jit
    def kernel(x):
        best, where, replaced = (nl.ndarray((rows, n), t, buffer=nl.shared_hbm)
                                 for n, t in ((8, nl.float32), (8, nl.uint32), (columns, nl.float32)))
        p, f = nl.arange(rows)[:, None], nl.arange(columns)[None, :]
        tile, searched = nl.load(x), nl.copy(nl.load(x))
        eight = nisa.max8(src=tile[p, f], mask=f <= p + 8)
        nl.store(best, eight)
        nl.store(where, nisa.nc_find_index8(data=tile[p, f], vals=eight, mask=f <= p + 8))
        searched[p, f] = nisa.nc_match_replace8(data=tile[p, f], vals=eight, imm=-1.0, mask=f <= p + 8)
        nl.store(replaced, searched)
        return best, where, replaced
    best, where, replaced = np.zeros((rows, 8), np.float32), np.zeros((rows, 8), np.uint32), x.copy()
    for p in range(rows):
        where[p] = np.argsort(-x[p, :p + 9])[:8]
        best[p] = x[p, where[p]]
        replaced[p, where[p]] = -1
    check(on, kernel, (best, where, replaced), x)


@pytest.mark.parametrize("loop", [False, True])
def test_search_needs_eight_values_in_each_row(on, loop):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((ROWS, 8), nl.float32, buffer=nl.shared_hbm)
        (p, f), tile = axes(), nl.load(x)
        for i in nl.affine_range(2):
            nl.store(out, nisa.max8(src=tile[p, f], mask=f <= p + 5 - (i if loop else 0)), mask=i == 1)
        return out
    with pytest.raises(UnderMask, match=r"8 to 16384 values a partition in src, got [56] under its mask") as raised:
        run(on, kernel, X)
    assert raised.value.at.line == kernel.func.__code__.co_firstlineno + 5


# -- != and | ----------------------------------------------------------------------------------------------------------
def test_negations_on_axes_that_are_kept(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((TURNS, ROWS, 3), nl.float32, buffer=nl.shared_hbm)
        (p, f), tile = axes(), nl.load(x)
        for i in nl.affine_range(TURNS):
            scanned, sums = nl.full((ROWS, COLUMNS), 77, nl.float32), nl.full((ROWS, 1), 77, nl.float32)
            best = nl.full((ROWS, 8), 77, nl.float32)
            scanned[p, f] = nisa.tensor_tensor_scan(tile[p, f], tile[p, f], 0.0, nl.add, nl.maximum, mask=i != 1)
            sums[...] = nisa.tensor_reduce(np.add, tile[p, f], axis=(1,), keepdims=True, mask=p != i)
            best[...] = nisa.max8(src=tile[p, f], mask=(p < 2) | (p > 4 + i))
            nl.store(out[i, :, 0:1], scanned[:, COLUMNS - 1:COLUMNS])
            nl.store(out[i, :, 1:2], sums)
            nl.store(out[i, :, 2:3], best[:, 0:1])
        return out
    expected = np.full((TURNS, ROWS, 3), 77, np.float32)
    rows = np.arange(ROWS)
    for i in range(TURNS):
        if i != 1:
            expected[i, :, 0] = X.sum(1)
        expected[i, rows != i, 1] = X.sum(1)[rows != i]
        expected[i, (rows < 2) | (rows > 4 + i), 2] = COLUMNS - 1
    check(on, kernel, expected, X)


@pytest.mark.parametrize("what", ["sum", "scan", "moves"])
def test_negations_on_what_is_combined_are_refused(on, what):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((ROWS, COLUMNS), nl.float32, buffer=nl.shared_hbm)
        (p, f), tile = axes(), nl.load(x)
        if what == "sum":
            tile[:, 0:1] = nisa.tensor_reduce(np.add, tile[p, f], axis=(1,), keepdims=True, mask=f != 3)
        elif what == "scan":
            tile[p, f] = nisa.tensor_tensor_scan(tile[p, f], tile[p, f], 0.0, nl.add, nl.maximum, mask=f != 3)
        else:
            g = nl.arange(COLUMNS - 2)[None, :]
            tile[p, g + 2] = nl.add(tile[p, g], 0, mask=g != 4)
        nl.store(out, tile)
        return out
    with pytest.raises(UnsupportedMask, match=r"contains ~, != or \|"):
        run(on, kernel, X)
