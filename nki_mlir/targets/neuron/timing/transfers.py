# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers: how long each DMA engine moves its part of one, and when it begins.

DMA engine k moves partitions 8k to 8k + 7 of the on-chip tile, so a tile of 64 partitions occupies half of the engines.
The engines divide transfers from HBM to HBM evenly. Each engine executes its parts in the order in which the
transfers were triggered, which approximates the round robin between queues, and then increments the semaphore. All
cores of a launch together are limited by the bandwidth of HBM.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from math import prod

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.isa.program import descriptors
from nki_mlir.dialects.nisa.collectives import Collective
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.nisa.movement import DmaComputeOp, DmaTransposeOp
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Machine

TRANSPOSED_BYTES = (2, 4)       # sizes of elements that DMA engines transpose


@dataclass(frozen=True)
class TimedTransfer:
    """The work of one transfer. ``parts``: ns of each DMA engine. ``under_way``: ns that a collective takes."""

    parts: tuple[float, ...]
    hbm_bytes: int
    loads: bool                 # writes SBUF
    under_way: float = 0.0

    @cached_property
    def pieces(self) -> tuple[tuple[int, float], ...]:
        """Return runs of neighbouring DMA engines with equal parts: how many, and their ns."""
        return tuple([(len(list(engines)), ns) for ns, engines in groupby(self.parts)])


class Transfers:
    """Compute the transfers of one program's operations, each distinct form once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.times: dict[object, TimedTransfer] = {}

    def of(self, op: Op) -> TimedTransfer:
        if isinstance(op, Collective):
            return self.work_out(op)                    # members matter, too
        operands, parts = op.__dict__, [type(op)]            # type: tuple[dict[str, Tile | None], list[object]]
        for field in op.tiles:
            if (tile := operands[field.name]) is not None:
                access = tile.access
                parts += (tile.space, access.dtype, access.dims, access.partition and access.partition.const)
        key = tuple(parts)
        timed = self.times.get(key)
        if timed is None:
            timed = self.times[key] = self.work_out(op)
        return timed

    def work_out(self, op: Op) -> TimedTransfer:
        machine = self.machine
        tiles = [t for _, t in op.operands()]
        hbm = sum(elements * t.dtype.itemsize for t, elements in moved(op) if not t.on_chip)
        loads = any(t.on_chip for _, t in op.targets())
        if isinstance(op, Collective):
            return TimedTransfer((0.0,) * machine.dma_engines, hbm, loads, op.transfer_ns(machine))
        chip = [t for _, t in op.targets() if t.on_chip] or [t for _, t in op.sources() if t.on_chip]
        transposes = transpose_rate(op, machine)
        rate = float(machine.costs.dma.sum_rate) if isinstance(op, DmaComputeOp) else transposes or 1.0
        runs, nbytes = (None if transposes else descriptors(op)) or self.rows(tiles, chip)
        stores = all(tile.on_chip for _, tile in op.sources())
        apart, count = 0 if transposes else self.partition_step(tiles), machine.dma_engines
        if chip and chip[0].access.dims[0][0]:
            partitions, start = chip[0].partitions, chip[0].access.partition
            rows = rows_served(start.const if start is not None else 0, partitions, count, machine.partitions)
            descriptor_ns = machine.costs.dma.descriptor(nbytes, apart, stores, sum(map(bool, rows))) / rate
            took = {served: served * runs / partitions * descriptor_ns for served in rows}
            parts = tuple([took[served] for served in rows])
        else:
            parts = (runs / count * machine.costs.dma.descriptor(nbytes, apart, stores, count) / rate,) * count
        return TimedTransfer(parts, hbm, loads)

    @staticmethod
    def partition_step(tiles: list[Tile]) -> int:
        """Return the distance in HBM between the bytes of one partition and of the next; 0 if partitions do not define
        it."""
        steps = [t.access.dims[0][0] * t.dtype.itemsize for t in tiles if not t.on_chip and t.access.dims[0][1] > 1]
        return abs(steps[0]) if steps else 0

    @staticmethod
    def rows(tiles: list[Tile], chip: list[Tile]) -> tuple[int, int]:
        """Return the runs of a transfer that is not a copy, and their bytes: one run for each partition."""
        largest = max((prod(t.shape) * t.dtype.itemsize for t in chip or tiles), default=0)
        runs = chip[0].partitions if chip else 1
        return runs, max(1, largest // runs)


def moved(op: Op) -> list[tuple[Tile, int]]:
    """Return each tile of a transfer, with the number of elements that the transfer moves to or from it. For a table
    whose rows data select, it is the other tile's number."""
    if isinstance(op, DataAddressed):
        piece = prod(op.piece.shape)
        return [(tile, piece if tile is op.table else prod(tile.shape)) for _, tile in op.operands()]
    return [(tile, prod(tile.shape)) for _, tile in op.operands()]


def transpose_rate(op: Op, machine: Machine) -> float:
    """Return the share of their rate at which the DMA engines transpose a tile on its way to SBUF; 0.0 if the
    instruction is not a transpose, or its elements have a size that the DMA engines cannot transpose."""
    if not isinstance(op, DmaTransposeOp) or not op.dst.on_chip or op.dst.dtype.itemsize not in TRANSPOSED_BYTES:
        return 0.0
    dma = machine.costs.dma
    return float(dma.sbuf_transpose_rate if op.src.on_chip else dma.transpose_rate)


@lru_cache
def rows_served(start: int, count: int, engines: int, partitions: int) -> list[int]:
    """Return how many of a tile's partitions each DMA engine moves."""
    served = partitions // engines
    return [max(0, min(start + count, (k + 1) * served) - max(start, k * served)) for k in range(engines)]


# The times at which a transfer's first byte moved and its last byte had moved; the (time, number) of engines that
# finished; and the transfer that it waited for at the last engine (-1: none).
Moved = tuple[float, float, list[tuple[float, int]], int]


class Hbm:
    """The bandwidth of HBM that the cores of a launch share, and the time until which it is occupied."""

    def __init__(self, machine: Machine, cores: int) -> None:
        self.bytes_per_ns = machine.hbm_bytes_per_ns(cores)
        self.free = 0.0


class DmaEngines:
    """When each DMA engine of a core is free, and which event occupies it until then: ``runs`` are (number of
    neighbours, time, event)."""

    def __init__(self, machine: Machine, hbm: Hbm) -> None:
        self.count = machine.dma_engines
        self.hbm = hbm
        self.runs = [(self.count, 0.0, -1)]
        self.busy = 0.0

    def move(self, transfer: TimedTransfer, earliest: float, event: int) -> Moved:
        """Execute a transfer whose first byte can move at ``earliest``."""
        parts = transfer.pieces
        if len(parts) == len(self.runs) == 1:
            (_, ns), (_, free, holder) = parts[0], self.runs[0]
            begin = free if free > earliest else earliest
            self.busy += ns
            hbm, end = self.hbm, begin + ns
            hbm.free = occupied = (hbm.free if hbm.free > begin else begin) + transfer.hbm_bytes / hbm.bytes_per_ns
            if occupied > end:
                end = occupied
            self.runs = [(self.count, end, event)]
            return begin, end, [(end, self.count)], holder if free > earliest else -1
        pieces = self.pieces(parts)
        starts = [free if free > earliest else earliest for _, _, free, _ in pieces]
        ends = [start + piece[1] for start, piece in zip(starts, pieces)]
        slowest = ends.index(max(ends))
        end = self.through_hbm(transfer, min(starts), ends[slowest])
        _, _, free, preceding = pieces[slowest]
        finished: dict[float, int] = {}
        self.runs = []
        for k, (at, (number, ns, before, holder)) in enumerate(zip(ends, pieces)):
            if k == slowest:                           # the first one with the latest end
                self.add(1, end if ns else before, event if ns else holder)
                finished[end] = finished.get(end, 0) + 1
                at_last = self.runs[-1][1:]
                number -= 1
            if number:
                self.add(number, at if ns else before, event if ns else holder)
                finished[at] = finished.get(at, 0) + number
        self.busy += sum(transfer.parts) / self.count
        if len({time for _, time, _ in self.runs}) == 1:
            self.runs = [(self.count, *at_last)]
        return starts[slowest], end, sorted(finished.items()), preceding if free > earliest else -1

    def pieces(self, parts: Sequence[tuple[int, float]]) -> list[tuple[int, float, float, int]]:
        """Return runs of neighbours with equal parts that are free at one time: how many, the part, the time, the
        event."""
        pieces = []
        runs = iter(self.runs)
        remaining, free, holder = next(runs)
        for number, ns in parts:
            while number:
                if not remaining:
                    remaining, free, holder = next(runs)
                count = min(number, remaining)
                pieces.append((count, ns, free, holder))
                number, remaining = number - count, remaining - count
        return pieces

    def add(self, number: int, time: float, holder: int) -> None:
        """Append engines to ``runs``."""
        if self.runs and self.runs[-1][1:] == (time, holder):
            number += self.runs.pop()[0]
        self.runs.append((number, time, holder))

    def through_hbm(self, transfer: TimedTransfer, begin: float, end: float) -> float:
        """Return the end of a transfer, which is later if HBM has no bandwidth left."""
        hbm = self.hbm
        free = hbm.free
        hbm.free = free = (free if free > begin else begin) + transfer.hbm_bytes / hbm.bytes_per_ns
        return end if end > free else free
