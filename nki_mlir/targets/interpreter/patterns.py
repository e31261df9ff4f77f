# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Access patterns as NumPy views of their buffer's array, with bounds checked on every access."""

from collections.abc import Callable, Sequence

import numpy as np

from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.verifier import OutOfBounds

Start = Callable[[Sequence[int]], int]


def compile_linear(form: Linear) -> Start:
    """The form's value as a function of the symbols' values; its axes are not part of it."""
    const, symbols = form.const, form.symbols
    match symbols:
        case ():
            return lambda values: const
        case ((position, c),):
            return lambda values: const + c * values[position]
    return lambda values: const + sum(c * values[position] for position, c in symbols)


class Pattern:
    """A tile's pattern ready to run: everything static is computed once, ``view`` only adds offsets."""

    def __init__(self, tile: Tile, dims: Sequence[tuple[int, int]] | None = None) -> None:
        self.tile = tile
        self.dtype, self.itemsize = tile.dtype.numpy, tile.dtype.itemsize
        self.row = tile.row
        self.dims = tuple(dims if dims is not None else tile.access.dims)
        self.on_chip = tile.on_chip
        self.partitions = tile.base_shape[0] if self.on_chip else 1
        free = self.dims[1:] if self.on_chip else self.dims
        self.low = sum(min(0, step * (count - 1)) for step, count in free)
        self.high = sum(max(0, step * (count - 1)) for step, count in free)
        self.lanes = (self.dims[0][1] - 1) * self.dims[0][0] if self.on_chip else 0
        self.shape = tuple(count for _, count in self.dims)
        steps = [step for step, _ in free]
        self.steps = tuple([self.dims[0][0] * self.row, *steps] if self.on_chip else steps)
        self.strides = tuple(s * tile.dtype.itemsize for s in self.steps)
        access = tile.access
        self.partition = compile_linear(access.partition) if access.partition is not None else lambda values: 0
        self.free = compile_linear(access.free)

    def view(self, array: np.ndarray, partition: int, free: int) -> np.ndarray:
        """The elements as a view: a free offset never crosses partitions, nothing leaves the buffer."""
        if free + self.low < 0 or free + self.high >= self.row:
            self.outside("1 (free)" if self.on_chip else "0 (flat)", free + self.low, free + self.high, self.row)
        if partition < 0 or partition + self.lanes >= self.partitions:
            self.outside(0, partition, partition + self.lanes, self.partitions)
        offset = (partition * self.row + free) * self.itemsize
        return np.ndarray(self.shape, self.dtype, array, offset, self.strides)

    def at(self, array: np.ndarray, values: Sequence[int]) -> np.ndarray:
        return self.view(array, self.partition(values), self.free(values))

    def outside(self, dim: int | str, low: int, high: int, extent: int) -> None:
        raise OutOfBounds(tensor=self.tile.label, dim=dim, low=low, high=high, extent=extent)

    def box(self, array: np.ndarray, values: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> np.ndarray:
        """The view of a box of the pattern: ``starts`` and ``counts`` per dim."""
        part = Pattern(self.tile, [(step, n) for (step, _), n in zip(self.dims, counts)])
        moved = [s * step for s, (step, _) in zip(starts, self.dims)]
        partition, free = self.partition(values), self.free(values)
        if self.on_chip:
            return part.view(array, partition + moved[0], free + sum(moved[1:]))
        return part.view(array, 0, free + sum(moved))

    def elements(self, array: np.ndarray, values: Sequence[int], positions: np.ndarray) -> np.ndarray:
        """Flat indices, in elements of the dtype, of the given positions ``[dims, n]``; checked against the buffer."""
        start = self.partition(values) * self.row + self.free(values)
        flat = start + np.dot(self.steps, positions)
        size = array.nbytes // self.tile.dtype.itemsize
        if flat.size and (flat.min() < 0 or flat.max() >= size):
            self.outside("0 (flat)", int(flat.min()), int(flat.max()), size)
        return flat


def flat_view(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """All elements of a contiguous array in one dimension, read as ``dtype``."""
    return np.ndarray(array.nbytes // dtype.itemsize, dtype, array)
