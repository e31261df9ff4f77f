# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Overlap and cover of access patterns against the sets of bytes they stand for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.access import Access, Linear, Tile
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT8
from nki_mlir.targets.neuron.codegen.dependences import nest_of, region_of

DIMS = st.lists(st.tuples(st.integers(-40, 40), st.integers(1, 4)), min_size=1, max_size=3)
DTYPES = st.sampled_from([FLOAT32, BFLOAT16, UINT8])
MEMBERS = st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 120), DIMS, DTYPES)


def tile(first, count, free, dims, dtype):
    return Tile(None, "sbuf", (128, 1024), dtype, Access(dtype, Linear(first), Linear(free), ((1, count), *dims)))


def touched(first, count, free, dims, dtype):
    flat = np.array([free])
    for step, n in dims:
        flat = (flat[:, None] + np.arange(n) * step).reshape(-1)
    first_bytes = flat[:, None] * dtype.itemsize + np.arange(dtype.itemsize)
    return {(p, int(b)) for p in range(first, first + count) for b in first_bytes.reshape(-1)}


@given(MEMBERS, MEMBERS)
def test_overlap__is_never_missed(a, b):
    one, other = (region_of(tile(*x), "sbuf") for x in (a, b))
    shares = bool(touched(*a) & touched(*b))
    assert one.overlaps(other) >= shares
    assert one.overlaps(other) == other.overlaps(one)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 6), st.integers(1, 6), st.integers(1, 8),
       st.integers(1, 8), st.integers(8, 40))
def test_overlap__is_exact_for_rows_of_one_pitch(start_a, start_b, rows_a, rows_b, width_a, width_b, pitch):
    a, b = (0, 1, start_a, ((pitch, rows_a), (1, width_a)), FLOAT32), (0, 1, start_b, ((pitch, rows_b), (1, width_b)),
                                                                      FLOAT32)
    assert region_of(tile(*a), "m").overlaps(region_of(tile(*b), "m")) == bool(touched(*a) & touched(*b))


@given(MEMBERS, MEMBERS)
def test_cover__is_only_claimed_where_it_holds(a, b):
    if region_of(tile(*a), "sbuf").covers(region_of(tile(*b), "sbuf")):
        assert touched(*a) >= touched(*b)


def test_cover__of_itself_and_of_a_part():
    whole, part = (region_of(tile(0, 4, free, dims, FLOAT32), "m") for free, dims in ((0, ((1, 64),)), (8, ((2, 16),))))
    assert whole.covers(whole) and whole.covers(part) and not part.covers(whole)


def test_nest__merges_what_is_contiguous():
    assert nest_of(((16, 4), (4, 4), (1, 4)), 4)[:3] == ((), 256, 256)
    assert nest_of(((64, 8), (1, 16)), 2)[:3] == (((128, 8),), 32, 128 * 7 + 32)
    assert nest_of(((-1, 5),), 4).shift == -16


def test_overlap__with_registers_is_exact_for_equal_terms_only():
    def moving(free, factor):
        access = Access(FLOAT32, Linear(), Linear(free, ((0, factor),)), ((1, 128), (1, 16)))
        return region_of(Tile(None, "sbuf", (128, 1024), FLOAT32, access), "m", symbols=("i",), ranges=((0, 3),))

    assert not moving(0, 16).overlaps(moving(16, 16))
    assert moving(0, 16).overlaps(moving(8, 16))
    assert moving(0, 16).overlaps(moving(16, 32))       # i = 1 and i = 0
    assert not moving(0, 16).overlaps(moving(64, 32))   # 0 to 63 against 64 on
