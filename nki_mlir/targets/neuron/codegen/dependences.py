# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which earlier instructions an instruction must come after: read after write, write after read, write after write.

Accesses are noted in program order. An access is forgotten once another implies it: a write that covers it, or an equal
access of the same engine or queue, which completes later. Memory is cut into buckets of several sizes, so that only
what lies near is compared: an access is noted where one or two buckets hold it. Tiles side by side in a matrix are
told apart by their columns. A memory that few accesses touch, as a tile on chip is before it has an address, is one
list. What an access touches is a region (``waist/overlap.py``).
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nki_mlir.dialects.access import HBM, Access, Tile
from nki_mlir.dialects.op import Op
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer, InstructionStep
from nki_mlir.waist.overlap import Region, nest_of, region_of

BUCKETS = 256                   # buckets of the smallest size into which a memory is cut
LEVELS, FACTOR = 5, 4           # sizes of buckets, and how much longer the next is
FEW = 12                        # accesses of a memory that are one list
COLUMNS, SPREAD = 64, 4         # strips that the rows of a matrix are cut into; how many of them an access is noted in


@dataclass(slots=True, eq=False)
class TrackedAccess:
    """One access that later ones may depend on."""

    region: Region
    node: int
    writes: bool
    stream: Hashable
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
        self.few: dict[Hashable, list[TrackedAccess]] = {memory: [] for memory in sizes}
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

    # -- memories that few accesses touch ------------------------------------------------------------------------------
    def _earlier(self, region: Region, writes: bool, conflicting: set[int]) -> None:
        """Add the nodes whose accesses conflict; accesses that a write covers are forgotten."""
        accesses = self.few.get(region.memory)
        if accesses is None:
            if region.memory in self.widths:
                self._earlier_nearby(region, writes, conflicting)
            return
        forgotten = False
        for access in accesses:
            if writes or access.writes:
                other = access.region
                if other is region or other.overlaps(region):
                    conflicting.add(access.node)
                    if writes and region.covers(other):
                        access.live = False
                        forgotten = True
        if forgotten:
            accesses[:] = [access for access in accesses if access.live]

    def _note(self, region: Region, node: int, writes: bool, stream: Hashable) -> None:
        accesses = self.few.get(region.memory)
        if accesses is None:
            if region.memory in self.widths:
                self._note_nearby(region, node, writes, stream)
            return
        for access in accesses:
            if access.writes == writes and access.stream == stream and access.region == region:
                access.node = node              # the node completes after the one before
                return
        accesses.append(TrackedAccess(region, node, writes, stream))
        if len(accesses) > FEW:
            del self.few[region.memory]
            for access in accesses:
                self._note_nearby(access.region, access.node, access.writes, access.stream)

    # -- memories that many accesses touch -----------------------------------------------------------------------------
    def _buckets_at(self, region: Region, level: int) -> Iterator[Bucket]:
        width, memory = self.widths[region.memory] * FACTOR ** level, region.memory
        for k in range(region.low // width, (region.high - 1) // width + 1):
            key = memory, level, k
            yield self.buckets[key] if key in self.buckets else self.buckets.setdefault(key, {})

    def _strips(self, region: Region) -> range | None:
        """Return the strips of the matrix that a region keeps to; None where it does not keep to few."""
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
        """Return the strips and buckets with the accesses that may touch a region."""
        levels, pitch = self.levels[region.memory], self.pitches.get(region.memory)
        nearby = self.near.get(region)
        if nearby is None or nearby.levels != len(levels) or nearby.pitch != pitch:
            strips = self._strips(region)
            nearby = self.near[region] = Nearby(
                len(levels), pitch, [bucket for level in levels for bucket in self._buckets_at(region, level)],
                None if strips is None else (None, *strips))
        return nearby

    def _earlier_nearby(self, region: Region, writes: bool, conflicting: set[int]) -> None:
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
                                conflicting.add(access.node)
                                access.live = not (writes and region.covers(other))
                        forgotten |= not access.live
                    if forgotten:
                        entries[:] = [a for a in entries if a.live]

    def _note_nearby(self, region: Region, node: int, writes: bool, stream: Hashable) -> None:
        key = region, writes, stream
        before = self.latest.get(key)
        if before is not None and before.live:
            before.node = node                      # the node completes after the one before
            return
        access = self.latest[key] = TrackedAccess(region, node, writes, stream)
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


def touched(steps: Sequence[InstructionStep], address_of: Callable[[DeviceBuffer], Address]) -> list[Touched]:
    """Return the regions that each step reads and writes; equal regions are one object."""
    memo: dict[Address, dict[Access, Region]] = {}
    at_origin: dict[Access, Region] = {}            # where a buffer would begin with its memory

    def region(tile: Tile, op: Op) -> Region:
        access, address = tile.access, address_of(tile.handle)
        if op.symbols and access.symbols_used():
            return region_of(access, *address, op.symbols, op.ranges)
        of_buffer = memo.get(address)
        if of_buffer is None:
            of_buffer = memo[address] = {}
        known_region = of_buffer.get(access)
        if known_region is None:
            origin = at_origin.get(access)
            if origin is None:
                origin = at_origin[access] = region_of(access, "")
            memory, partition, byte = address
            known_region = of_buffer[access] = Region(
                memory, origin.first + partition, origin.last + partition, origin.start + byte, origin.nest,
                origin.low + byte, origin.high + byte)
        return known_region

    accesses = []
    for op in [step.op for step in steps]:
        written = [region(tile, op) for _, tile in op.targets()]
        outside = [OUTSIDE] if op.acts_outside or not written else []
        accesses.append(([region(tile, op) for _, tile in op.sources()], written + outside))
    return accesses


def memory_sizes(steps: Sequence[Touched]) -> dict[Hashable, int]:
    """Return the memories that are written at all, with the end of the accessed bytes. Others order nothing."""
    written = {region.memory for _, writes in steps for region in writes}
    sizes: dict[Hashable, int] = {}
    for regions in steps:
        for region in (*regions[0], *regions[1]):
            if region.memory in written:
                sizes[region.memory] = max(sizes.get(region.memory, 0), region.high)
    return sizes
