# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which earlier instructions an instruction must come after: read after write, write after read, write after write.

Accesses are noted in program order. An access is forgotten once another implies it: a write that covers it, or an equal
access of the same engine or queue, which completes later. Memory is cut into buckets of several sizes, so that only
what lies near is compared: an access is noted where one or two buckets hold it. Tiles side by side in a matrix are
told apart by their columns.

What an access touches is a region: its pattern of steps and counts is kept nested, steps from large to small, each at
least as long as what is inside it. Two such sets of bytes are compared level by level, exactly where their outer steps
agree. What cannot be nested (steps that interleave) or compared cheaply counts as everything between its ends, which
may report an overlap too many, never one too few.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from nki_mlir.dialects.access import HBM, Access, Linear, Ranges, Tile
from nki_mlir.dialects.op import Op
from nki_mlir.targets.neuron.codegen.records import Computed, DeviceBuffer, InstructionStep, LoopVariable

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
              symbols: tuple[Computed | LoopVariable, ...] = (), ranges: Ranges = ()) -> Region:
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


BUCKETS = 256                   # of the smallest size, that a memory is cut into
LEVELS, FACTOR = 5, 4           # sizes of buckets, and how much longer the next is
COLUMNS, SPREAD = 64, 4         # strips that the rows of a matrix are cut into; how many of them an access is noted in


@dataclass(slots=True, eq=False)
class TrackedAccess:
    """One access that later ones may depend on."""

    region: Region
    node: int
    seen: int = -1              # the query that looked at it last
    live: bool = True


Entries = tuple[list[TrackedAccess], list[TrackedAccess]]     # reads, writes
Bucket = dict[int | None, Entries]              # by strip; None: any


class Nearby(NamedTuple):
    """Where accesses lie that may touch a region, by the levels in use and the pitch that were known."""

    levels: int
    pitch: int | None
    buckets: list[Bucket]
    strips: tuple[int | None, ...] | None


class Dependences:
    """Accesses of straight-line code so far. ``sizes`` gives the bytes of each memory that is written at all."""

    def __init__(self, sizes: Mapping[Hashable, int]) -> None:
        self.widths = {memory: max(256, size // BUCKETS) for memory, size in sizes.items()}
        self.pitches: dict[Hashable, int] = {}          # bytes of a row, of memories that are used as matrices
        self.buckets: dict[tuple[Hashable, int, int], Bucket] = {}
        self.near: dict[Region, Nearby] = {}
        self.levels: dict[Hashable, set[int]] = {memory: set() for memory in self.widths}       # in use
        self.latest: dict[tuple[object, ...], TrackedAccess] = {}
        self.queries = 0

    def add(self, node: int, stream: Hashable, reads: Sequence[Region], writes: Sequence[Region]) -> list[int]:
        """Note the accesses of a node; the nodes before it that it depends on, each once.

        Nodes of one ``stream`` complete in the order they are added. Where that is not known, each has its own.
        """
        earlier: set[int] = set()
        for region in reads:
            self._earlier(region, False, earlier)
        for region in writes:
            self._earlier(region, True, earlier)
        for region in reads:
            self._note(region, node, False, stream)
        for region in writes:
            self._note(region, node, True, stream)
        earlier.discard(node)
        return sorted(earlier)

    def _buckets_at(self, region: Region, level: int) -> Iterator[Bucket]:
        width, memory = self.widths[region.memory] * FACTOR ** level, region.memory
        for k in range(region.low // width, (region.high - 1) // width + 1):
            key = memory, level, k
            yield self.buckets[key] if key in self.buckets else self.buckets.setdefault(key, {})

    def _strips(self, region: Region) -> range | None:
        """The strips of the matrix that a region keeps to; None where it does not keep to few."""
        pitch = self.pitches.get(region.memory)
        if pitch is None or region.symbolic is not None:
            return None
        inner = region.nest.extent
        if region.nest.pairs and region.nest.pairs[0][0] == pitch:
            inner -= pitch * (region.nest.pairs[0][1] - 1)
        column, width = region.start % pitch, max(1, pitch // COLUMNS)
        strips = range(column // width, (column + inner - 1) // width + 1)
        return strips if column + inner <= pitch and len(strips) <= SPREAD else None

    def _near(self, region: Region) -> Nearby:
        """Where accesses lie that may touch a region."""
        levels, pitch = self.levels[region.memory], self.pitches.get(region.memory)
        known = self.near.get(region)
        if known is None or known.levels != len(levels) or known.pitch != pitch:
            strips = self._strips(region)
            known = self.near[region] = Nearby(
                len(levels), pitch, [bucket for level in levels for bucket in self._buckets_at(region, level)],
                None if strips is None else (None, *strips))
        return known

    def _earlier(self, region: Region, writes: bool, found: set[int]) -> None:
        """Add the nodes whose accesses conflict; accesses that a write covers are forgotten."""
        if region.memory not in self.widths:
            return
        self.queries += 1
        low, high = region.low, region.high
        near = self._near(region)
        for bucket in near.buckets:
            if not bucket:
                continue
            for reads, written in bucket.values() if near.strips is None else [
                    bucket[k] for k in near.strips if k in bucket]:
                for entries in (reads, written) if writes else (written,):
                    forgotten = False
                    for access in entries:
                        if access.live and access.seen != self.queries:
                            access.seen = self.queries
                            other = access.region
                            if other.low < high and low < other.high and other.overlaps(region):
                                found.add(access.node)
                                access.live = not (writes and region.covers(other))
                        forgotten |= not access.live
                    if forgotten:
                        entries[:] = [a for a in entries if a.live]

    def _note(self, region: Region, node: int, writes: bool, stream: Hashable) -> None:
        if region.memory not in self.widths:
            return
        key = region, writes, stream
        before = self.latest.get(key)
        if before is not None and before.live:
            before.node = node                      # it completes after the one before
            return
        access = self.latest[key] = TrackedAccess(region, node)
        width, level = self.widths[region.memory], 0
        while level < LEVELS - 1 and width * FACTOR ** level < region.high - region.low:
            level += 1
        self.levels[region.memory].add(level)
        if region.nest.pairs:
            self.pitches.setdefault(region.memory, region.nest.pairs[0][0])
        strips = self._strips(region)
        for bucket in self._buckets_at(region, level):
            for k in (None,) if strips is None else strips:
                bucket.setdefault(k, ([], []))[int(writes)].append(access)


# -- what steps touch --------------------------------------------------------------------------------------------------
Address = tuple[Hashable, int, int]               # a memory, and the partition and byte where a buffer begins in it
Touched = tuple[list[Region], list[Region]]     # read, written
OUTSIDE = Region("outside", 0, 0, 0, nest_of((), 1), 0, 1)      # effects elsewhere: prints, meetings


def own_memory(buffer: DeviceBuffer) -> Address:
    """Before allocation each buffer has its own memory; those whose address the kernel chose may share bytes."""
    return physical(buffer) if buffer.fixed else (buffer, 0, 0)


def physical(buffer: DeviceBuffer) -> Address:
    """After allocation."""
    if buffer.space == HBM:
        return buffer, 0, 0
    assert buffer.address is not None
    return (buffer.space, *buffer.address)


def touched(steps: Sequence[InstructionStep], place: Callable[[DeviceBuffer], Address]) -> list[Touched]:
    """The regions that each step reads and those it writes; those of one place are one object."""
    known: dict[tuple[Access, Address], Region] = {}

    def region(tile: Tile, op: Op) -> Region:
        if op.symbols and tile.access.symbols_used():
            return region_of(tile, *place(tile.handle), op.symbols, op.ranges)
        key = tile.access, place(tile.handle)
        known_region = known.get(key)
        if known_region is None:
            known_region = known[key] = region_of(tile, *key[1])
        return known_region

    accesses = []
    for op in [step.op for step in steps]:
        written = [region(tile, op) for _, tile in op.targets()]
        outside = [OUTSIDE] if op.acts_outside or not written else []
        accesses.append(([region(tile, op) for _, tile in op.sources()], written + outside))
    return accesses


def memory_sizes(steps: Sequence[Touched]) -> dict[Hashable, int]:
    """The memories that are written at all, with the end of what is touched of them. Others order nothing."""
    written = {region.memory for _, writes in steps for region in writes}
    sizes: dict[Hashable, int] = {}
    for regions in steps:
        for region in (*regions[0], *regions[1]):
            if region.memory in written:
                sizes[region.memory] = max(sizes.get(region.memory, 0), region.high)
    return sizes
