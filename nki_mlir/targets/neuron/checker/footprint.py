# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compute which bytes of physical memory a tile touches, and whether two tiles overlap.

The bytes of a row are runs: their starts, as a sorted NumPy array, and one length. Two patterns are compared by their
runs; the result is cached by the patterns and the distance of their starts.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nki_mlir.dialects.access import Access
from nki_mlir.targets.neuron.checker.register_numbers import Number, bounds, key_of

RUNS = 1 << 20                  # most runs of a pattern that is compared run by run
Dims = tuple[tuple[int, int], ...]              # (step in bytes, count) of each dimension
Memory = tuple[Hashable, ...]   # ("sbuf", core), ("input", number), ("internal", core, name) ...


@dataclass(frozen=True)
class Runs:
    """A pattern from its lowest byte on: runs of ``length`` bytes at ``starts``, None if there are too many to
    compare."""

    starts: np.ndarray | None
    length: int
    extent: int                 # bytes from the first one to the end of the last one
    below: int                  # the lowest byte, relative to the pattern's start: less than 0 with negative steps

    @property
    def unbroken(self) -> bool:
        """Whether the pattern touches all bytes between its ends."""
        return self.length == self.extent


@lru_cache(1 << 14)
def runs_of(dims: Dims, size: int) -> Runs:
    """Return the runs of a pattern whose elements have ``size`` bytes."""
    below = sum(min(0, step * (count - 1)) for step, count in dims)
    length = size
    outer: list[tuple[int, int]] = []
    for step, count in sorted((abs(step), count) for step, count in dims if step and count > 1):
        if not outer and step <= length:
            length += step * (count - 1)
        else:
            outer.append((step, count))
    extent = length + sum(step * (count - 1) for step, count in outer)
    if np.prod([count for _, count in outer], dtype=np.float64) > RUNS:
        return Runs(None, length, extent, below)
    starts = np.zeros(1, np.int64)
    for step, count in outer:
        starts = (starts[:, None] + np.arange(count) * step).reshape(-1)
    return Runs(np.unique(starts), length, extent, below)


@lru_cache(1 << 16)
def share(a: Dims, size_a: int, b: Dims, size_b: int, apart: int) -> int | None:
    """Return the lowest byte in which two patterns overlap, counted from the lowest byte of ``a``, or None.

    The lowest byte of ``b`` is ``apart`` bytes after the lowest byte of ``a``. A pattern of too many runs counts as all
    bytes between its ends.
    """
    runs_a, runs_b = runs_of(a, size_a), runs_of(b, size_b)
    starts_a = np.zeros(1, np.int64) if runs_a.starts is None else runs_a.starts
    starts_b = (np.zeros(1, np.int64) if runs_b.starts is None else runs_b.starts) + apart
    length_a = runs_a.extent if runs_a.starts is None else runs_a.length
    length_b = runs_b.extent if runs_b.starts is None else runs_b.length
    # the last run of a that begins before each of b ends
    at = np.searchsorted(starts_a, starts_b + length_b) - 1
    meets = (at >= 0) & (starts_a[at] + length_a > starts_b)
    if not meets.any():
        return None
    k = int(np.argmax(meets))
    earlier = np.searchsorted(starts_a + length_a, starts_b[k], side="right")
    return int(max(starts_a[earlier], starts_b[k]))


class ByteFootprint:
    """The bytes that a tile touches: partitions ``first`` to ``last`` of a memory, bytes ``low`` to ``high`` of a row.

    If data decide the start, ``symbolic`` names the numbers, and ``low`` to ``high`` are all bytes that any of
    their values reaches in a row of ``row`` bytes. Equal footprints are one object.
    """

    __slots__ = ("dims", "exact", "first", "high", "initialized", "last", "low", "memory", "size", "start", "symbolic")

    def __init__(self, memory: Memory, access: Access, values: tuple[Number, ...], row: int | None = None) -> None:
        size = access.dtype.itemsize
        self.memory, self.size = memory, size
        self.dims: Dims = tuple([(step * size, count) for step, count in access.free_dims])
        runs = runs_of(self.dims, size)
        self.first, self.last = 0, 0
        start, spread = access.free.const, 0
        moving: list[tuple[object, ...]] = []
        for position, factor in access.free.symbols:
            value = values[position]
            low, high = bounds(value)
            start += min(factor * low, factor * high)
            spread += abs(factor) * (high - low)
            if low != high:
                moving.append((key_of(value), factor * size))
        if access.partition is not None:
            step, count = access.dims[0]
            self.first = access.partition.const
            self.last = self.first + (abs(step) * (count - 1) if step else 0)
            for position, factor in access.partition.symbols:
                value = values[position]
                low, high = bounds(value)
                self.first += min(factor * low, factor * high)
                self.last += max(factor * low, factor * high)
                if low != high:
                    moving.append((key_of(value), factor, "partition"))
        self.symbolic = tuple(moving) if moving else None
        self.start = start * size + runs.below          # the lowest byte, for the least value of each number
        self.low, self.high = self.start, self.start + runs.extent + spread * size
        if row is not None:
            self.low, self.high = max(self.low, 0), min(self.high, row)
        self.exact = runs.unbroken and self.symbolic is None
        self.initialized = -1          # how many buffers around the footprint had begun when all of it was written

    def covers(self, other: "ByteFootprint") -> bool:
        """Return whether this footprint contains every byte of the other one."""
        if self is other:
            return self.symbolic is None
        return (self.exact and self.low <= other.low and other.high <= self.high
                and self.first <= other.first and other.last <= self.last)

    def shared(self, other: "ByteFootprint") -> tuple[int, int] | None:
        """Return (partition, byte) of the first byte in which both overlap, or None."""
        if self.first > other.last or other.first > self.last or self.low >= other.high or other.low >= self.high:
            return None
        partition, byte = max(self.first, other.first), max(self.low, other.low)
        if (self.exact and other.exact) or self.symbolic != other.symbolic:
            return partition, byte
        shared_byte = share(self.dims, self.size, other.dims, other.size, other.start - self.start)
        return None if shared_byte is None else (partition, self.start + shared_byte)

    def certain(self, other: "ByteFootprint") -> bool:
        """Return whether ``shared`` is exact."""
        return self.symbolic == other.symbolic and runs_of(self.dims, self.size).starts is not None and (
            runs_of(other.dims, other.size).starts is not None)
