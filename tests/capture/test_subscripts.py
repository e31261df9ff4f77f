# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts that are numbers, whose parts are worked out once, against NumPy's on the elements' offsets."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.capture.errors import TooManySubscripts
from nki_mlir.capture.index import DynamicSlice, Index
from nki_mlir.capture.strides import numbered_spans
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.scalar.dtypes import dtype_of

SHAPE = (5, 6, 7)
OFFSETS = np.arange(np.prod(SHAPE)).reshape(SHAPE)
SUBSCRIPTS = [(slice(1, 4), 2), (slice(None), slice(1, 4, 2), -1), (..., slice(0, 2)), (0, ..., 3), (-2,),
              (slice(1, None), slice(None, -1), slice(3, 3))]


def full_view():
    return View.full(Buffer(SHAPE, dtype_of(np.float32), "hbm", "t"))


def offsets(view):
    """The element of the buffer that each element of a view is."""
    elements = np.full(view.shape, view.free.const)
    for at in itertools.product(*map(range, view.shape)):
        elements[at] += sum(k * d.free for k, d in zip(at, view.dims))
    return elements


@pytest.mark.parametrize("subscript", SUBSCRIPTS)
def test_asked_again_a_part_is_the_same(subscript):
    for _ in range(2):
        np.testing.assert_array_equal(offsets(full_view().subscript(subscript)), OFFSETS[subscript])


def test_parts_of_equal_steps_start_where_their_view_starts():
    for start in (0, 2, 1):
        view = full_view().subscript(slice(start, start + 3))
        np.testing.assert_array_equal(offsets(view.subscript((slice(1, 3), 4))), OFFSETS[start:start + 3][1:3, 4])


def test_integers_on_chip_keep_the_partition():
    for space, dims in (("hbm", (7,)), ("sbuf", (1, 7)), ("hbm", (7,))):
        view = View.full(Buffer(SHAPE, dtype_of(np.float32), space, "t")).subscript((3, 2))
        assert view.shape == dims
        assert (view.partition.const, view.free.const) == ((3, 14) if space == "sbuf" else (0, 140))


def test_out_of_bounds_is_noted_every_time():
    for _ in range(2):
        limit, = full_view().subscript((slice(3, 6), 0)).limits
        assert (limit.dim, limit.extent) == (0, 5)
    assert full_view().subscript((slice(3, 5), 0)).limits == ()


def test_errors_come_every_time():
    for _ in range(2):
        with pytest.raises(TooManySubscripts, match="4 subscripts"):
            full_view().subscript((0, 0, 0, 0))


def test_what_is_looked_up():
    dims = full_view().dims
    assert numbered_spans((1, slice(0, 5, 2), DynamicSlice(3, 4)), dims) == ([0, 1, 2, 3, 1, 4], 0, 45)
    assert numbered_spans((..., -1), dims) == ([1, 5, 1, 6, 0, 1], 0, 6)
    for other in (True, np.int64(1), 1.0, Index(1), slice(Index(0), 8), slice(0.0, 8), DynamicSlice(Index(0), 4), None):
        assert numbered_spans((0, other, 0), dims) is None
        assert numbered_spans((0, other), dims) is None


NUMBERS = st.integers(-8, 8)
ONE = st.one_of(NUMBERS, st.builds(slice, *[st.none() | NUMBERS] * 2, st.none() | st.integers(1, 3)),
                st.builds(DynamicSlice, NUMBERS, st.integers(0, 8)))


@given(st.lists(ONE, max_size=3).map(tuple), st.sampled_from(["hbm", "sbuf"]))
def test_parts_by_numbers_are_those_of_the_general_form(items, space):
    view = View.full(Buffer(SHAPE, dtype_of(np.float32), space, "t"))
    numbered = view.numbered(items)
    try:
        general = view.unnumbered(items)
    except TooManySubscripts:
        return
    if numbered is None:
        assert general.limits or 0 in general.shape
    else:
        assert (numbered.dims, numbered.shape, numbered.partition.key, numbered.free.key) == (
            general.dims, general.shape, general.partition.key, general.free.key)
        assert numbered.limits == general.limits == ()
        tile = general.plain_tile()
        assert (numbered._tile and numbered._tile.access) == (tile and tile.access)
        assert tile is None or numbered._tile.form is tile.form
