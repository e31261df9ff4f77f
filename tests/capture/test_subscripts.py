# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts that are numbers, whose parts are worked out once, against NumPy's on the elements' offsets."""

import itertools

import numpy as np
import pytest

from nki_mlir.capture.errors import TooManySubscripts
from nki_mlir.capture.index import DynamicSlice, Index
from nki_mlir.capture.strides import numbers_of
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.scalar.dtypes import dtype_of

SHAPE = (5, 6, 7)
OFFSETS = np.arange(np.prod(SHAPE)).reshape(SHAPE)
SUBSCRIPTS = [(slice(1, 4), 2), (slice(None), slice(1, 4, 2), -1), (..., slice(0, 2)), (0, ..., 3), (-2,),
              (slice(1, None), slice(None, -1), slice(3, 3))]


def whole():
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
        np.testing.assert_array_equal(offsets(whole().subscript(subscript)), OFFSETS[subscript])


def test_parts_of_equal_steps_start_where_their_view_starts():
    for start in (0, 2, 1):
        view = whole().subscript(slice(start, start + 3))
        np.testing.assert_array_equal(offsets(view.subscript((slice(1, 3), 4))), OFFSETS[start:start + 3][1:3, 4])


def test_integers_on_chip_keep_the_partition():
    for space, dims in (("hbm", (7,)), ("sbuf", (1, 7)), ("hbm", (7,))):
        view = View.full(Buffer(SHAPE, dtype_of(np.float32), space, "t")).subscript((3, 2))
        assert view.shape == dims
        assert (view.partition.const, view.free.const) == ((3, 14) if space == "sbuf" else (0, 140))


def test_out_of_bounds_is_noted_every_time():
    for _ in range(2):
        limit, = whole().subscript((slice(3, 6), 0)).limits
        assert (limit.dim, limit.extent) == (0, 5)
    assert whole().subscript((slice(3, 5), 0)).limits == ()


def test_errors_come_every_time():
    for _ in range(2):
        with pytest.raises(TooManySubscripts, match="4 subscripts"):
            whole().subscript((0, 0, 0, 0))


def test_what_is_looked_up():
    assert numbers_of((1, slice(0, 8), DynamicSlice(8, 4), ...)) == (1, (0, 8, None), (8, 4), ...)
    for other in (True, np.int64(1), 1.0, Index(1), slice(Index(0), 8), slice(0.0, 8), DynamicSlice(Index(0), 4), None):
        assert numbers_of((0, other)) is None
