# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The accesses to a memory with many distinct regions, of which only neighboring ones are compared.

The memory is divided into buckets of several sizes, and an access is noted in the smallest one or two buckets that
contain it. The columns of tiles that are side by side in a matrix show that they do not overlap. Accesses whose address
has the same registers have their own buckets, in which they are as far apart as without the registers. A write through
registers, which may touch all bytes of a range, comes after all accesses in the range. Steps after the write then need
not come after these accesses, too, unless their address has the same registers.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from nki_mlir.waist.overlap import Region, RegionTests, within_bounds

BUCKETS = 256                   # number of buckets of the smallest size
LEVELS, FACTOR = 5, 4           # number of sizes of buckets, and the factor from one size to the next
COLUMNS, SPREAD = 64, 4  # strips into which the rows of a matrix are cut; most strips in which an access is noted


@dataclass(slots=True, eq=False)
class TrackedAccess:
    """One access that later ones may depend on."""

    region: Region
    node: int
    live: bool = True

    def overwrite(self, region: Region) -> None:
        """Forget the bytes that a write to an overlapping region covers."""
        if region.covers(self.region):
            self.live = False
        elif region.one_run and self.region.one_run:
            self.region = self.region.without(region)


Entries = tuple[list[TrackedAccess], list[TrackedAccess]]     # reads, writes
Bucket = dict[int | None, Entries]              # entries by strip; None: those of any strip


class Nearby(NamedTuple):
    """The buckets with the accesses that may touch a region, for the levels and the pitch that were in use."""

    levels: int
    pitch: int | None
    buckets: list[Bucket]
    strips: tuple[int | None, ...] | None


class Buckets:
    """Accesses whose addresses have the same registers, by their starts without these, in a memory of ``size`` bytes.
    """

    def __init__(self, size: int) -> None:
        self.width = max(256, size // BUCKETS)          # bytes of the smallest buckets
        self.pitch: int | None = None                   # bytes of a row, of a memory that is used as a matrix
        self.buckets: dict[tuple[int, int], Bucket] = {}
        self.nearby_by_region: dict[Region, Nearby] = {}
        self.levels: set[int] = set()                   # in use
        self.all: Entries = [], []

    def add(self, access: TrackedAccess, writes: bool) -> None:
        region, level = access.region, 0
        while level < LEVELS - 1 and self.width * FACTOR ** level < region.nest.extent:
            level += 1
        self.levels.add(level)
        if region.nest.pairs and self.pitch is None:
            self.pitch = region.nest.pairs[0][0]
        strips = self.strips_of(region)
        for bucket in self.buckets_at(region.start, region.start + region.nest.extent, level):
            for k in (None,) if strips is None else strips:
                bucket.setdefault(k, ([], []))[int(writes)].append(access)
        self.all[int(writes)].append(access)

    def entries_near(self, region: Region) -> list[Entries]:
        """Return the entries of the buckets and strips that a region touches."""
        nearby = self.near_region(region)
        if nearby.strips is None:
            return [entries for bucket in nearby.buckets for entries in bucket.values()]
        return [bucket[k] for bucket in nearby.buckets if bucket for k in nearby.strips if k in bucket]

    def entries_within(self, low: int, high: int) -> list[Entries]:
        """Return the entries of the buckets that a range touches."""
        return [entries for level in self.levels for bucket in self.buckets_at(low, high, level)
                for entries in bucket.values()]

    def near_region(self, region: Region) -> Nearby:
        """Return the strips and buckets with the accesses that may touch a region."""
        nearby = self.nearby_by_region.get(region)
        if nearby is None or nearby.levels != len(self.levels) or nearby.pitch != self.pitch:
            strips, end = self.strips_of(region), region.start + region.nest.extent
            nearby = self.nearby_by_region[region] = Nearby(
                len(self.levels), self.pitch,
                [bucket for level in self.levels for bucket in self.buckets_at(region.start, end, level)],
                None if strips is None else (None, *strips))
        return nearby

    def buckets_at(self, low: int, high: int, level: int) -> Iterator[Bucket]:
        width = self.width * FACTOR ** level
        for k in range(low // width, (high - 1) // width + 1):
            key = level, k
            yield self.buckets[key] if key in self.buckets else self.buckets.setdefault(key, {})

    def strips_of(self, region: Region) -> range | None:
        """Return the strips of the matrix in which a region lies; None if there are many."""
        pitch = self.pitch
        if pitch is None:
            return None
        inner = region.nest.extent
        if region.nest.pairs and region.nest.pairs[0][0] == pitch:
            inner -= pitch * (region.nest.pairs[0][1] - 1)
        column, width = region.start % pitch, max(1, pitch // COLUMNS)
        strips = range(column // width, (column + inner - 1) // width + 1)
        return strips if column + inner <= pitch and len(strips) <= SPREAD else None


class NearbyAccesses:
    """The accesses of a memory of ``size`` bytes."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        # by the registers of the addresses; None: those without registers
        self.buckets: dict[Hashable, Buckets] = {}
        self.latest: dict[tuple[object, ...], TrackedAccess] = {}
        # By the registers of a write: earlier accesses that the write covers. Only a later access through the same
        # registers may still conflict with them.
        self.superseded: dict[Hashable, Entries] = {}
        self.tests = RegionTests()

    def earlier(self, region: Region, writes: bool, conflicting: set[int]) -> None:
        """Add the nodes whose accesses conflict. Forget accesses that a write covers, and parts that it covers."""
        by_range = self.entries_of_others(region)
        if self.superseded and region.symbolic in self.superseded:
            by_range.append(self.superseded[region.symbolic])
        for reads, written in by_range:
            if writes and reads:
                add_in_range(reads, region, conflicting)
            if written:
                add_in_range(written, region, conflicting)
        if region.symbolic in self.buckets:
            for reads, written in self.buckets[region.symbolic].entries_near(region):
                if writes and reads:
                    self.compare(reads, region, writes, conflicting)
                if written:
                    self.compare(written, region, writes, conflicting)

    def entries_of_others(self, region: Region) -> list[Entries]:
        """Return entries, among them all that may touch a region and whose addresses do not have its registers."""
        entry_lists: list[Entries] = []
        for symbolic, buckets in self.buckets.items():
            if symbolic is None and region.symbolic is not None:
                entry_lists += buckets.entries_within(region.low, region.high)
            elif symbolic != region.symbolic:
                entry_lists.append(buckets.all)
        return entry_lists

    def compare(self, entries: list[TrackedAccess], region: Region, writes: bool, conflicting: set[int]) -> None:
        """Add the nodes of the entries, with the region's registers, that touch it; drop those that a write to it
        covers."""
        forgotten = False
        for access in self.tests.overlapping(region, entries):
            if access.live:
                conflicting.add(access.node)
                if writes:
                    access.overwrite(region)
            forgotten |= not access.live
        if forgotten:
            entries[:] = [access for access in entries if access.live]

    def supersede(self, region: Region) -> None:
        """A write through registers comes after accesses that lie entirely in bytes that it may touch. From now on only
        accesses through the same registers look at these: all others come after the write."""
        low, high = region.low, region.high
        superseded = self.superseded.setdefault(region.symbolic, ([], []))
        for read_and_written in self.entries_of_others(region):
            for entries, superseded_entries in zip(read_and_written, superseded):
                for access in entries:
                    if access.live and low <= access.region.low and access.region.high <= high:
                        superseded_entries.append(replace(access))
                        access.live = False
                entries[:] = [access for access in entries if access.live]

    def add(self, region: Region, node: int, writes: bool, stream: Hashable) -> None:
        key = region, writes, stream
        before = self.latest.get(key)
        if before is not None and before.live and before.region == region:
            before.node = node                      # the node completes after the previous one
            return
        access = self.latest[key] = TrackedAccess(region, node)
        if region.symbolic not in self.buckets:
            self.buckets[region.symbolic] = Buckets(self.size)
        self.buckets[region.symbolic].add(access, writes)


def add_in_range(entries: list[TrackedAccess], region: Region, conflicting: set[int]) -> None:
    """Add the nodes of entries with other registers than a region, if they may touch the bytes that the region may
    touch."""
    live = [access for access in entries if access.live]
    if len(live) < len(entries):
        entries[:] = live
    conflicting.update([access.node for access in within_bounds(region, live)])
