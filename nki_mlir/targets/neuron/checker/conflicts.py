# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds unordered accesses to one byte, at least one of which writes.

The module cuts a memory into cells at all bytes and partitions where an access begins or ends, so that each access
touches a cell completely or not at all. For a cell it stores the last write and the reads after it: an access that is
ordered after a write is ordered after everything that the write was ordered after. Cells with the same history share
it, so the time for an access hardly depends on the number of accesses before.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.targets.neuron.checker.footprint import ByteFootprint, Memory, runs_of
from nki_mlir.targets.neuron.checker.trace import Event

SPARSE = 64                     # with more histories for each cell, sorting is faster than counting all


class Conflict(NamedTuple):
    """Two unordered accesses to one byte, at least one of which writes."""

    first: Event
    then: Event
    writes: tuple[bool, bool]
    memory: Memory
    partition: int
    byte: int
    certain: bool


class MemoryAccess(NamedTuple):
    """A read or write of an event; it is complete when event ``number`` of ``lane`` is.

    ``by_data``: data choose the elements, within the footprint, of memory that cores share.
    """

    lane: int
    number: int
    event: Event
    footprint: ByteFootprint
    by_data: bool = False

    def certain(self, other: "MemoryAccess") -> bool:
        """Return whether ``shared`` of the footprints is exact, or both accesses are of one core, which must order
        elements that data choose."""
        if (self.by_data or other.by_data) and self.event.core != other.event.core:
            return False
        return self.footprint.certain(other.footprint)


class CellHistory:
    """The accesses to ``cells`` cells since one access last wrote all of them; the cells have the history's ``number``.

    Reads of a lane complete in order, so the last one represents all. Accesses whose bytes depend on data are
    stored one by one; a cell can have several such writes. The last access ``by_data`` of each lane is stored as well.
    """

    __slots__ = ("cells", "number", "reads", "writes")

    def __init__(self, cells: int, number: int, writes: tuple[MemoryAccess, ...] = (),
                 reads: dict[object, MemoryAccess] | None = None) -> None:
        self.cells, self.number, self.writes, self.reads = cells, number, writes, dict(reads) if reads else {}


class BytesOfRows(NamedTuple):
    """Rows of a memory, and bytes of each: runs of ``length`` at ``starts``, or all from ``low`` to ``high``."""

    first: int
    last: int
    low: int
    high: int
    starts: np.ndarray | None = None
    length: int = 0

    @property
    def edges(self) -> np.ndarray:
        if self.starts is None:
            return np.array([self.low, self.high])
        return np.concatenate([self.starts, self.starts + self.length])


def block_of(footprint: ByteFootprint) -> BytesOfRows:
    """Return the rows and bytes of a footprint; its partitions are the rows."""
    runs = runs_of(footprint.dims, footprint.size)
    starts = runs.starts
    if starts is None or runs.unbroken or footprint.symbolic is not None:
        return BytesOfRows(footprint.first, footprint.last, footprint.low, footprint.high)
    return BytesOfRows(footprint.first, footprint.last, footprint.low, footprint.high, starts + footprint.start,
                       runs.length)


def folded(footprint: ByteFootprint, pitch: int) -> BytesOfRows | None:
    """Return a block of HBM in rows of ``pitch`` bytes; None if it does not have the same bytes of each row."""
    first_row, low = divmod(footprint.low, pitch)
    last_row, high = divmod(footprint.high - 1, pitch)
    high += 1
    if first_row == last_row:
        block = block_of(footprint)
        starts = None if block.starts is None else block.starts - first_row * pitch
        return BytesOfRows(first_row, last_row, low, high, starts, block.length)
    outer, inner = footprint.dims[:1], footprint.dims[1:]
    if footprint.symbolic is None and outer[0][0] == pitch and outer[0][1] == last_row - first_row + 1:
        runs = runs_of(inner, footprint.size)
        if low + runs.extent != high:
            return None
        starts = None if runs.starts is None or runs.unbroken else runs.starts + low
        return BytesOfRows(first_row, last_row, low, high, starts, runs.length)
    if known_bytes(footprint) and not (low == 0 and high == pitch and footprint.exact):
        return None
    return BytesOfRows(first_row, last_row, 0, pitch)


def blocks_of(footprints: Sequence[ByteFootprint]) -> dict[ByteFootprint, BytesOfRows]:
    """Return the rows and bytes of each footprint of a memory.

    Tensors of HBM are folded at their rows if all accesses allow it: a tile of 128 rows is then one block, not 128
    runs.
    """
    pitches = {f.dims[0][0] for f in footprints if len(f.dims) > 1 and f.dims[0][1] > 1}
    if len(pitches) == 1 and footprints[0].memory[0] not in (SBUF, PSUM) and (pitch := pitches.pop()) > 0:
        blocks = {f: folded(f, pitch) for f in footprints}
        if all(blocks.values()):
            return {f: block for f, block in blocks.items() if block is not None}
    return {f: block_of(f) for f in footprints}


class Cells:
    """The cells of one memory by rows and columns, and their histories."""

    def __init__(self, footprints: Sequence[ByteFootprint]) -> None:
        self.blocks = blocks_of(footprints)
        rows = sorted({row for block in self.blocks.values() for row in (block.first, block.last + 1)})
        self.row_of = {row: k for k, row in enumerate(rows)}
        self.edges = np.unique(np.concatenate([block.edges for block in self.blocks.values()]))
        self.column_of = {edge: k for k, edge in enumerate(self.edges.tolist())}
        self.numbers = np.zeros((len(rows) - 1, len(self.edges)), np.int32)
        self.histories = [CellHistory(self.numbers.size, 0)]
        self.free: list[int] = []               # free numbers, whose histories have no cells any more
        self.renumbered = np.zeros(1, np.int32)     # the number of each history, except the ones that ``split`` changes
        self.touched: dict[ByteFootprint, tuple[slice, slice | np.ndarray, int]] = {}
        # By footprint, the history that all of its cells had, and their number; valid while the history has as many
        # cells.
        self.of_footprint: dict[ByteFootprint, tuple[CellHistory, int]] = {}

    def of(self, footprint: ByteFootprint) -> tuple[slice, slice | np.ndarray, int]:
        """Return the rows and columns of the cells that a footprint touches, and their number."""
        cells = self.touched.get(footprint)
        if cells is None:
            block = self.blocks[footprint]
            columns = self.columns_of(block)
            rows = slice(self.row_of[block.first], self.row_of[block.last + 1])
            width = columns.stop - columns.start if isinstance(columns, slice) else len(columns)
            cells = self.touched[footprint] = rows, columns, (rows.stop - rows.start) * width
        return cells

    def columns_of(self, block: BytesOfRows) -> slice | np.ndarray:
        if block.starts is None:
            return slice(self.column_of[block.low], self.column_of[block.high])
        begin = np.searchsorted(self.edges, block.starts)
        end = np.searchsorted(self.edges, block.starts + block.length)
        if (end - begin == 1).all():
            return begin
        return np.concatenate([np.arange(low, high) for low, high in zip(begin.tolist(), end.tolist())])

    def at(self, footprint: ByteFootprint) -> list[tuple[CellHistory, int]]:
        """Return the histories of the cells that a footprint touches, and how many of these cells each has."""
        history, cells = self.of_footprint.get(footprint, (None, 0))
        if history is not None and history.cells == cells:
            return [(history, cells)]
        rows, columns, cells = self.of(footprint)
        numbers = self.numbers[rows, columns].ravel()
        if len(self.histories) > SPARSE * cells:
            present, times = np.unique(numbers, return_counts=True)
            return [(self.histories[number], count) for number, count in zip(present.tolist(), times.tolist())]
        counts = np.bincount(numbers)
        nonzero = counts.nonzero()[0]
        return [(self.histories[number], count) for number, count in zip(nonzero.tolist(), counts[nonzero].tolist())]

    def begin(self, footprint: ByteFootprint, past: Sequence[tuple[CellHistory, int]], access: MemoryAccess) -> None:
        """Record a write of all cells that a footprint touches; ``past`` are their histories."""
        history, count = past[0]
        if len(past) == 1 and history.cells == count:
            history.writes, history.reads = (access,), {}
            self.of_footprint[footprint] = past[0]
            return
        for history, count in past:
            self.release(history, count)
        rows, columns, cells = self.of(footprint)
        history = self.fresh(cells, (access,))
        self.of_footprint[footprint] = history, cells
        self.numbers[rows, columns] = history.number

    def split(self, footprint: ByteFootprint, past: Sequence[tuple[CellHistory, int]]) -> list[CellHistory]:
        """Return the histories of the cells that a footprint touches, after splitting those that other cells share."""
        if all(count == history.cells for history, count in past):
            if len(past) == 1:
                self.of_footprint[footprint] = past[0]
            return [history for history, _ in past]
        parts, changed = [], []
        for history, count in past:
            part = history
            if count < history.cells:
                part = self.fresh(count, history.writes, history.reads)
                self.renumbered[history.number] = part.number
                changed.append(history.number)
                self.release(history, count)
            parts.append(part)
        rows, columns, cells = self.of(footprint)
        if len(parts) == 1:
            self.of_footprint[footprint] = parts[0], cells
            self.numbers[rows, columns] = parts[0].number
        else:
            self.numbers[rows, columns] = self.renumbered[self.numbers[rows, columns]]
        self.renumbered[changed] = changed
        return parts

    def fresh(self, cells: int, writes: tuple[MemoryAccess, ...], reads: dict[object, MemoryAccess] | None = None
              ) -> CellHistory:
        """Return a history with a new number."""
        if self.free:
            number = self.free.pop()
            history = self.histories[number] = CellHistory(cells, number, writes, reads)
            return history
        history = CellHistory(cells, len(self.histories), writes, reads)
        self.histories.append(history)
        if len(self.histories) > (size := len(self.renumbered)):
            self.renumbered = np.concatenate([self.renumbered, np.arange(size, 2 * size, dtype=np.int32)])
        return history

    def release(self, history: CellHistory, count: int) -> None:
        history.cells -= count
        if not history.cells:
            self.free.append(history.number)


def known_bytes(footprint: ByteFootprint) -> bool:
    """Return whether a footprint touches all of its cells."""
    return footprint.symbolic is None and runs_of(footprint.dims, footprint.size).starts is not None


class Conflicts:
    """Checks accesses in the order of the trace."""

    def __init__(self, footprints: dict[Memory, Sequence[ByteFootprint]]) -> None:
        self.memories = {memory: Cells(of) for memory, of in footprints.items()}

    def add(self, event: Event, footprint: ByteFootprint, writes: bool, by_data: bool = False) -> list[Conflict]:
        """Return the conflicts of an access with earlier ones, and record it."""
        memory = self.memories.get(footprint.memory)
        if memory is None:
            return []
        past = memory.at(footprint)
        lane, clock = event.lane, event.clock
        unordered: set[tuple[MemoryAccess, bool]] = set()
        ended = list(clock)
        ended[lane] = event.index - 1           # an engine completes its instructions in order
        for history, _ in past:
            for access in history.writes:
                if access.number > ended[access.lane]:
                    unordered.add((access, True))
            if writes:
                for access in history.reads.values():
                    if access.number > ended[access.lane]:
                        unordered.add((access, False))
        at = (event.queue_lane, event.queue_index) if event.queue_lane >= 0 else (lane, event.index)
        later = MemoryAccess(*at, event, footprint, by_data)
        conflicts = list(self.conflicts(later, writes, unordered)) if unordered else []
        self.join(memory, past, later, writes, ended)
        return conflicts

    @staticmethod
    def conflicts(later: MemoryAccess, writes: bool, unordered: set[tuple[MemoryAccess, bool]]) -> Iterator[Conflict]:
        """Yield the conflicts with those unordered accesses that overlap with an access, earlier events first."""
        def order(pair: tuple[MemoryAccess, bool]) -> tuple[int, ...]:
            access, wrote = pair
            return access.lane, access.number, wrote, access.footprint.first, access.footprint.low
        for access, wrote in sorted(unordered, key=order):
            other, footprint = access.event, access.footprint
            if other is not later.event and (at := footprint.shared(later.footprint)) is not None:
                yield Conflict(other, later.event, (wrote, writes), footprint.memory, *at, access.certain(later))

    @staticmethod
    def join(memory: Cells, past: Sequence[tuple[CellHistory, int]], access: MemoryAccess, writes: bool,
             ended: Sequence[int]) -> None:
        """Add an access to the history of the cells that it touches. ``ended`` has for each lane the last event that
        completes before the access."""
        footprint, by_data = access.footprint, access.by_data
        bytes_known = known_bytes(footprint)
        if writes and bytes_known and not by_data:
            memory.begin(footprint, past, access)
            return
        for part in memory.split(footprint, past):
            if not writes:
                part.reads[(access.lane, by_data) if bytes_known else access] = access
            elif not by_data:
                part.writes = (*part.writes, access)
            else:               # accesses that are ordered after this write are also ordered after those writes
                part.writes = (*(w for w in part.writes if not (
                    w.by_data and w.footprint is footprint and w.number <= ended[w.lane])), access)
