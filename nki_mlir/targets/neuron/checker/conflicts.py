# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Accesses of one byte, of which one at least writes, and which nothing orders.

A memory is cut into cells at all bytes and partitions where an access begins or ends, so that each access touches a
cell whole or not at all. Of a cell the last write is kept and what reads it after that: an access that comes after a
write comes after all that the write came after. Cells with the same history share it, which keeps the time for an
access near that of one look at it, whatever the number of accesses before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.targets.neuron.checker.footprint import ByteFootprint, Memory, runs_of
from nki_mlir.targets.neuron.checker.trace import Event


class Conflict(NamedTuple):
    """Two accesses of one byte, of which one at least writes, and which nothing orders."""

    first: Event
    then: Event
    writes: tuple[bool, bool]
    memory: Memory
    partition: int
    byte: int
    certain: bool


class MemoryAccess(NamedTuple):
    """An event reads or writes; it is complete when that number of ``lane`` is."""

    lane: int
    number: int
    event: Event
    footprint: ByteFootprint


class CellHistory:
    """What was done to ``cells`` cells since they were last written by one access alone.

    Reads of a lane complete in order, so that the last of them stands for all; those whose bytes data decide are kept
    one by one, as such writes are, of which a cell can have several.
    """

    __slots__ = ("cells", "reads", "writes")

    def __init__(self, cells: int, writes: Iterable[MemoryAccess] = (),
                 reads: dict[object, MemoryAccess] | None = None) -> None:
        self.cells, self.writes, self.reads = cells, tuple(writes), dict(reads or ())


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
    """What a footprint touches; its partitions are the rows."""
    runs = runs_of(footprint.dims, footprint.size)
    starts = runs.starts
    if starts is None or runs.unbroken or footprint.symbolic is not None:
        return BytesOfRows(footprint.first, footprint.last, footprint.low, footprint.high)
    return BytesOfRows(footprint.first, footprint.last, footprint.low, footprint.high, starts + footprint.start,
                       runs.length)


def folded(footprint: ByteFootprint, pitch: int) -> BytesOfRows | None:
    """The same where ``pitch`` bytes of HBM are a row; None where that is not rows of equal bytes."""
    first, low = divmod(footprint.low, pitch)
    last, high = divmod(footprint.high - 1, pitch)
    high += 1
    if first == last:
        block = block_of(footprint)
        starts = None if block.starts is None else block.starts - first * pitch
        return BytesOfRows(first, last, low, high, starts, block.length)
    outer, inner = footprint.dims[:1], footprint.dims[1:]
    if footprint.symbolic is None and outer[0][0] == pitch and outer[0][1] == last - first + 1:
        runs = runs_of(inner, footprint.size)
        if low + runs.extent != high:
            return None
        starts = None if runs.starts is None or runs.unbroken else runs.starts + low
        return BytesOfRows(first, last, low, high, starts, runs.length)
    if known_bytes(footprint) and not (low == 0 and high == pitch and footprint.exact):
        return None
    return BytesOfRows(first, last, 0, pitch)


def blocks_of(footprints: Sequence[ByteFootprint]) -> dict[ByteFootprint, BytesOfRows]:
    """What each footprint of a memory touches. Tensors of HBM are folded at their rows where all accesses keep to them:
    a tile of 128 rows is then one block, and not 128 runs."""
    pitches = {f.dims[0][0] for f in footprints if len(f.dims) > 1 and f.dims[0][1] > 1}
    if len(pitches) == 1 and footprints[0].memory[0] not in (SBUF, PSUM) and (pitch := pitches.pop()) > 0:
        blocks = {f: folded(f, pitch) for f in footprints}
        if all(blocks.values()):
            return {f: block for f, block in blocks.items() if block is not None}
    return {f: block_of(f) for f in footprints}


class Cells:
    """The cells of one memory, and which of them footprints touch."""

    def __init__(self, footprints: Sequence[ByteFootprint]) -> None:
        self.blocks = blocks_of(footprints)
        rows = sorted({row for block in self.blocks.values() for row in (block.first, block.last + 1)})
        self.row_of = {row: k for k, row in enumerate(rows)}
        self.edges = np.unique(np.concatenate([block.edges for block in self.blocks.values()]))
        self.column_of = {edge: k for k, edge in enumerate(self.edges.tolist())}
        self.columns = len(self.edges)
        self.touched: dict[ByteFootprint, Sequence[int]] = {}
        size = self.columns * (len(rows) - 1)
        self.histories = [CellHistory(size)] * size

    def of(self, footprint: ByteFootprint) -> Sequence[int]:
        """The numbers of the cells that a footprint touches."""
        known = self.touched.get(footprint)
        if known is None:
            block = self.blocks[footprint]
            columns = self.columns_of(block)
            rows = range(self.row_of[block.first], self.row_of[block.last + 1])
            if isinstance(columns, range) and len(rows) == 1:
                base = rows[0] * self.columns
                known = range(base + columns.start, base + columns.stop)
            else:
                known = [row * self.columns + column for row in rows for column in columns]
            self.touched[footprint] = known
        return known

    def columns_of(self, block: BytesOfRows) -> Sequence[int]:
        if block.starts is None:
            return range(self.column_of[block.low], self.column_of[block.high])
        first = np.searchsorted(self.edges, block.starts)
        last = np.searchsorted(self.edges, block.starts + block.length)
        if (last - first == 1).all():
            return list(first.tolist())
        return [k for low, high in zip(first.tolist(), last.tolist()) for k in range(low, high)]


def known_bytes(footprint: ByteFootprint) -> bool:
    """Whether it touches all of its cells."""
    return footprint.symbolic is None and runs_of(footprint.dims, footprint.size).starts is not None


class Conflicts:
    """Looks at accesses in the order of the trace."""

    def __init__(self, footprints: dict[Memory, Sequence[ByteFootprint]]) -> None:
        self.memories = {memory: Cells(of) for memory, of in footprints.items()}

    def add(self, event: Event, footprint: ByteFootprint, writes: bool) -> Iterator[Conflict]:
        """The conflicts of an access with those before it, which it then joins."""
        memory = self.memories.get(footprint.memory)
        if memory is None:
            return
        cells, histories = memory.of(footprint), memory.histories
        if isinstance(cells, range):
            counts = Counter(histories[cells.start:cells.stop])
        else:
            counts = Counter(map(histories.__getitem__, cells))
        lane, clock = event.lane, event.clock
        unordered: set[tuple[MemoryAccess, bool]] = set()
        for history in counts:
            for access in history.writes:
                if not (access.number < event.index if access.lane == lane else access.number <= clock[access.lane]):
                    unordered.add((access, True))
            for access in history.reads.values() if writes else ():
                if not (access.number < event.index if access.lane == lane else access.number <= clock[access.lane]):
                    unordered.add((access, False))
        if unordered:
            yield from self.conflicts(event, footprint, writes, unordered)
        at = (event.queue_lane, event.queue_index) if event.queue_lane >= 0 else (lane, event.index)
        self.join(memory, counts, MemoryAccess(*at, event, footprint), writes)

    @staticmethod
    def conflicts(event: Event, footprint: ByteFootprint, writes: bool, unordered: set[tuple[MemoryAccess, bool]]
                  ) -> Iterator[Conflict]:
        """Of accesses that nothing orders those that share a byte, those of earlier events first."""
        for access, wrote in sorted(unordered, key=lambda pair: (pair[0].lane, pair[0].number, pair[1])):
            other, theirs = access.event, access.footprint
            if other is not event and (at := theirs.shared(footprint)) is not None:
                yield Conflict(other, event, (wrote, writes), footprint.memory, *at, theirs.certain(footprint))

    @staticmethod
    def join(memory: Cells, counts: "Counter[CellHistory]", access: MemoryAccess, writes: bool) -> None:
        """Add an access to the history of the cells that it touches."""
        footprint, histories = access.footprint, memory.histories
        cells, known = memory.of(footprint), known_bytes(footprint)
        if writes and known:
            for history, count in counts.items():
                history.cells -= count
            fresh = CellHistory(len(cells), (access,))
            if isinstance(cells, range):
                histories[cells.start:cells.stop] = [fresh] * len(cells)
            else:
                for cell in cells:
                    histories[cell] = fresh
            return
        parts: dict[CellHistory, CellHistory] = {}
        for history, count in counts.items():
            part = history
            if count < history.cells:
                part = parts[history] = CellHistory(count, history.writes, history.reads)
                history.cells -= count
            if writes:
                part.writes = (*part.writes, access)
            else:
                part.reads[access.lane if known else access] = access
        if parts and isinstance(cells, range):
            histories[cells.start:cells.stop] = [parts.get(h, h) for h in histories[cells.start:cells.stop]]
        elif parts:
            for cell in cells:
                histories[cell] = parts.get(histories[cell], histories[cell])
