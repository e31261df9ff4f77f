# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts: which elements they select, and which of these lie outside of the tensor (document: beta 4).

The subscripts are integers, slices with steps, ``nl.ds``, arrays of integers that broadcast, ``...``, ``None``, and
tiles, whose indices are read when the subscript is evaluated.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ds:
    """``nl.ds(start, size)``: a slice of so many elements from a start (beta 4.1)."""

    start: Any
    size: int

    def indices(self) -> np.ndarray:
        return number(self.start) + np.arange(int(self.size))


class FromEnd(int):
    """An index that the kernel's text has as a negative number: counted from the end. Others are outside."""


def number(value: Any) -> int:
    """An integer, also where a tile of one element holds it."""
    if hasattr(value, "storage"):
        return int(value.read().reshape(-1)[0])
    return int(value)


def is_mask(key: Any) -> bool:
    """Whether a subscript is a mask and no index (beta 4.5)."""
    return isinstance(key, (bool, np.bool_)) or (isinstance(key, np.ndarray) and key.dtype == bool)


def rank_of(tile: Any, rank: int) -> int:
    """The rank of the indices that a tile holds, beside index arrays of a rank: a column has one axis."""
    return rank if rank else 1 if prod(tile.shape[1:]) == 1 else tile.ndim


def column(values: np.ndarray, rank: int) -> np.ndarray:
    """Indices read from a tile, beside index arrays of a rank: those of a [N, 1] tile go with the partitions."""
    if prod(values.shape[1:]) == 1:
        return values.reshape(values.shape[0], *(1,) * (rank - 1)) if rank else values.reshape(())
    return values


def of_slice(key: slice, size: int) -> np.ndarray:
    """A slice's elements: not cut off at the tensor's end, so that what leaves it is seen."""
    step = 1 if key.step is None else number(key.step)
    start = (0 if step > 0 else size - 1) if key.start is None else number(key.start)
    stop = (size if step > 0 else -1) if key.stop is None else number(key.stop)
    if key.start is not None and start < 0:
        start += size
    if key.stop is not None and stop < 0:
        stop += size
    return np.arange(start, stop, step)


@dataclass(frozen=True)
class Subscript:
    """For each dimension of a tensor the indices that are taken, which broadcast to the result."""

    sizes: tuple[int, ...]
    indices: tuple[np.ndarray, ...]
    axes: tuple[Any, ...]               # of the result: a dimension, "block" (the index arrays') or "new"

    def leading(self, count: int) -> int:
        """How many of the first dimensions are dimensions of the result."""
        return sum(1 for a in self.axes if isinstance(a, int) and a < count)

    @classmethod
    def of(cls, shape: tuple[int, ...], key: Any, minimum_rank: int = 0, partition: int = 0) -> "Subscript":
        """A tile of one element is a number, one of [n, 1] a column of indices (releases 3.3)."""
        items = expand(key if isinstance(key, tuple) else (key,), len(shape))
        rank = max([np.ndim(i) for i in items if isinstance(i, (np.ndarray, list))], default=0)
        rank = max([rank, *(rank_of(i, rank) for i in items if hasattr(i, "storage") and i.size > 1)])
        axes: list[Any] = []
        chosen: dict[int, np.ndarray] = {}
        dropped: list[int] = []
        read: list[int] = []
        dimension, block = 0, (1,) * rank
        for item in items:
            if item is None:
                axes.append("new")
                continue
            if isinstance(item, (slice, ds)):
                chosen[dimension] = item.indices() if isinstance(item, ds) else of_slice(item, shape[dimension])
                axes.append(dimension)
            elif (isinstance(item, (np.ndarray, list)) and np.ndim(item)) or (getattr(item, "storage", None) and item.size > 1):
                values = np.asarray(item if not hasattr(item, "storage") else column(item.read(quietly=True), rank))
                chosen[dimension] = values.astype(np.int64)
                block = np.broadcast_shapes(block, values.shape)
                if "block" not in axes:
                    axes.append("block")
            else:
                chosen[dimension] = np.asarray(number(item) + (shape[dimension] if isinstance(item, FromEnd) else 0))
                dropped.append(dimension)
                read += [dimension] if hasattr(item, "storage") else []
            dimension += 1
        if "block" not in axes:
            if minimum_rank and partition in dropped:           # one partition is a tile (4.2)
                keep_rank(axes, [partition], len(axes) + 1, partition)
            keep_rank(axes, [d for d in dropped if d not in axes], minimum_rank, partition)
            keep_rank(axes, [d for d in read if d not in axes], 2, partition)   # rows that a tile names (4.4)
        return cls(shape, tuple(lay_out(chosen, axes, block)), tuple(axes))

    def take(self, array: np.ndarray) -> np.ndarray:
        """The elements of an array of the tensor's shape; any where the subscript leaves it."""
        if 0 in array.shape:
            return np.zeros(np.broadcast_shapes(*(i.shape for i in self.indices)), array.dtype)
        return array[tuple(np.clip(i, 0, n - 1) for i, n in zip(self.indices, self.sizes))]

    def wrong(self) -> tuple[np.ndarray, np.ndarray] | None:
        """For each place of the result the dimension that its index leaves (-1: none), and the index."""
        shape = np.broadcast_shapes(*(i.shape for i in self.indices)) if self.indices else ()
        dimension, value = None, None
        for d, (index, size) in enumerate(zip(self.indices, self.sizes)):
            bad = (index < 0) | (index >= size)
            if bad.any():
                if dimension is None or value is None:
                    dimension, value = np.full(shape, -1), np.zeros(shape, np.int64)
                dimension, value = np.where(bad, d, dimension), np.where(bad, index, value)
        return None if dimension is None or value is None else (dimension, value)


def expand(items: tuple[Any, ...], rank: int) -> list[Any]:
    """With ``...`` and the dimensions at the end that are not named written out."""
    named = sum(1 for i in items if i is not None and i is not Ellipsis)
    if named > rank:
        raise IndexError(f"{named} subscripts of a tensor of {rank} dimensions")
    at = next((k for k, i in enumerate(items) if i is Ellipsis), len(items))
    return [*items[:at], *[slice(None)] * (rank - named), *items[at + 1:]]


def keep_rank(axes: list[Any], dropped: list[int], minimum: int, partition: int) -> None:
    """On chip a dimension of size 1 stays where the rank would be below two: the partition's first (beta 4.2)."""
    order = sorted(dropped, key=lambda d: (d != partition, -d))
    for d in order[:max(0, minimum - len(axes))]:
        at = next((k for k, a in enumerate(axes) if isinstance(a, int) and a > d), len(axes))
        axes.insert(at, d)


def lay_out(chosen: dict[int, np.ndarray], axes: list[Any], block: tuple[int, ...]) -> list[np.ndarray]:
    """Each dimension's indices with the axes of the result, 1 where they do not vary."""
    total = sum(len(block) if a == "block" else 1 for a in axes)
    laid = []
    for dimension in range(len(chosen)):
        values, shape, at = chosen[dimension], [1] * total, 0
        for axis in axes:
            if axis == "block":
                if dimension not in axes and values.ndim:
                    shape[at:at + len(block)] = [1] * (len(block) - values.ndim) + list(values.shape)
                at += len(block)
                continue
            if axis == dimension:
                shape[at] = values.size
            at += 1
        laid.append(values.reshape(shape))
    if "new" in axes and laid:
        laid[0] = np.broadcast_to(laid[0], np.broadcast_shapes(laid[0].shape, (1,) * total))
    return laid
