# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests whether accesses overlap: patterns of two instructions, boxes around them, iterations of a loop, addresses that
integer systems describe.

Patterns of steps and counts are nests of bytes (``waist/byte_nest.py``).

Addresses in loops are linear forms of symbols. One symbol is the loop's variable, some belong to its body, the others
have one value in all iterations. Where masks, conditions, quotients and remainders restrict the elements of accesses,
all of these are rows of a system of integers (``OverlapSystem``), which decides exactly.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import gcd
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from nki_mlir.dialects.access import ZERO, Access, Bounds, Linear, Ranges, Tile, same_buffer
from nki_mlir.dialects.integer_systems import Row, Span, solution
from nki_mlir.waist.byte_nest import ByteNest, nest_of, share_byte

ANYWHERE = 1 << 62              # further than any address
Box = tuple[str, Bounds]        # a memory on chip, and the partitions and bytes in it
DISTANCES = 64                  # most distances between iterations that are compared; beyond, they overlap
IndexBox = tuple[Sequence[int], Sequence[int]]          # starts and counts by dim
Form = tuple[int, dict[int, int]]                       # a constant, and coefficients of variables


@dataclass(slots=True, eq=False)
class Region:
    """Partitions ``first`` to ``last`` of a nest of bytes in one memory, from ``start`` on. Immutable.

    If registers are part of the start, ``symbolic`` has their terms, and ``low`` to ``high`` are all bytes that any
    values of the registers reach; regions of equal ``symbolic`` terms are compared exactly.
    """

    memory: Hashable
    first: int
    last: int
    start: int
    nest: ByteNest
    low: int
    high: int                   # the byte after the last
    symbolic: Hashable = None
    one_run: bool = field(init=False, repr=False)       # its bytes in a partition are exactly ``low`` to ``high``
    _digest: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self.one_run = self.symbolic is None and self.nest.exact and not self.nest.pairs

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Region) and (
            self.memory, self.first, self.last, self.start, self.nest, self.low, self.high, self.symbolic) == (
            other.memory, other.first, other.last, other.start, other.nest, other.low, other.high, other.symbolic))

    def __hash__(self) -> int:
        if not self._digest:                    # regions are looked up again and again
            self._digest = hash((self.memory, self.first, self.start, self.nest, self.symbolic))
        return self._digest

    def overlaps(self, other: "Region") -> bool:
        """Return whether both can have a byte in common."""
        if self.low >= other.high or other.low >= self.high or self.memory != other.memory:
            return False
        if self.symbolic != other.symbolic:
            return True
        if self.first > other.last or other.first > self.last:
            return False
        a, b = self.nest, other.nest
        return share_byte(a.pairs, a.unit, a.extent, b.pairs, b.unit, b.extent, other.start - self.start)

    def bounds_overlap(self, other: "Region") -> bool:
        """Return whether the bytes from the first to the last that any values of registers reach overlap."""
        return self.low < other.high and other.low < self.high

    def overlaps_later(self, other: "Region", byte: int, partition: int, iterations: int) -> bool:
        """Return whether both can have a byte in common if the other one is of one of the next ``iterations``, and a
        region moves by ``byte`` and ``partition`` in each. Their symbolic terms are equal. After ``DISTANCES``
        iterations without an answer, assume that they can."""
        a, b = self.nest, other.nest
        for distance in range(1, min(iterations, DISTANCES) + 1):
            apart = other.start - self.start + byte * distance
            if apart >= a.extent if byte > 0 else apart + b.extent <= 0 if byte < 0 else False:
                return False                        # the regions are further apart at larger distances
            shift = partition * distance
            if self.first <= other.last + shift and other.first + shift <= self.last and share_byte(
                    a.pairs, a.unit, a.extent, b.pairs, b.unit, b.extent, apart):
                return True
            if byte == 0 and partition == 0:
                return False
        return iterations > DISTANCES

    def covers(self, other: "Region") -> bool:
        """Return whether every byte of the other region is surely a byte of this one."""
        if self.memory != other.memory or self.symbolic != other.symbolic or not self.nest.exact:
            return False
        if self.first > other.first or other.last > self.last:
            return False
        if self.start == other.start and self.nest == other.nest:
            return True
        return not self.nest.pairs and self.start <= other.start and (
            other.start + other.nest.extent <= self.start + self.nest.extent)

    def without(self, other: "Region") -> "Region":
        """Return at least the bytes of this region that are not in another one. Both are one run in each partition and
        overlap. Return the complete region if the rest is not one run of bytes in consecutive partitions."""
        first, last, low, high = self.first, self.last, self.low, self.high
        if other.first <= first and last <= other.last:
            if other.low <= low:
                low = other.high
            elif high <= other.high:
                high = other.low
            else:
                return self
        elif other.low <= low and high <= other.high:
            if other.first <= first:
                first = other.last + 1
            elif last <= other.last:
                last = other.first - 1
            else:
                return self
        else:
            return self
        return Region(self.memory, first, last, low, ByteNest((), high - low, high - low, 0, True), low, high)


class Located(Protocol):
    """A record of an access."""

    region: Region


LocatedT = TypeVar("LocatedT", bound=Located)


def within_bounds(region: Region, accesses: Iterable[LocatedT]) -> list[LocatedT]:
    """Return the accesses with bytes between the first and the last one that any values of a region's registers
    reach."""
    low, high = region.low, region.high
    return [access for access in accesses if access.region.low < high and low < access.region.high]


class RegionTests:
    """Tests of a region and many accesses in its memory, whose addresses have the region's registers. Regions of one
    nest are compared once for each of their distances."""

    def __init__(self) -> None:
        self.overlap_memo: dict[ByteNest, dict[int, bool]] = {}

    def overlapping(self, region: Region, accesses: Iterable[LocatedT]) -> list[LocatedT]:
        """Return the accesses that may have a byte of the region."""
        first, last, one_run = region.first, region.last, region.one_run
        return [access for access in within_bounds(region, accesses)
                if access.region.first <= last and first <= access.region.last and (
                    (one_run and access.region.one_run) or self.share_a_byte(access.region, region))]

    def share_a_byte(self, other: Region, region: Region) -> bool:
        if other.nest is not region.nest:
            return other.overlaps(region)
        by_distance, distance = self.overlap_memo.setdefault(region.nest, {}), region.start - other.start
        if distance not in by_distance:
            by_distance[distance] = other.overlaps(region)
        return by_distance[distance]


def groups_that_overlap(groups: Any, regions: Sequence[Region]) -> Any:
    """Return the groups in which the bytes of two regions overlap, from the first to the last that any values of
    registers reach. ``groups`` is an array with the number of each region's group."""
    low, high = (np.array(ends, np.int64) for ends in ([region.low for region in regions],
                                                       [region.high for region in regions]))
    order = np.lexsort((low, groups))
    later, earlier = order[1:], order[:-1]
    overlap = (groups[later] == groups[earlier]) & (low[later] < high[earlier])
    return np.unique(groups[later][overlap])


def region_of(access: Access, memory: Hashable, partition: int = 0, byte: int = 0,
              symbols: tuple[Hashable, ...] = (), ranges: Ranges = ()) -> Region:
    """Return the region of a pattern whose buffer begins at that partition and byte of a memory."""
    size = access.dtype.itemsize
    nest = nest_of(access.free_dims, size)
    start = byte + access.free.const * size + nest.shift
    if access.partition is None:
        first_partition = last_partition = 0
    else:
        step, count = access.dims[0]
        first_partition = partition + access.partition.const
        last_partition = first_partition + step * (count - 1)
    lanes = access.partition if access.partition is not None else Linear()
    if not access.free.symbols and not lanes.symbols:
        return Region(memory, first_partition, last_partition, start, nest, start, start + nest.extent)
    low, high = (n * size + byte + nest.shift for n in access.free.interval(ranges))
    symbolic = (tuple((symbols[k], c * size) for k, c in access.free.symbols),
                tuple((symbols[k], c) for k, c in lanes.symbols))
    return Region(memory, first_partition, last_partition, start, nest, low, high + nest.extent, symbolic)


def may_overlap(a: Tile, b: Tile, ranges: Ranges = ()) -> bool:
    """Return whether two operands may share a byte: False only if they certainly do not. Both have the same symbols."""
    if not same_buffer(a, b):
        return False
    lanes_a, lanes_b = a.access.partition, b.access.partition
    if lanes_a is not None and lanes_b is not None:
        low, high = difference(lanes_b, lanes_a, ranges)
        if low >= a.partitions or high + b.partitions <= 0:
            return False
    size_a, size_b = a.dtype.itemsize, b.dtype.itemsize
    nest_a, nest_b = nest_of(a.access.free_dims, size_a), nest_of(b.access.free_dims, size_b)
    low, high = difference(ZERO.plus(b.access.free, size_b), ZERO.plus(a.access.free, size_a), ranges)
    low, high = low + nest_b.shift - nest_a.shift, high + nest_b.shift - nest_a.shift
    if low < high:
        return low < nest_a.extent and high + nest_b.extent > 0
    return share_byte(nest_a.pairs, nest_a.unit, nest_a.extent, nest_b.pairs, nest_b.unit, nest_b.extent, low)


def difference(a: Linear, b: Linear, ranges: Ranges) -> tuple[int, int]:
    """Return the least and the greatest value of ``a - b``: exact if the symbols cancel or have ranges, else
    everything."""
    delta = a.plus(b, -1)
    return (-ANYWHERE, ANYWHERE) if delta.symbols and not ranges else delta.interval(ranges)


def spans_overlap(start: int, end: int, other_start: int, other_end: int) -> bool:
    """Return whether two spans, without their ends, have a number in common."""
    return start < other_end and other_start < end


def boxes_overlap(a: Bounds, b: Bounds) -> bool:
    """Return whether two boxes of partitions and bytes in one memory share a byte."""
    return a[2] < b[3] and b[2] < a[3] and a[0] < b[1] and b[0] < a[1]


class BoxColumns:
    """Boxes by number, as columns, so that methods which call ``overlap`` may also run as machine code."""

    space: list[int]
    partition: list[int]
    partition_end: list[int]
    byte: list[int]
    byte_end: list[int]

    def __init__(self, boxes: Sequence[Box]) -> None:
        numbers: dict[str, int] = {}
        spaces = [numbers.setdefault(space, len(numbers)) for space, _ in boxes]
        rows = np.array([(number, *bounds) for number, (_, bounds) in zip(spaces, boxes)], np.int64).reshape(-1, 5)
        columns: Any = rows.T.copy()
        self.space, self.partition, self.partition_end, self.byte, self.byte_end = columns

    def overlap(self, box: int, other: int) -> bool:
        """Return whether two boxes share a byte."""
        return self.byte[box] < self.byte_end[other] and self.byte[other] < self.byte_end[box] and (
            self.partition[box] < self.partition_end[other]) and (
            self.partition[other] < self.partition_end[box]) and self.space[box] == self.space[other]


def index_boxes_apart(box: IndexBox, other_box: IndexBox) -> bool:
    """Return whether two boxes of one index space have no element in common."""
    return any(start + count <= other_start or other_start + other_count <= start
               for start, count, other_start, other_count in zip(*box, *other_box))


def elements_apart(strides: Sequence[int], extents: Sequence[int]) -> bool:
    """Return whether positions on axes with these strides, in elements, and extents are surely different elements."""
    reach = 1
    for step, extent in sorted(zip(strides, extents)):
        if step < reach:
            return False
        reach += step * (extent - 1)
    return True


def repeats_apart(distance: int, dims: Sequence[tuple[int, int]]) -> bool:
    """Return whether a pattern of (step, count) pairs and the same pattern at multiples of a distance surely have no
    element in common."""
    return abs(distance) > sum(abs(step) * (count - 1) for step, count in dims)


def owners_apart(patterns: Iterable[tuple[int, Sequence[tuple[int, int]], object]]) -> bool:
    """Return whether boxes around patterns of bytes prove that no byte is in patterns of two owners. This is cheaper
    than marking all bytes.

    A pattern is a start, (step, count) pairs (the last is a run of bytes), and its owner. The length of a row divides
    the steps of all patterns. Two boxes must have the same columns or no column in common. """
    parts = list(patterns)
    width = gcd(*[step for _, (*dims, _), _ in parts for step, _ in dims]) or ANYWHERE
    columns: dict[tuple[int, int], list[tuple[int, int, object]]] = {}
    for start, (*dims, (_, run)), owner in parts:
        row, column = divmod(start, width)
        if column + run > width:
            return False
        low = row + sum([step * (n - 1) for step, n in dims if step < 0]) // width
        high = row + sum([step * (n - 1) for step, n in dims if step > 0]) // width
        columns.setdefault((column, column + run), []).append((low, high, owner))
    intervals = sorted(columns)
    return all([a[1] <= b[0] for a, b in pairwise(intervals)]) and all([rows_apart(rows) for rows in columns.values()])


def rows_apart(boxes: Sequence[tuple[int, int, object]]) -> bool:
    """Return whether each row is in boxes of one owner only; a box is its first row, its last, and its owner."""
    end, owner = -ANYWHERE, None
    for low, high, by in sorted(boxes, key=itemgetter(0)):
        if low <= end and by != owner:
            return False
        end, owner = max(end, high), by
    return True


# -- iterations of a loop ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ByteRegion:
    """The memory of an operand: the start and the size of a buffer, and the bytes from that start to the operand.

    In records of the waist ``root`` is an SSA value, ``base`` and ``size`` are 0, and symbols of the offset are numbers
    of index values. In the CPU's program ``root`` is the program's buffer, or names memory from outside, and symbols
    are slots. A call accesses runs of ``run`` bytes at the steps and counts of ``dims``, from the address on
    (``accessed``).
    """

    root: Hashable
    base: Linear
    size: int
    offset: Linear
    name: str = ""
    dims: tuple[tuple[int, int], ...] = ()
    run: int = 0
    writes: bool = False

    @cached_property
    def address(self) -> Linear:
        return self.base.plus(self.offset) if self.offset != Linear() else self.base

    def moved(self, offset: Linear, factor: int = 1) -> "ByteRegion":
        """Return the region that begins this many bytes later."""
        return replace(self, offset=self.offset.plus(offset, factor)) if offset != Linear() else self

    def accessed(self, dims: tuple[tuple[int, int], ...], run: int, writes: bool) -> "ByteRegion":
        """Return the region with the bytes that a call reads or writes."""
        return ByteRegion(self.root, self.base, self.size, self.offset, self.name, dims, run, writes)

    @cached_property
    def reach(self) -> tuple[int, int]:
        """Return the first and the last byte that a call accesses, relative to the address."""
        ends = [step * (count - 1) for step, count in self.dims]
        return sum([min(0, end) for end in ends]), sum([max(0, end) for end in ends]) + self.run - 1


def are_apart(a: ByteRegion, b: ByteRegion, moved: int = 0) -> bool:
    """Return whether two accesses, the second one moved by some bytes, certainly have no byte in common."""
    if not may_interleave(a, b, moved):
        return True
    distance = b.address.plus(a.address, -1)
    first, second = (nest_of((*access.dims, (1, access.run)), 1) for access in (a, b))
    return not distance.symbols and not share_byte(
        first.pairs, first.unit, first.extent, second.pairs, second.unit, second.extent,
        distance.const + moved + second.shift - first.shift)


def may_interleave(a: ByteRegion, b: ByteRegion, moved: int = 0) -> bool:
    """Return whether bytes of one access may lie between the first and the last byte of the other, which is moved."""
    distance = b.address.plus(a.address, -1)
    start = distance.const + moved
    return a.root == b.root and (bool(distance.symbols) or (
        start + b.reach[0] <= a.reach[1] and a.reach[0] <= start + b.reach[1]))


class Iterations(NamedTuple):
    """The values ``span`` of a loop's ``variable``, and the symbols of its ``body``, some with ranges."""

    variable: int
    span: range
    body: range = range(0)
    ranges: Mapping[int, tuple[int, int]] | None = None

    def bounds(self, access: ByteRegion) -> tuple[int, Linear, int, int]:
        """Return the bytes by which an access moves when the variable grows by 1, the part of its address that stays
        the same, and its first and last byte."""
        address, ranges = access.address, self.ranges or {}
        symbols = dict(address.symbols)
        pace = symbols.pop(self.variable, 0)
        low, high = (address.const + end for end in access.reach)
        for symbol in [s for s in symbols if s in self.body and s in ranges]:
            ends = [symbols[symbol] * end for end in ranges[symbol]]
            del symbols[symbol]
            low, high = low + min(ends), high + max(ends)
        return pace, Linear(0, tuple(symbols.items())), low, high

    def apart(self, a: ByteRegion, b: ByteRegion) -> bool:
        """Return whether accesses ``a`` and ``b`` are independent: if one of them writes, no byte is accessed by both
        in two different iterations."""
        if a.root != b.root or not (a.writes or b.writes):
            return True
        (pace, base, low, high), (other_pace, other_rest, other_low, other_high) = self.bounds(a), self.bounds(b)
        if base != other_rest or any(symbol in self.body for symbol, _ in base.symbols):
            return False                    # their distance is not known
        if pace == other_pace and max(high, other_high) - min(low, other_low) < abs(pace * self.span.step):
            return True
        least, greatest = self.all(low, high, pace)
        other_first, other_last = self.all(other_low, other_high, other_pace)
        return not spans_overlap(least, greatest + 1, other_first, other_last + 1)

    def all(self, low: int, high: int, pace: int) -> tuple[int, int]:
        """Return the first and the last byte in any iteration."""
        ends = pace * self.span[0], pace * self.span[-1]
        return low + min(ends), high + max(ends)

    def keep_apart(self, accesses: Sequence[ByteRegion], private: Set[object] = frozenset()) -> bool:
        """Return whether no iteration accesses bytes that another one writes. Each iteration has a copy of the
        ``private`` memories."""
        by_root: dict[object, list[ByteRegion]] = {}
        for access in accesses:
            if access.root not in private:
                by_root.setdefault(access.root, []).append(access)
        return all(all(self.apart(a, b) for k, a in enumerate(group) for b in group[k:]) or self.interleaved(group)
                   for group in by_root.values() if any(a.writes for a in group))

    def interleaved(self, group: Sequence[ByteRegion]) -> bool:
        """Return whether all iterations access the same pattern, and their steps fit between those of the pattern.

        Such accesses are like columns of a matrix: an iteration touches some bytes of each row, and the
        distance of the rows exceeds the reach of all iterations.
        """
        pattern, ranges = group[0], self.ranges or {}
        address = pattern.address
        if any((a.address, a.dims, a.run) != (address, pattern.dims, pattern.run) for a in group):
            return False
        inner = {symbol: c for symbol, c in address.symbols if symbol in self.body}
        if not inner.keys() <= ranges.keys():
            return False
        pace = abs(dict(address.symbols).get(self.variable, 0) * self.span.step)
        dims = [(abs(step), count, False) for step, count in pattern.dims if step and count > 1]
        dims += [(abs(c), ranges[symbol][1] - ranges[symbol][0] + 1, False) for symbol, c in inner.items()]
        reach, passed = pattern.run, False               # bytes that the steps so far span
        for step, count, is_iteration in sorted([*dims, (pace, len(self.span), True)]):
            if (is_iteration or passed) and step < reach:
                return False
            passed |= is_iteration
            reach += step * (count - 1)
        return True


# -- systems of integers -----------------------------------------------------------------------------------------------
class OverlapSystem:
    """Integer variables with ranges, and linear rows on them: the elements of two accesses and what restricts them."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.rows: list[Row] = []

    def variable(self, low: int, high: int) -> int:
        """Return the number of a new variable."""
        self.spans.append((low, high))
        return len(self.spans) - 1

    def row(self, form: Form, equal: bool) -> None:
        """Require ``form >= 0`` or, with ``equal``, ``form == 0``."""
        const, terms = form
        self.rows.append(Row(const, tuple(sorted((v, c) for v, c in terms.items() if c)), equal))

    def equate(self, coordinates: Sequence[Form], other_coordinates: Sequence[Form]) -> None:
        """Require that the two accesses have one element, which has these coordinates."""
        for form, other in zip(coordinates, other_coordinates):
            self.row(plus(form, other, -1), True)

    def solved(self, spans: Mapping[int, Span] | None = None) -> tuple[int, ...] | None:
        """Return values of the variables for which all rows hold, None if there are none. ``spans`` replaces the ranges
        of some variables. Raise ``SearchTooLong`` if that is not decided."""
        chosen = [(spans or {}).get(variable, span) for variable, span in enumerate(self.spans)]
        return solution(tuple(chosen), tuple(self.rows))


def plus(a: Form, b: Form, factor: int = 1) -> Form:
    """Return ``a + factor * b``."""
    terms = dict(a[1])
    for variable, c in b[1].items():
        terms[variable] = terms.get(variable, 0) + factor * c
    return a[0] + factor * b[0], terms
