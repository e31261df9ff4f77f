# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers: how long each DMA engine takes for its part.

DMA engine k moves partitions 8k to 8k + 7 of the on-chip tile, so a tile of 64 partitions occupies half of the engines.
The engines divide transfers from HBM to HBM evenly. Each engine executes its parts in the order in which the
transfers were triggered, which approximates the round robin between queues, and then increments the semaphore. All
cores of a launch together are limited by the bandwidth of HBM.
"""

from dataclasses import dataclass
from functools import lru_cache
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
    loads: bool                 # whether it writes SBUF
    under_way: float = 0.0


class Transfers:
    """Compute the transfers of one program's operations, each distinct form once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.times: dict[object, TimedTransfer] = {}

    def of(self, op: Op) -> TimedTransfer:
        if isinstance(op, Collective):
            return self.work_out(op)                    # for collectives, the members also matter
        parts: list[object] = [type(op)]
        for tile in type(op).tiles_in(op.__dict__):
            if tile is not None:
                access = tile.access
                parts += (tile.space, access.dtype.name, access.dims, access.partition and access.partition.const)
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
    whose rows data select, it is the number of elements of the other tile."""
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
