# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of rows and recurrences, written by a writer that computes at once, compared with loops in NumPy."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from nki_mlir.dialects.access import Access, Linear, Tile, full_tile
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, DType, convert
from nki_mlir.waist.rows import Rows, column_of, count_along, recurrence
from nki_mlir.waist.writer import IterationSpace


class Scalars:
    """A scalar builder on numbers, each of which has the dtype that the conversion says."""

    def convert(self, value, source: DType, target: DType):
        assert value.dtype == source.numpy
        return convert(np.asarray(value), target, source)[()]

    def alu(self, name: str, a, b):
        assert (name, a.dtype, b.dtype) == ("add", np.float32, np.float32)
        return a + b


@dataclass
class View:
    tile: Tile
    axes: tuple[int, ...]
    without: frozenset[int]

    @property
    def dtype(self) -> DType:
        return self.tile.dtype


class Computer:
    """A writer whose buffers are arrays, and whose nests run when they are written."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []

    def buffer(self, shape: tuple[int, ...], dtype: DType, space: str) -> Tile:
        self.arrays.append(np.full(shape, -77, dtype.numpy))
        return full_tile(len(self.arrays) - 1, shape, dtype, space)

    def temporary(self, like: Tile, dtype: DType) -> Tile:
        return self.buffer(like.shape, dtype, like.space)

    def view(self, tile: Tile, axes: tuple[int, ...], symbols: object, without: frozenset[int] = frozenset()) -> View:
        assert all(tile.shape[axes.index(axis)] == 1 for axis in without)
        return View(tile, axes, without)

    def fill(self, view: View, value: float) -> None:
        for at in np.ndindex(*view.tile.shape):
            self.store(view, at, view.dtype.numpy.type(value))

    def generic(self, space: IterationSpace, inputs, outputs, compute: DType, body) -> None:
        extents = [1] * space.rank
        assert {a for view in (*inputs, *outputs) for a in view.axes if a not in view.without} == {*range(space.rank)}
        for view in (*inputs, *outputs):
            for axis, n in zip(view.axes, view.tile.shape):
                if axis not in view.without:
                    extents[axis] = n
        for view in outputs:                        # an axis that an output lacks is reduced, or has one element
            assert all(axis in space.reduced or extents[axis] == 1 for axis in view.without if axis < space.rank)
        for at in product(*map(range, extents)):
            values = body(Scalars(), [self.load(v, at) for v in inputs], [self.load(v, at) for v in outputs])
            for view, value in zip(outputs, values, strict=True):
                assert value.dtype == view.dtype.numpy
                self.store(view, at, value)

    def element(self, view: View, at: tuple[int, ...]) -> tuple[np.ndarray, int]:
        access = view.tile.access
        index = [0 if axis in view.without else at[axis] for axis in view.axes]
        (step, _), *dims = access.dims
        row = access.partition.const + step * index[0]
        column = access.free.const + sum(k * step for k, (step, _) in zip(index[1:], dims))
        array = self.arrays[view.tile.handle]
        return array.reshape(-1), row * (array.size // len(array)) + column

    def load(self, view: View, at: tuple[int, ...]):
        array, index = self.element(view, at)
        return array[index]

    def store(self, view: View, at: tuple[int, ...], value) -> None:
        array, index = self.element(view, at)
        array[index] = value


@dataclass
class Scan:
    """next = carry * first + second"""

    dst: Tile
    data0: Tile
    data1: Tile
    initial: Tile | None
    imm: float
    symbols: tuple = ()

    def next(self, s: object, carry, first, second):
        return carry * first + second


class Memory:
    def __init__(self, seed: int = 0) -> None:
        self.computer, self.rng = Computer(), np.random.default_rng(seed)
        self.rows = Rows(self.computer, Scan(None, None, None, None, 0.0), 4)

    def tile(self, dtype: DType, *shape: int) -> Tile:
        tile = self.computer.buffer(shape, dtype, "sbuf")
        self[tile][...] = self.rng.integers(-3, 4, shape)
        return tile

    def __getitem__(self, tile: Tile) -> np.ndarray:
        return self.computer.arrays[tile.handle]


def part(tile: Tile, start: int, *counts: int) -> Tile:
    """Return elements of all partitions, from one on."""
    dims = tile.access.dims
    access = Access(tile.dtype, Linear(), Linear(start), (dims[0], *((step, n) for (step, _), n in zip(dims[1:], counts))))
    return Tile(tile.handle, tile.space, tile.base_shape, tile.base_dtype, access)


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize("starts", [None, FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize("places", ["apart", "in place", "one before", "one behind", "second one behind"])
def test_recurrence__goes_along_the_free_axes(dtype: DType, starts: DType | None, places: str) -> None:
    memory = Memory()
    first, second, out = (memory.tile(d, 4, 3, 4) for d in (dtype, FLOAT32, dtype))
    initial = None if starts is None else memory.tile(starts, 4, 1)
    dst, data0, data1 = part(out, 0, 2, 4), part(first, 1, 2, 4), part(second, 4, 2, 4)
    match places:
        case "in place":
            dst = data0
        case "one before":
            dst = part(first, 0, 2, 4)
        case "one behind":
            dst = part(first, 2, 2, 4)
        case "second one behind":
            data1 = part(first, 0, 2, 4)
            dst = data0
    flat = {tile: memory[tile].reshape(4, -1).astype(np.float32).copy() for tile in (first, second)}
    sources = [flat[first if t.handle == first.handle else second][:, t.access.free.const:][:, :8] for t in (data0, data1)]
    carry = np.full(4, 2.5, np.float32) if initial is None else memory[initial][:, 0].astype(np.float32)
    target = memory[dst].copy().reshape(4, -1)
    for k in range(8):
        carry = carry * sources[0][:, k] + sources[1][:, k]
        target[:, dst.access.free.const + k] = carry.astype(dtype.numpy)
    buffers = len(memory.computer.arrays)
    recurrence(memory.rows, Scan(dst, data0, data1, initial, 2.5), ((0, 0), (0, 0)))
    np.testing.assert_array_equal(memory[dst].reshape(4, -1), target)
    # A buffer for the carried values; one for the result if elements that are still read would change.
    assert len(memory.computer.arrays) - buffers == 1 + (places not in ("apart", "in place"))


def test_rows__are_computed_from_rows_and_elements() -> None:
    memory = Memory()
    rows, x, y = memory.rows, memory.tile(BFLOAT16, 4, 2, 3), memory.tile(FLOAT32, 4, 2, 3)
    a, b = memory.tile(BFLOAT16, 4, 1, 1), memory.tile(FLOAT32, 4, 1)
    assert (memory[rows.constant(1.5)] == np.full((4, 1), 1.5, np.float32)).all()
    difference = rows.each(lambda s, p, q: p - q, a, b)
    wide = [memory[tile].reshape(4, -1).astype(np.float32) for tile in (x, y, a, b)]
    np.testing.assert_array_equal(memory[difference], wide[2] - wide[3])
    total = rows.sum(lambda s, p, q, r: p * q - r, [x, y], b)
    np.testing.assert_array_equal(memory[total], (wide[0] * wide[1] - wide[3]).sum(1, keepdims=True))
    rows.assign(a, lambda s, p: p + p, [b])
    np.testing.assert_array_equal(memory[a].reshape(4, 1), (2 * wide[3]).astype(BFLOAT16.numpy))
    out = memory.tile(BFLOAT16, 4, 3)
    before = memory[out][:, 2].copy()
    rows.write(out, [total, difference])
    np.testing.assert_array_equal(memory[out].T, [memory[total][:, 0].astype(BFLOAT16.numpy),
                                                  memory[difference][:, 0].astype(BFLOAT16.numpy), before])
    assert (column_of(part(out, 1, 2), 1).access.free.const, column_of(out, 2).shape) == (2, (4, 1))


@pytest.mark.parametrize("axes", [(), (2,), (0, 2), (1, 2, 3)], ids=str)
def test_elements_along_axes__are_counted_in_row_major_order(axes):
    extents = (3, 2, 5, 4)
    form = count_along(axes, extents)
    assert form.axes == tuple(sorted(form.axes)) and {axis for axis, _ in form.axes} == {*axes}
    counted = [sum(step * at[axis] for axis, step in form.axes) for at in np.ndindex(*[
        n if axis in axes else 1 for axis, n in enumerate(extents)])]
    assert counted == [*range(len(counted))] and form.const == 0
