# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers: how long each DMA engine has its part of one, and when it gets to it.

DMA engine k moves partitions 8k to 8k + 7 of the tile on chip; what is in HBM on both sides is divided evenly. Each
engine does its parts in the order in which transfers were triggered, which stands for the round robin between queues,
and then adds one to the semaphore. All together get no more than the core's share of HBM.
"""

from math import prod
from typing import NamedTuple

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.isa.program import descriptors
from nki_mlir.dialects.nisa.collectives import Collective
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Machine


class TimedTransfer(NamedTuple):
    """``parts``: ns for each DMA engine; ``even``: they are all the same. ``under_way``: ns that a collective takes."""

    parts: tuple[float, ...]
    even: bool
    hbm_bytes: int
    loads: bool                 # writes SBUF
    under_way: float = 0.0


class Transfers:
    """The transfers of one program's operations, each distinct form worked out once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[object, TimedTransfer] = {}

    def of(self, op: Op) -> TimedTransfer:
        operands = op.operands()
        key = (type(op), *((t.space, t.access.dtype, t.access.dims,
                            t.access.partition.const if t.access.partition is not None else -1) for _, t in operands))
        if isinstance(op, Collective):
            return self.work_out(op)                    # members matter, too
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.work_out(op)
        return found

    def work_out(self, op: Op) -> TimedTransfer:
        machine = self.machine
        tiles = [t for _, t in op.operands()]
        hbm = sum(prod(t.shape) * t.dtype.itemsize for t in tiles if not t.on_chip)
        loads = any(t.on_chip for _, t in op.targets())
        if isinstance(op, Collective):
            return TimedTransfer((0.0,) * machine.dma_engines, True, hbm, loads, op.transfer_ns(machine))
        chip = [t for _, t in op.targets() if t.on_chip] or [t for _, t in op.sources() if t.on_chip]
        runs, nbytes = descriptors(op) or self.rows(tiles, chip)
        each = machine.costs.dma.descriptor(nbytes)
        if chip and chip[0].access.dims[0][0]:
            rows = self.rows_of_engines(chip[0])
            parts = tuple(count * runs / chip[0].partitions * each for count in rows)
        else:
            parts = (runs / machine.dma_engines * each,) * machine.dma_engines
        return TimedTransfer(parts, len(set(parts)) == 1, hbm, loads)

    @staticmethod
    def rows(tiles: list[Tile], chip: list[Tile]) -> tuple[int, int]:
        """Runs and their bytes of a transfer that is no copy: what each partition gets is one run."""
        largest = max((prod(t.shape) * t.dtype.itemsize for t in chip or tiles), default=0)
        runs = chip[0].partitions if chip else 1
        return runs, max(1, largest // runs)

    def rows_of_engines(self, tile: Tile) -> list[int]:
        """How many of the tile's partitions each DMA engine serves."""
        served = self.machine.partitions // self.machine.dma_engines
        first = tile.access.partition.const if tile.access.partition is not None else 0
        end = first + tile.partitions
        return [max(0, min(end, (k + 1) * served) - max(first, k * served)) for k in range(self.machine.dma_engines)]


class Moved(NamedTuple):
    """When a transfer's first byte moved and its last one had; the (time, number) of engines that finished; and which
    transfer it waited for at the engine that was last (-1: none)."""

    begin: float
    end: float
    finished: list[tuple[float, int]]
    behind: int


class DmaEngines:
    """When each DMA engine of a core is free, and who has it until then."""

    def __init__(self, machine: Machine) -> None:
        self.count = machine.dma_engines
        self.bytes_per_ns = float(machine.costs.dma.hbm_bytes_per_ns)
        self.level = True                           # all are free at one time, which is ``at``
        self.at, self.holder = 0.0, -1
        self.free = [0.0] * self.count
        self.holders = [-1] * self.count
        self.hbm_free = 0.0
        self.busy = 0.0

    def move(self, transfer: TimedTransfer, first: float, event: int) -> Moved:
        """Carry out a transfer whose first byte can move at ``first``."""
        if transfer.even and self.level:
            begin = self.at if self.at > first else first
            behind = self.holder if self.at > first else -1
            end = begin + transfer.parts[0]
            self.busy += transfer.parts[0]
            end = self.through_hbm(transfer, begin, end)
            self.at, self.holder = end, event
            return Moved(begin, end, [(end, self.count)], behind)
        if self.level:
            self.free, self.holders = [self.at] * self.count, [self.holder] * self.count
        ends = [(f if f > first else first) + ns for f, ns in zip(self.free, transfer.parts)]
        last = max(range(self.count), key=ends.__getitem__)
        begin = max(self.free[last], first)
        behind = self.holders[last] if self.free[last] > first else -1
        ends[last] = self.through_hbm(transfer, min(max(f, first) for f in self.free), ends[last])
        for k, ns in enumerate(transfer.parts):
            if ns:
                self.free[k], self.holders[k] = ends[k], event
        self.busy += sum(transfer.parts) / self.count
        self.level = min(self.free) == max(self.free)
        self.at, self.holder = self.free[last], self.holders[last]
        finished: dict[float, int] = {}
        for end in sorted(ends):
            finished[end] = finished.get(end, 0) + 1
        return Moved(begin, ends[last], list(finished.items()), behind)

    def through_hbm(self, transfer: TimedTransfer, begin: float, end: float) -> float:
        """The end of a transfer, later where HBM has no more to give."""
        self.hbm_free = max(self.hbm_free, begin) + transfer.hbm_bytes / self.bytes_per_ns
        return max(end, self.hbm_free)
