# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sources of elementwise operations, broadcast to the shape of the destination, against NumPy's arrays of numbers."""

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.capture.broadcasting import broadcast, source_of
from nki_mlir.capture.errors import BadBroadcast
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.dialects.verifier import NotOneARow, PartitionMismatch
from nki_mlir.scalar.dtypes import FLOAT32

SHAPES = [shape for rank in range(1, 5) for shape in itertools.product((1, 2, 3)[:6 - rank], repeat=rank)]


def tile(shape, space="sbuf"):
    return View.full(Buffer(shape, FLOAT32, space, "tile"))


def numbers(view):
    """The number, in the tile's order, of each element of a view."""
    shape = view.buffer.shape
    dims = [(d.partition, d.free, d.count) for d in view.dims]
    columns = int(np.prod(shape[1:], dtype=int))
    result = np.full([count for _, _, count in dims], view.partition.const * columns + view.free.const)
    for axis, (partition, free, count) in enumerate(dims):
        steps = np.arange(count) * (partition * columns + free)
        result = result + steps.reshape([-1 if k == axis else 1 for k in range(len(dims))])
    return result


def expected(shape, wanted, on_chip):
    """The numbers of a tile's elements in another shape, or None. Tiles keep their partitions, tensors in HBM have none."""
    array = np.arange(int(np.prod(shape))).reshape(shape)
    if len(shape) < len(wanted) and shape[0] == wanted[0] and (
            set(shape[1:]) <= {1} or (shape == wanted[:len(shape)] and set(wanted[len(shape):]) == {1})):
        array = array.reshape(shape + (1,) * (len(wanted) - len(shape)))       # behind, not in front
    elif len(shape) > len(wanted) and [n for n in shape if n > 1] == [n for n in wanted if n > 1] and (
            shape[0] == wanted[0] or not on_chip):
        return array.reshape(wanted)
    try:
        return np.broadcast_to(array, wanted)
    except ValueError:
        return None


@pytest.mark.parametrize("space", ["sbuf", "hbm"])
def test_extents_of_one__repeat_or_are_missing(space):
    for shape, wanted in itertools.product(SHAPES, repeat=2):
        meant = expected(shape, wanted, space == "sbuf")
        if meant is None:
            with pytest.raises(BadBroadcast, match=re.escape(f"shape {shape} does not broadcast to {wanted}")):
                broadcast(tile(shape, space), wanted)
        else:
            view = broadcast(tile(shape, space), wanted)
            assert view.shape == wanted and (numbers(view) == meant).all(), (shape, wanted)


def test_operand_of_one_value_in_each_partition__is_named_where_it_does_not_fit():
    cls = SimpleNamespace(name="tensor_scalar", row_operands=("operand0",))
    assert source_of(cls, "operand0", tile((4, 1)), (4, 2, 3)).shape == (4, 2, 3)
    assert source_of(cls, "data", tile((4, 1)), (4, 5)).shape == (4, 5)
    with pytest.raises(BadBroadcast, match=re.escape("shape (4, 2) does not broadcast to (4, 5)")):
        source_of(cls, "data", tile((4, 2)), (4, 5))
    for shape, count in (((4, 2), 2), ((3, 2, 3), 6)):
        with pytest.raises(NotOneARow) as error:
            source_of(cls, "operand0", tile(shape), (4, 5))
        assert error.value.headline.startswith(
            f"operand 'operand0' of 'tensor_scalar' has {count} values in each partition")
        assert "(4, 1)" in error.value.advice[1]
    for shape in ((3, 1), (3, 1, 1)):
        with pytest.raises(PartitionMismatch) as error:
            source_of(cls, "operand0", tile(shape), (4, 5))
        assert f"dst[4, 5], operand0{list(shape)}" in error.value.headline
