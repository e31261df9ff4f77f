# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands that are tiles of buffers, against the partition and the free offset of each element of a nest."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.access import HBM, SBUF, Access, Linear, Tile
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32
from nki_mlir.waist.tile_operand import TileOperand, walked

STRIDES = st.lists(st.integers(0, 9), min_size=1, max_size=3)


@st.composite
def operands(draw):
    strides = draw(STRIDES)
    lanes = draw(st.sampled_from([None, *range(len(strides))]))
    if lanes is not None:
        strides[lanes] = 0
    return operand(strides, lanes, draw(st.integers(0, 5)), draw(st.integers(0, 50)))


def operand(strides, lanes=None, partition=3, free=20, space=SBUF):
    access = Access(FLOAT32, Linear(partition) if space == SBUF else None, Linear(free), ((1, 1), (1, 1)))
    return walked(Tile("buffer", space, (128, 400), FLOAT32, access), strides, lanes)


def element(walk: TileOperand, index):
    """Return the partition and the free offset of an element: the definition of the operand."""
    partition = walk.partition.const + (0 if walk.lanes is None else index[walk.lanes])
    return partition, walk.free.const + sum(s * k for s, k in zip(walk.strides, index, strict=True))


def indices(rank, extent=3):
    return product(range(extent), repeat=rank)


def test_walked__has_the_start_of_the_tile():
    access = Access(BFLOAT16, Linear(2), Linear(7), ((1, 4), (1, 8)))
    walk = walked(Tile("buffer", SBUF, (128, 64), FLOAT32, access), [0, 5], 0)
    assert (walk.dtype, walk.base_dtype, walk.base_shape, walk.handle) == (BFLOAT16, FLOAT32, (128, 64), "buffer")
    assert element(walk, (3, 2)) == (5, 17)


def test_moves__along_the_partitions_and_by_steps():
    walk = operand([0, 4, 0], 0)
    assert [walk.moves(axis) for axis in range(3)] == [True, True, False]
    assert walk.on_chip and not operand([1], space=HBM).on_chip


@given(operands())
def test_reached__has_the_elements_of_all_iterations(walk):
    (step, rows), *dims = walk.reached([3] * len(walk.strides)).access.dims
    free = {walk.free.const + sum(s * k for (s, _), k in zip(dims, index, strict=True))
            for index in product(*(range(count) for _, count in dims))}
    assert {*product((walk.partition.const + step * k for k in range(rows)), free)} == {
        element(walk, index) for index in indices(len(walk.strides))}


@given(operands(), st.data())
def test_along__keeps_the_elements(walk, data):
    axes = data.draw(st.permutations(range(len(walk.strides))))
    permuted = walk.along(axes)
    for index in indices(len(axes)):
        assert element(permuted, [index[a] for a in axes]) == element(walk, index)


def test_along__without_the_partitions():
    walk = operand([0, 4, 2], 0)
    assert (walk.along([2, 1]).strides, walk.along([2, 1]).lanes, walk.along([1, 0]).lanes) == ((2, 4), None, 1)


@given(operands(), st.data(), st.integers(1, 4))
def test_divided__keeps_the_elements(walk, data, inner):
    axis = data.draw(st.integers(0, len(walk.strides) - 1))
    if walk.lanes == axis:
        with pytest.raises(InternalError, match="an axis along the partitions is divided"):
            walk.divided(axis, inner)
        return
    divided = walk.divided(axis, inner)
    for index in indices(len(walk.strides), 2 * inner):
        outer_and_inner = *index[:axis], *divmod(index[axis], inner), *index[axis + 1:]
        assert element(divided, outer_and_inner) == element(walk, index)


@given(operands(), st.data())
def test_at__moves_the_start(walk, data):
    starts = data.draw(st.tuples(*[st.integers(0, 6)] * len(walk.strides)))
    for index in indices(len(starts)):
        assert element(walk.at(starts), index) == element(walk, [s + k for s, k in zip(starts, index)])


def test_step_as_one__not_with_the_partitions():
    assert operand([8, 2]).step_as_one(0, 1, 4) and not operand([8, 2]).step_as_one(0, 1, 3)
    assert not operand([0, 0], 0).step_as_one(0, 1, 4) and not operand([0, 0], 1).step_as_one(0, 1, 4)


@pytest.mark.parametrize("lanes, counts, axes, dims", [
    (0, (4, 3), None, ((1, 4), (5, 3))),
    (None, (4, 3), None, ((0, 4), (5, 3))),             # one partition, read by each
    (None, (1, 3), None, ((1, 1), (5, 3))),
    (0, (4, 1), None, ((1, 4), (1, 1))),                # the step of one element does not matter
    (1, (4, 3), (1, 0), ((1, 4), (7, 3))),
])
def test_tile__has_the_box_at_the_start(lanes, counts, axes, dims):
    strides = [7, 5]
    if lanes is not None:
        strides[lanes] = 0
    tile = operand(strides, lanes).tile(counts, axes)
    assert tile.access == Access(FLOAT32, Linear(3), Linear(20), dims)
    assert (tile.handle, tile.space, tile.base_shape) == ("buffer", SBUF, (128, 400))


def test_tile__in_hbm_has_the_step_of_its_first_axis():
    assert operand([7, 5], space=HBM).tile((4, 3)).access == Access(FLOAT32, None, Linear(20), ((7, 4), (5, 3)))
