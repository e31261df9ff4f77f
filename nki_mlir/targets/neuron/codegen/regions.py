# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The bytes that a tile touches, and whether two tiles can share one.

A pattern of steps and counts is kept nested: steps from large to small, each at least as long as what is inside it. Two
such sets of bytes are compared level by level, exactly where their outer steps agree. What cannot be nested (steps that
interleave) or compared cheaply counts as everything between its ends, which may report an overlap too many, never one
too few.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from nki_mlir.dialects.access import Linear, Ranges, Tile

if TYPE_CHECKING:
    from nki_mlir.targets.neuron.codegen.records import Computed, LoopVariable

BLOCKS_COMPARED = 64            # of one pattern against another with a different step


class ByteNest(NamedTuple):
    """A pattern from its first byte on: ``(step, count)`` pairs, large steps first, round runs of ``unit`` bytes."""

    pairs: tuple[tuple[int, int], ...]
    unit: int
    extent: int                 # bytes from the first to the last
    shift: int                  # of the first byte from the pattern's start (negative steps)
    exact: bool                 # every byte of it is touched


@cache
def nest_of(dims: tuple[tuple[int, int], ...], itemsize: int) -> ByteNest:
    """The nest of (step, count) pairs in elements."""
    shift = sum(min(0, step * (count - 1)) for step, count in dims) * itemsize
    pairs: list[tuple[int, int]] = []
    unit = extent = itemsize
    exact = True
    for step, count in sorted((abs(step) * itemsize, count) for step, count in dims if step and count > 1):
        reach = step * (count - 1)
        if not pairs and step <= unit:
            unit += reach                           # overlapping or adjacent runs are one run
        elif pairs and step == pairs[0][0] * pairs[0][1]:
            pairs[0] = pairs[0][0], pairs[0][1] * count
        elif step >= extent:
            pairs.insert(0, (step, count))
        else:
            pairs, unit, exact = [], extent + reach, False
        extent += reach
    return ByteNest(tuple(pairs), unit, extent, shift, exact)


@dataclass(frozen=True, slots=True)
class Region:
    """Partitions ``first`` to ``last`` of a nest of bytes in one memory, from ``start`` on.

    Where registers are part of the start, ``symbolic`` has their terms and ``low`` to ``high`` all bytes that any of
    their values reaches; regions of equal ``symbolic`` terms are compared exactly.
    """

    memory: Hashable
    first: int
    last: int
    start: int
    nest: ByteNest
    low: int
    high: int                   # the byte after the last
    symbolic: Hashable = None
    digest: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hash((self.memory, self.first, self.start, self.nest, self.symbolic)))

    def __hash__(self) -> int:
        return self.digest                      # regions are looked up again and again

    def overlaps(self, other: "Region") -> bool:
        if self.low >= other.high or other.low >= self.high:
            return False
        if self.symbolic != other.symbolic:
            return True
        if self.first > other.last or other.first > self.last:
            return False
        a, b = self.nest, other.nest
        return meet(a.pairs, a.unit, a.extent, b.pairs, b.unit, b.extent, other.start - self.start)

    def covers(self, other: "Region") -> bool:
        """Whether every byte of the other is surely one of these."""
        if self.symbolic != other.symbolic or not self.nest.exact:
            return False
        if self.first > other.first or other.last > self.last:
            return False
        if self.start == other.start and self.nest == other.nest:
            return True
        return not self.nest.pairs and self.start <= other.start and (
            other.start + other.nest.extent <= self.start + self.nest.extent)


Pairs = tuple[tuple[int, int], ...]


def meet(a: Pairs, unit_a: int, extent_a: int, b: Pairs, unit_b: int, extent_b: int, delta: int) -> bool:
    """Whether nest ``a`` at 0 and nest ``b`` at ``delta`` share a byte."""
    if delta >= extent_a or delta + extent_b <= 0:
        return False
    if not a and not b:
        return True
    if not a or (b and b[0][0] > a[0][0]):
        return meet(b, unit_b, extent_b, a, unit_a, extent_a, -delta)
    step, count = a[0]
    inner_a = extent_a - step * (count - 1)
    if b and b[0][0] == step:
        inner_b = extent_b - step * (b[0][1] - 1)
        # Blocks i of a and j of b are delta + (j - i) * step apart: at most two differences bring them together.
        lowest = max(-(count - 1), (-inner_b - delta) // step + 1)
        highest = min(b[0][1] - 1, -((delta - inner_a) // step) - 1)
        return any(meet(a[1:], unit_a, inner_a, b[1:], unit_b, inner_b, delta + m * step)
                   for m in range(lowest, highest + 1))
    lowest = max(0, (delta - inner_a) // step + 1)
    highest = min(count - 1, (delta + extent_b - 1) // step)
    if highest - lowest >= BLOCKS_COMPARED:
        return True
    return any(meet(a[1:], unit_a, inner_a, b, unit_b, extent_b, delta - k * step)
               for k in range(lowest, highest + 1))


def region_of(tile: Tile, memory: Hashable, partition: int = 0, byte: int = 0,
              symbols: "tuple[Computed | LoopVariable, ...]" = (), ranges: Ranges = ()) -> Region:
    """The region of a tile whose buffer begins at that partition and byte of a memory."""
    access = tile.access
    size = access.dtype.itemsize
    nest = nest_of(access.free_dims, size)
    start = byte + access.free.const * size + nest.shift
    if access.partition is None:
        first = last = 0
    else:
        step, count = access.dims[0]
        first = partition + access.partition.const
        last = first + step * (count - 1)
    lanes = access.partition if access.partition is not None else Linear()
    if not access.free.symbols and not lanes.symbols:
        return Region(memory, first, last, start, nest, start, start + nest.extent)
    low, high = (n * size + byte + nest.shift for n in access.free.interval(ranges))
    symbolic = (tuple((symbols[k], c * size) for k, c in access.free.symbols),
                tuple((symbols[k], c) for k, c in lanes.symbols))
    return Region(memory, first, last, start, nest, low, high + nest.extent, symbolic)
