# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands of nests that are tiles of buffers, for instruction selection. This module uses no MLIR.

An operand says how its buffer is walked: a start, and the step of each axis of the nest in its free offset; at most one
axis, its ``lanes``, walks through the partitions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.access import HBM, Access, Linear, Tile
from nki_mlir.scalar.dtypes import DType
from nki_mlir.waist.nest import Nest, Operand

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class TileOperand(Operand):
    """``partition`` and ``free`` are the start (partition None in HBM); the stride of ``lanes`` is 0."""

    handle: Any
    space: str
    base_shape: tuple[int, ...]
    base_dtype: DType
    partition: Linear | None
    free: Linear
    lanes: int | None = None

    @property
    def on_chip(self) -> bool:
        return self.space != HBM

    def moves(self, axis: int) -> bool:
        return axis == self.lanes or self.strides[axis] != 0

    def along(self, axes: Sequence[int]) -> "Self":
        strides = tuple([self.strides[a] for a in axes])
        return replace(self, strides=strides, lanes=axes.index(self.lanes) if self.lanes in axes else None)

    def divided(self, axis: int, inner: int) -> "Self":
        if self.lanes == axis:
            raise InternalError("an axis along the partitions is divided")
        strides = (*self.strides[:axis], self.strides[axis] * inner, *self.strides[axis:])
        return replace(self, strides=strides, lanes=self.lanes and self.lanes + (self.lanes > axis))

    def step_as_one(self, outer: int, inner: int, extent: int) -> bool:
        return self.lanes not in (outer, inner) and super().step_as_one(outer, inner, extent)

    def tile(self, counts: Sequence[int], axes: Sequence[int] | None = None) -> Tile:
        """Return the tile for a box at the origin with these counts along ``axes``; the first of these axes is the
        partition."""
        axes = range(len(counts)) if axes is None else axes
        dims = [(self.strides[a] if n > 1 else 1, n) for a, n in zip(axes, counts)]
        if self.on_chip:
            dims[0] = (1 if self.lanes == axes[0] or counts[0] == 1 else 0, counts[0])
        access = Access(self.dtype, self.partition, self.free, tuple(dims))
        return Tile(self.handle, self.space, self.base_shape, self.base_dtype, access)

    def reached(self, extents: Sequence[int]) -> Tile:
        """Return the elements that a nest of these extents reads or writes, with the partition first on chip and the
        other dims in the order of the axes."""
        dims = [(step, n) for axis, (step, n) in enumerate(zip(self.strides, extents)) if axis != self.lanes]
        if self.on_chip:
            dims.insert(0, (1, 1 if self.lanes is None else extents[self.lanes]))
        access = Access(self.dtype, self.partition, self.free, tuple(dims))
        return Tile(self.handle, self.space, self.base_shape, self.base_dtype, access)

    def at(self, starts: Sequence[int]) -> "Self":
        free = sum([step * start for step, start in zip(self.strides, starts)])
        lanes = starts[self.lanes] if self.lanes is not None and self.partition is not None else 0
        if not free and not lanes:
            return self
        partition = self.partition.plus(Linear(lanes)) if self.partition is not None else None
        return type(self)(self.dtype, self.strides, self.handle, self.space, self.base_shape, self.base_dtype,
                          partition, self.free.plus(Linear(free)), self.lanes)


def walked(tile: Tile, strides: Iterable[int], lanes: int | None = None) -> TileOperand:
    """Return the buffer of a tile as an operand that starts with the tile and has a step for each axis of a nest."""
    return TileOperand(tile.dtype, tuple(strides), tile.handle, tile.space, tile.base_shape, tile.base_dtype,
                       tile.access.partition, tile.access.free, lanes)


TileNest: TypeAlias = Nest[TileOperand]


def partition_axis(nest: TileNest) -> int | None:
    """Return the axis along the partitions of the result or, where it has none, of a source."""
    return next((o.lanes for o in (*nest.outputs, *nest.inputs) if o.lanes is not None), None)
