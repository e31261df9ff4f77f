# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the earlier instructions that an instruction must come after: read after write, write after read, write after
write, and the edges that the kernel adds (``dialects/instruction_order.py``).

The accesses of steps are columns of numbers: each distinct region (``waist/overlap.py``) has a number, and each pair of
regions of a memory that steps write is compared once (``RegionRelations``). ``dependence_scan.py`` then walks over the
steps in program order. It drops an access once another one implies it: a write that covers it, or an equal access of
the same engine or queue, which completes later. In a memory with many distinct regions only neighboring ones are
compared (``nearby_accesses.py``).
"""

from array import array
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.dialects.access import HBM, Access, Tile
from nki_mlir.dialects.instruction_order import is_ordered, label_of, labels_before
from nki_mlir.dialects.op import Op
from nki_mlir.targets.neuron.codegen.dependence_scan import PartnerColumns, StepEdges, joined, scanned, selected
from nki_mlir.targets.neuron.codegen.nearby_accesses import NearbyAccesses
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer
from nki_mlir.waist.byte_nest import nest_of
from nki_mlir.waist.overlap import Region, groups_that_overlap, region_of

MANY = 128                      # most regions of a memory that are all compared with each other
ANY = 1 << 60                   # more dependences than any code has


class Touched(NamedTuple):
    """The accesses of steps. ``reads`` and ``writes``: for each step the numbers of the regions that it reads and
    writes; ``memories`` and ``regions``: by that number, the memory and the bytes in it."""

    memories: list[Hashable]
    regions: list[Region]
    reads: list[list[int]]
    writes: list[list[int]]


def dependences_between(steps: Touched, streams: Sequence[Hashable] = (), with_implied: bool = False
                        ) -> list[list[int]]:
    """Return the steps that each step depends on. Steps of one stream complete in order; without ``streams``, each step
    is a separate stream. ``with_implied``: include dependences that others imply, through a write whose address is in
    registers."""
    edges = limited_dependences(steps, streams, with_implied, ANY)
    assert edges is not None
    return edges.lists


def limited_dependences(steps: Touched, streams: Sequence[Hashable], with_implied: bool, most: int) -> StepEdges | None:
    """Return the result of ``dependences_between`` in columns; None if there are more than ``most`` dependences."""
    return RegionRelations(steps.memories, steps.regions).edges(steps.reads, steps.writes, streams, with_implied, most)


class RegionRelations:
    """Which regions share bytes, in columns by region and by pair (``PartnerColumns``). ``memories`` and ``regions``
    may grow. Regions are compared when a run writes their memory; ``crowded``: by memory, whether it has more than
    ``MANY`` of these."""

    def __init__(self, memories: list[Hashable], regions: list[Region]) -> None:
        self.memories, self.regions = memories, regions
        self.numbers: dict[Hashable, int] = {}          # the numbers of memories
        self.memory = array("q")                        # by region
        self.is_compared = bytearray()                  # by region
        self.first_equal = array("q")                   # by region, the first equal one that was compared
        self.compared: list[list[int]] = []             # by memory, its regions
        self.crowded = bytearray()                      # by memory
        self.columns = PartnerColumns(*[array("q") for _ in PartnerColumns._fields])
        self.earlier_by_accesses: dict[tuple[bytes, ...], list[set[int]]] = {}         # by accesses to crowded memories

    def edges(self, reads: Sequence[Sequence[int]], writes: Sequence[Sequence[int]], streams: Sequence[Hashable] = (),
              with_implied: bool = False, most: int = ANY) -> StepEdges | None:
        """Return the steps that each step depends on, by the regions that it reads and writes; None if that is more
        than ``most`` pairs."""
        self.number_new()
        (reads_start, read), (writes_start, written) = joined(reads), joined(writes)
        memory = np.array(self.memory, np.int64)
        is_written = np.zeros(len(self.numbers), np.bool_)
        is_written[memory[written]] = True              # memory that no step writes orders no steps
        counts = is_written[memory[read]]
        self.compare_all(memory, read[counts], written)
        first_equal = np.array(self.first_equal, np.int64)
        read, written = first_equal[read], first_equal[written]
        crowded = np.array(self.crowded, np.bool_)[memory]
        far_reads, far_writes = counts & ~crowded[read], ~crowded[written]
        numbers: dict[Hashable, int] = {}
        by_stream = np.array([numbers.setdefault(s, len(numbers)) for s in streams], np.int64) if streams else None
        related = PartnerColumns(*[np.array(column, np.int64) for column in self.columns])
        edges = scanned(selected(reads_start, read, far_reads), selected(writes_start, written, far_writes), related,
                        by_stream, most)
        if edges is None or far_writes.all():
            return edges
        nearby_steps = self.nearby(selected(reads_start, read, counts & crowded[read]),
                           selected(writes_start, written, crowded[written]), streams, with_implied, most)
        both = None if nearby_steps is None else edges.with_more(nearby_steps)
        return None if both is None or len(both.steps) > most else both

    def number_new(self) -> None:
        """Add columns for the regions that are new."""
        numbers, begin, end = self.numbers, len(self.memory), len(self.regions)
        self.memory.extend([numbers.setdefault(memory, len(numbers)) for memory in self.memories[begin:]])
        self.first_equal.extend(range(begin, end))
        self.is_compared.extend(bytes(end - begin))
        self.columns.heads.extend([-1] * (end - begin))
        self.columns.covers_itself.extend([region.nest.exact for region in self.regions[begin:]])
        new_memories = len(numbers) - len(self.compared)
        self.compared.extend([[] for _ in range(new_memories)])
        self.crowded.extend(bytes(new_memories))

    def compare_all(self, memory: Any, read: Any, written: Any) -> None:
        """Compare the regions that have not been compared with the others of their memory."""
        is_new = np.zeros(len(memory), np.bool_)
        is_new[read] = is_new[written] = True
        is_new &= ~np.frombuffer(bytes(self.is_compared), np.bool_)
        for number in np.flatnonzero(is_new).tolist():
            self.is_compared[number] = 1
            self.compare(number)

    def compare(self, number: int) -> None:
        """Link a region with the earlier ones of its memory that it overlaps, unless the memory has too many."""
        memory = self.memory[number]
        if self.crowded[memory]:
            return
        compared, region = self.compared[memory], self.regions[number]
        touching: list[int] = []
        for k in compared:
            other = self.regions[k]
            if other.overlaps(region):
                if other == region:
                    self.first_equal[number] = k
                    return
                touching.append(k)
        if len(compared) >= MANY:
            self.crowded[memory] = 1
            return
        for k in touching:
            other = self.regions[k]
            self.link(number, k, region.covers(other))
            self.link(k, number, other.covers(region))
        compared.append(number)

    def link(self, number: int, other: int, covers: bool) -> None:
        """Record that a region shares bytes with another one, and whether it ``covers`` the other one."""
        heads, _, partners, covered, links = self.columns
        links.append(heads[number])
        heads[number] = len(partners)
        partners.append(other)
        covered.append(covers)

    def nearby(self, reads: tuple[Any, Any], writes: tuple[Any, Any], streams: Sequence[Hashable], with_implied: bool,
               most: int) -> dict[int, set[int]] | None:
        """Return the earlier steps on which steps depend by their accesses to crowded memories; None if these are more
        than ``most`` pairs. Runs that differ only in other steps share the result."""
        reads, writes = self.overlapping(reads, writes)
        touches = np.flatnonzero((np.diff(reads[0]) > 0) | (np.diff(writes[0]) > 0))
        columns = [column for starts, regions in (reads, writes)
                   for column in (np.append(starts[touches], starts[-1]), regions)]
        steps = touches.tolist()
        if streams or with_implied or most < ANY:
            earlier_sets = self.conflicting(columns, [streams[k] for k in steps] if streams else (), with_implied, most)
        else:
            key = tuple([column.tobytes() for column in columns])
            if key not in self.earlier_by_accesses:
                self.earlier_by_accesses[key] = self.conflicting(columns, (), with_implied, most) or []
            earlier_sets = self.earlier_by_accesses[key]
        return None if earlier_sets is None else {
            k: {steps[other] for other in earlier} for k, earlier in zip(steps, earlier_sets)}

    def overlapping(self, reads: tuple[Any, Any], writes: tuple[Any, Any]) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Return the accesses without those to memories in which the bytes of each are apart from those of all others,
        from the first to the last."""
        accesses = np.concatenate([reads[1], writes[1]])
        memory = np.array(self.memory, np.int64)[accesses]
        overlap = np.isin(memory, groups_that_overlap(memory, [self.regions[number] for number in accesses.tolist()]))
        return selected(*reads, overlap[:len(reads[1])]), selected(*writes, overlap[len(reads[1]):])

    def conflicting(self, columns: Sequence[Any], streams: Sequence[Hashable], with_implied: bool, most: int
                    ) -> list[set[int]] | None:
        """Return the same by number of a step that accesses such a memory. ``columns``: where the regions begin that
        these read, and the regions; the same of those that they write."""
        reads_start, read, writes_start, written = [column.tolist() for column in columns]
        by_memory: dict[int, NearbyAccesses] = {}
        for number in dict.fromkeys([*read, *written]):
            accesses = by_memory.setdefault(self.memory[number], NearbyAccesses())
            accesses.size = max(accesses.size, self.regions[number].high)
        earlier_sets: list[set[int]] = []
        pairs = 0
        for k in range(len(reads_start) - 1):
            stream = streams[k] if streams else k
            earlier = set[int]()
            earlier_sets.append(earlier)
            numbers = read[reads_start[k]:reads_start[k + 1]]
            for number in numbers:
                by_memory[self.memory[number]].earlier(self.regions[number], False, earlier)
            for number in written[writes_start[k]:writes_start[k + 1]]:
                accesses, region = by_memory[self.memory[number]], self.regions[number]
                accesses.earlier(region, True, earlier)
                if region.symbolic is not None and not with_implied:
                    accesses.supersede(region)
                accesses.add(region, k, True, stream)
            for number in numbers:
                by_memory[self.memory[number]].add(self.regions[number], k, False, stream)
            earlier.discard(k)
            pairs += len(earlier)
            if pairs > most:
                return None
        return earlier_sets


class RunDependences:
    """The dependences of runs of steps before allocation, computed once for each run. Copies of a kernel's code share
    operations (``records.copied``), whose regions are numbered once."""

    def __init__(self) -> None:
        self.runs: dict[tuple[Op, ...], StepEdges] = {}         # operations are compared by identity
        self.numbers = RegionNumbers(separate_memory)
        self.relations = RegionRelations(self.numbers.memories, self.numbers.regions)
        # the regions that an operation reads, and those that it writes
        self.regions: dict[Op, tuple[list[int], list[int]]] = {}
        self.outside: list[int] = []            # the region of effects elsewhere

    def of(self, ops: Sequence[Op]) -> StepEdges:
        """Return for each step the steps before it that it depends on."""
        key = tuple(ops)
        if key not in self.runs:
            edges = self.edges(ops)
            assert edges is not None
            self.runs[key] = edges
        return self.runs[key]

    def edges(self, ops: Sequence[Op]) -> StepEdges | None:
        if any([op.extra and is_ordered(op) for op in ops]):
            columns = touched(ops, separate_memory)
            return RegionRelations(columns.memories, columns.regions).edges(columns.reads, columns.writes)
        regions = self.regions
        reads, writes = zip(*[regions.get(op) or self.new_regions(op) for op in ops])
        return self.relations.edges(reads, writes)

    def new_regions(self, op: Op) -> tuple[list[int], list[int]]:
        """Return the numbers of the regions that an operation reads and writes, and note them."""
        reads, writes = self.numbers.of_operation(op)
        if op.acts_outside or not writes:
            self.outside = self.outside or [self.numbers.new("outside", OUTSIDE)]
            writes += self.outside
        self.regions[op] = reads, writes
        return reads, writes


# -- what steps touch --------------------------------------------------------------------------------------------------
Address = tuple[Hashable, int, int]               # a memory, and the partition and byte where a buffer begins in it
# effects elsewhere: prints, exchanges with other programs
OUTSIDE = Region("outside", 0, 0, 0, nest_of((), 1), 0, 1)


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
    """Return the regions that operations read and write, in columns. ``edges``: respect the order of the kernel: an
    operation with a label writes a region of that label, which the operations that must follow it read."""
    numbers = RegionNumbers(address_of)
    labels: dict[str, list[int]] = {}               # the regions that the latest operations with the label write
    columns = Touched(numbers.memories, numbers.regions, [], [])
    for op in ops:
        reads, side = numbers.of_operation(op)
        columns.reads.append(reads)
        columns.writes.append(side)
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
    tiles_accessed = type(op).tiles_accessed
    if tiles_accessed is not None:
        return tiles_accessed(op.__dict__)
    return [tile for _, tile in op.sources()], [tile for _, tile in op.targets()]


class RegionNumbers:
    """Numbers the regions of a program. ``of_buffers`` has the number of a buffer's pattern without symbols; buffers
    that begin at one address share the numbers. Other equal regions may have several numbers."""

    def __init__(self, address_of: Callable[[DeviceBuffer], Address]) -> None:
        self.address_of = address_of
        self.memories: list[Hashable] = []
        self.regions: list[Region] = []
        self.of_buffers: dict[DeviceBuffer, dict[Access, int]] = {}
        self.at_addresses: dict[Address, dict[Access, int]] = {}
        self.at_origin: dict[Access, Region] = {}       # where a buffer would begin at the begin of its memory

    def of_operation(self, op: Op) -> tuple[list[int], list[int]]:
        """Return the numbers of the regions that an operation reads, and of those that it writes."""
        of_buffers, sides = (None if op.symbols else self.of_buffers), ([], [])      # type: ignore[var-annotated]
        for tiles, side in zip(accessed(op), sides):
            for tile in tiles:
                if tile is not None:
                    of_buffer = of_buffers.get(tile.handle) if of_buffers is not None else None
                    number = None if of_buffer is None else of_buffer.get(tile.access)
                    side.append(self.of(tile, op) if number is None else number)
        return sides

    def of(self, tile: Tile, op: Op) -> int:
        """Return the number of the region of a tile."""
        access, address = tile.access, self.address_of(tile.handle)
        memory, partition, byte = address
        if op.symbols and access.symbols_used():
            return self.new(memory, region_of(access, "", partition, byte, op.symbols, op.ranges))
        of_buffer = self.of_buffers.get(tile.handle)
        if of_buffer is None:
            of_buffer = self.of_buffers[tile.handle] = (
                {} if memory is tile.handle else self.at_addresses.setdefault(address, {}))
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
