# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the earlier instructions that an instruction must come after: read after write, write after read, write after
write, and the edges that the kernel adds (``dialects/instruction_order.py``).

The accesses of steps are columns of numbers: each distinct region (``waist/overlap.py``) has a number, and each pair of
regions is compared once. The module records accesses in program order. It drops an access once another one implies it:
a write that covers it, or an equal access of the same engine or queue, which completes later.

In a memory with many distinct regions, the module compares only neighbouring regions. It divides such a memory into
buckets of several sizes, and records an access in the smallest one or two buckets that contain it. The columns of tiles
that are side by side in a matrix show that they do not overlap. In such a memory a write through registers, which may
touch all bytes of a range, comes after all accesses in the range. Steps after the write then need not come after these
accesses, too, unless their address has the same registers.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from nki_mlir.dialects.access import HBM, Access, Tile
from nki_mlir.dialects.instruction_order import label_of, labels_before
from nki_mlir.dialects.op import Op
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer
from nki_mlir.waist.overlap import ByteNest, Region, nest_of, region_of

MANY = 128                      # regions of a memory that are all compared with each other
BUCKETS = 256                   # buckets of the smallest size into which a memory is cut
LEVELS, FACTOR = 5, 4           # sizes of buckets, and how much longer the next is
COLUMNS, SPREAD = 64, 4  # strips into which the rows of a matrix are cut; most strips in which an access is noted


class Touched(NamedTuple):
    """The accesses of steps. ``reads`` and ``writes``: for each step the numbers of the regions that it reads and
    writes; ``memories`` and ``regions``: by that number, the memory and the bytes in it."""

    memories: list[Hashable]
    regions: list[Region]
    reads: list[list[int]]
    writes: list[list[int]]


NOBODY: dict[Hashable, int] = {}        # instead of a new dictionary; never changed


class RegionUses:
    """The latest nodes that read and wrote a region, by stream, without nodes that a later write covers. ``touching``:
    the uses of all regions that share a byte with it, including its own; ``covered``: the uses of all regions that it
    contains."""

    __slots__ = ("covered", "readers", "region", "touching", "writers")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.readers = self.writers = NOBODY
        self.touching: tuple[RegionUses, ...] = (self,)
        self.covered: tuple[RegionUses, ...] = self.touching if region.nest.exact else ()


class Dependences:
    """The dependences of steps whose columns are given. Steps are added in order. ``every``: include dependences that
    others imply, through a write whose address is in registers."""

    def __init__(self, steps: Touched, every: bool = False) -> None:
        self.every = every
        self.memories, self.regions, self.reads, self.writes = steps
        written = {self.memories[number] for number in set(chain.from_iterable(self.writes))}
        unordered = RegionUses(OUTSIDE)                 # memory that no step writes orders nothing
        unordered.touching = ()
        self.uses = [None if memory in written else unordered for memory in self.memories]
        self.compared: dict[Hashable, list[RegionUses]] = {}
        self.nearby: dict[Hashable, NearbyAccesses] = {}        # of memories with many regions

    def add(self, k: int, stream: Hashable) -> list[int]:
        """Note the accesses of step ``k``, and return the steps before it that it depends on, each once.

        Steps of one ``stream`` complete in the order in which they are added. If that is not known, each step has a
        separate stream.
        """
        earlier: set[int] = set()
        every, reads, writes = self.uses, self.reads[k], self.writes[k]
        for number in reads:
            uses = every[number] or self.first_use(number)
            if uses is None:
                self.nearby[self.memories[number]].earlier(self.regions[number], False, earlier)
                continue
            for other in uses.touching:
                if other.writers:
                    earlier.update(other.writers.values())
        for number in writes:
            uses = every[number] or self.first_use(number)
            if uses is None:
                near, region = self.nearby[self.memories[number]], self.regions[number]
                near.earlier(region, True, earlier)
                if region.symbolic is not None and not self.every:
                    near.supersede(region)
                near.note(region, k, True, stream)
                continue
            for other in uses.touching:
                if other.writers:
                    earlier.update(other.writers.values())
                if other.readers:
                    earlier.update(other.readers.values())
            for other in uses.covered:
                other.writers = other.readers = NOBODY
            if uses.writers:
                uses.writers[stream] = k
            else:
                uses.writers = {stream: k}
        for number in reads:
            uses = every[number]
            if uses is None:
                self.nearby[self.memories[number]].note(self.regions[number], k, False, stream)
            elif uses.readers:
                uses.readers[stream] = k
            else:
                uses.readers = {stream: k}
        earlier.discard(k)
        return sorted(earlier)

    def first_use(self, number: int) -> RegionUses | None:
        """Compare a region with the others of its memory, and return its uses; None if its memory has many regions."""
        memory, region = self.memories[number], self.regions[number]
        compared = self.compared.get(memory)
        if compared is None:
            uses = self.uses[number] = RegionUses(region)
            self.compared[memory] = [uses]
            return uses
        if memory in self.nearby:
            return None
        if len(compared) == MANY:
            self.cut(memory, compared)
            return None
        low, high = region.low, region.high
        touching: list[RegionUses] = []
        for other_uses in compared:
            other = other_uses.region
            if other.low < high and low < other.high:
                if other == region:
                    self.uses[number] = other_uses
                    return other_uses
                if other.overlaps(region):
                    touching.append(other_uses)
        uses = self.uses[number] = RegionUses(region)
        compared.append(uses)
        for other_uses in touching:
            uses.touching += (other_uses,)
            other_uses.touching += (uses,)
            if region.covers(other_uses.region):
                uses.covered += (other_uses,)
            if other_uses.region.covers(region):
                other_uses.covered += (uses,)
        return uses

    def cut(self, memory: Hashable, compared: Sequence[RegionUses]) -> None:
        """Cut a memory into buckets, which get the uses of its regions so far."""
        numbers = [number for number, other in enumerate(self.memories) if other == memory]
        near = self.nearby[memory] = NearbyAccesses(max(self.regions[number].high for number in numbers))
        for number in numbers:
            self.uses[number] = None
        for uses in compared:
            for writes, nodes in ((False, uses.readers), (True, uses.writers)):
                for stream, node in nodes.items():
                    near.note(uses.region, node, writes, stream)


class RunDependences:
    """The dependences of runs of steps before allocation, each run's worked out once: codes of one kernel share
    operations (``records.copied``)."""

    def __init__(self) -> None:
        self.runs: dict[tuple[Op, ...], list[list[int]]] = {}       # an operation equals no other one

    def of(self, ops: Sequence[Op]) -> list[list[int]]:
        """Return for each step the steps before it that it depends on."""
        key = tuple(ops)
        if key not in self.runs:
            dependences = Dependences(touched(ops, separate_memory))
            self.runs[key] = [dependences.add(k, k) for k in range(len(ops))]
        return self.runs[key]


# -- memories with many regions ----------------------------------------------------------------------------------------
@dataclass(slots=True, eq=False)
class TrackedAccess:
    """One access that later ones may depend on."""

    region: Region
    node: int
    seen: int = -1              # the query that looked at it last
    live: bool = True
    superseded: bool = False        # a write through registers comes after it

    def overwrite(self, region: Region) -> None:
        """Forget the bytes that a write to an overlapping region covers."""
        if region.covers(self.region):
            self.live = False
        elif region.one_run and self.region.one_run:
            self.region = self.region.without(region)


Entries = tuple[list[TrackedAccess], list[TrackedAccess]]     # reads, writes
Bucket = dict[int | None, Entries]              # by strip; None: any


class Nearby(NamedTuple):
    """The buckets with the accesses that may touch a region, for the levels and the pitch that were in use."""

    levels: int
    pitch: int | None
    buckets: list[Bucket]
    strips: tuple[int | None, ...] | None


class NearbyAccesses:
    """The accesses of a memory of ``size`` bytes, in buckets."""

    def __init__(self, size: int) -> None:
        self.width = max(256, size // BUCKETS)
        self.pitch: int | None = None                   # bytes of a row, of a memory that is used as a matrix
        self.buckets: dict[tuple[int, int], Bucket] = {}
        self.near: dict[Region, Nearby] = {}
        self.levels: set[int] = set()                   # in use
        self.latest: dict[tuple[object, ...], TrackedAccess] = {}
        # By registers: accesses that only a later access through the same registers as a write in between has to look
        # at.
        self.superseded: dict[Hashable, Entries] = {}
        self.met: dict[ByteNest, dict[int, bool]] = {}  # by the distance of equal nests, whether they share a byte
        self.queries = 0

    def earlier(self, region: Region, writes: bool, conflicting: set[int]) -> None:
        """Add the nodes whose accesses conflict. Forget accesses that a write covers, and parts that it covers."""
        self.queries += 1
        several = self.entries_near(region)
        if self.superseded and region.symbolic in self.superseded:
            several.append(self.superseded[region.symbolic])
        for reads, written in several:
            if writes and reads:
                self.compare(reads, region, writes, conflicting)
            if written:
                self.compare(written, region, writes, conflicting)

    def compare(self, entries: list[TrackedAccess], region: Region, writes: bool, conflicting: set[int]) -> None:
        """Add the nodes of the entries that touch a region; drop the entries that a write to it covers."""
        query, low, high, first, last = self.queries, region.low, region.high, region.first, region.last
        one_run, forgotten = region.one_run, False
        for access in entries:
            if access.live and access.seen != query:
                access.seen = query
                other = access.region
                if not (other.low < high and low < other.high):
                    continue
                if one_run and other.one_run:
                    overlaps = other.first <= last and first <= other.last
                else:
                    overlaps = self.share_a_byte(other, region)
                if overlaps:
                    conflicting.add(access.node)
                    if writes:
                        access.overwrite(region)
            forgotten |= not access.live
        if forgotten:
            entries[:] = [access for access in entries if access.live]

    def share_a_byte(self, other: Region, region: Region) -> bool:
        """Return whether two regions may share a byte. The distance of regions with one nest decides it."""
        if other.symbolic != region.symbolic:
            return True
        if other.first > region.last or region.first > other.last:
            return False
        if other.nest is not region.nest:
            return other.overlaps(region)
        by_distance, distance = self.met.setdefault(region.nest, {}), region.start - other.start
        if distance not in by_distance:
            by_distance[distance] = other.overlaps(region)
        return by_distance[distance]

    def entries_near(self, region: Region) -> list[Entries]:
        """Return the entries of the buckets and strips that a region touches."""
        near = self.near_region(region)
        if near.strips is None:
            return [entries for bucket in near.buckets for entries in bucket.values()]
        return [bucket[k] for bucket in near.buckets if bucket for k in near.strips if k in bucket]

    def supersede(self, region: Region) -> None:
        """A write through registers comes after accesses that lie entirely in bytes that it may touch. From now on only
        accesses through the same registers look at these: all others come after the write."""
        low, high, symbolic = region.low, region.high, region.symbolic
        superseded = self.superseded.setdefault(symbolic, ([], []))
        for several in self.entries_near(region):
            for entries, moved in zip(several, superseded):
                for access in entries:
                    other = access.region
                    if low <= other.low and other.high <= high and other.symbolic != symbolic and not access.superseded:
                        access.superseded = True
                        moved.append(access)
                entries[:] = [access for access in entries if not access.superseded]

    def note(self, region: Region, node: int, writes: bool, stream: Hashable) -> None:
        key = region, writes, stream
        before = self.latest.get(key)
        if before is not None and before.live and not before.superseded and before.region == region:
            before.node = node                      # the node completes after the one before
            return
        access = self.latest[key] = TrackedAccess(region, node)
        level = 0
        while level < LEVELS - 1 and self.width * FACTOR ** level < region.high - region.low:
            level += 1
        self.levels.add(level)
        if region.nest.pairs and self.pitch is None:
            self.pitch = region.nest.pairs[0][0]
        strips = self.strips(region)
        for bucket in self.buckets_at(region, level):
            for k in (None,) if strips is None else strips:
                bucket.setdefault(k, ([], []))[int(writes)].append(access)

    def buckets_at(self, region: Region, level: int) -> Iterator[Bucket]:
        width = self.width * FACTOR ** level
        for k in range(region.low // width, (region.high - 1) // width + 1):
            key = level, k
            yield self.buckets[key] if key in self.buckets else self.buckets.setdefault(key, {})

    def strips(self, region: Region) -> range | None:
        """Return the strips of the matrix that a region keeps to; None if they are not few."""
        pitch = self.pitch
        if pitch is None or region.symbolic is not None:
            return None
        inner = region.nest.extent
        if region.nest.pairs and region.nest.pairs[0][0] == pitch:
            inner -= pitch * (region.nest.pairs[0][1] - 1)
        column, width = region.start % pitch, max(1, pitch // COLUMNS)
        strips = range(column // width, (column + inner - 1) // width + 1)
        return strips if column + inner <= pitch and len(strips) <= SPREAD else None

    def near_region(self, region: Region) -> Nearby:
        """Return the strips and buckets with the accesses that may touch a region."""
        nearby = self.near.get(region)
        if nearby is None or nearby.levels != len(self.levels) or nearby.pitch != self.pitch:
            strips = self.strips(region)
            nearby = self.near[region] = Nearby(
                len(self.levels), self.pitch,
                [bucket for level in self.levels for bucket in self.buckets_at(region, level)],
                None if strips is None else (None, *strips))
        return nearby


# -- what steps touch --------------------------------------------------------------------------------------------------
Address = tuple[Hashable, int, int]               # a memory, and the partition and byte where a buffer begins in it
OUTSIDE = Region("outside", 0, 0, 0, nest_of((), 1), 0, 1)      # effects elsewhere: prints, meetings


def separate_memory(buffer: DeviceBuffer) -> Address:
    """Return the address before allocation: each buffer has a separate memory; buffers whose address the kernel chose
    may share bytes."""
    return physical(buffer) if buffer.fixed else (buffer, 0, 0)


def physical(buffer: DeviceBuffer) -> Address:
    """Return the address after allocation."""
    if buffer.space == HBM:
        return buffer, 0, 0
    assert buffer.address is not None
    return (buffer.space, *buffer.address)


def touched(ops: Sequence[Op], address_of: Callable[[DeviceBuffer], Address], edges: bool = True) -> Touched:
    """Return the columns of steps with these operations. ``edges``: an operation with a label writes a region that the
    operations read which the kernel orders after it."""
    numbers = RegionNumbers(address_of)
    labels: dict[str, list[int]] = {}               # the regions that the latest operations with the label write
    of_buffers, columns = numbers.of_buffers, Touched(numbers.memories, numbers.regions, [], [])
    for op in ops:
        symbols = op.symbols
        sources, targets = accessed(op)
        for tiles, column in ((sources, columns.reads), (targets, columns.writes)):
            side: list[int] = []
            for tile in tiles:
                if tile is None:
                    continue
                of_buffer = None if symbols else of_buffers.get(tile.handle)
                number = None if of_buffer is None else of_buffer.get(tile.access)
                side.append(numbers.of(tile, op) if number is None else number)
            column.append(side)
        if op.acts_outside or not side:
            side.append(numbers.new("outside", OUTSIDE))
        if edges and op.extra:
            for earlier in labels_before(op):
                columns.reads[-1] += labels.get(earlier, ())
            if (label := label_of(op)) is not None:
                number = numbers.new((label, len(numbers.memories)), OUTSIDE)
                side.append(number)
                labels.setdefault(label, []).append(number)
    return columns


def accessed(op: Op) -> tuple[Sequence[Tile | None], Sequence[Tile | None]]:
    """Return the tiles that an operation reads, and those that it writes; None for tiles that it lacks."""
    cls = type(op)
    if cls.sources is Op.sources and cls.targets is Op.targets:
        values = op.__dict__
        return cls.tiles_read(values), cls.tiles_written(values)
    return [tile for _, tile in op.sources()], [tile for _, tile in op.targets()]


class RegionNumbers:
    """The numbers of regions. ``of_buffers``: by buffer and pattern without symbols; buffers that begin at one address
    share these. Other equal regions may have several numbers."""

    def __init__(self, address_of: Callable[[DeviceBuffer], Address]) -> None:
        self.address_of = address_of
        self.memories: list[Hashable] = []
        self.regions: list[Region] = []
        self.of_buffers: dict[DeviceBuffer, dict[Access, int]] = {}
        self.at_addresses: dict[Address, dict[Access, int]] = {}
        self.at_origin: dict[Access, Region] = {}       # where a buffer would begin with its memory

    def of(self, tile: Tile, op: Op) -> int:
        """Return the number of the region of a tile."""
        access, address = tile.access, self.address_of(tile.handle)
        memory, partition, byte = address
        if op.symbols and access.symbols_used():
            return self.new(memory, region_of(access, "", partition, byte, op.symbols, op.ranges))
        of_buffer = self.of_buffers.get(tile.handle)
        if of_buffer is None:
            of_buffer = self.of_buffers[tile.handle] = self.at_addresses.setdefault(address, {})
        number = of_buffer.get(access)
        if number is None:
            origin = self.at_origin.get(access)
            if origin is None:
                origin = self.at_origin[access] = region_of(access, "")
            number = of_buffer[access] = self.new(memory, Region(
                "", origin.first + partition, origin.last + partition, origin.start + byte, origin.nest,
                origin.low + byte, origin.high + byte) if partition or byte else origin)
        return number

    def new(self, memory: Hashable, region: Region) -> int:
        self.memories.append(memory)
        self.regions.append(region)
        return len(self.regions) - 1
