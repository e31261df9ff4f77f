# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""When the DMA engines of each core, and HBM, move the data of transfers. The methods also run as machine code."""

from collections.abc import Collection
from math import inf
from typing import Any

from nki_mlir.machine import Machine
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer
from nki_mlir.targets.runtime.compiled_class import float_array, int_array, new_array, new_floats

COLUMNS = ("parts", "mean_part", "hbm", "hbm_bytes", "under_way")


def transfer_columns(transfers: Collection[TimedTransfer], machine: Machine, cores: int) -> dict[str, Any]:
    """Return the data of transfers as arrays, for programs that run on ``cores`` cores at the same time."""
    rate = machine.hbm_bytes_per_ns(cores)
    return {"parts": float_array([transfer.parts for transfer in transfers]).reshape(-1),
            "mean_part": float_array([sum(transfer.parts) / machine.dma_engines for transfer in transfers]),
            "hbm": float_array([transfer.hbm_bytes / rate for transfer in transfers]),
            "hbm_bytes": int_array([transfer.hbm_bytes for transfer in transfers]),
            "under_way": float_array([transfer.under_way for transfer in transfers])}


class DmaEngines:
    """By transfer: ``parts``, the ns of each DMA engine, and ``mean_part``; ``hbm_bytes``, and ``hbm`` ns for them;
    ``under_way``, the ns that a collective takes. By core and DMA engine: when it is ``dma_free``, and the event that
    occupies it until then (``holders``; -1: none). ``hbm_free``: when HBM is free. By core: ``moved_bytes`` to and from
    HBM, and ``moving_ns``, the mean time that its DMA engines move data.

    Of the last transfer: when its first byte moved (``begin``), which event it waited for at the last DMA engine
    (``preceding``; -1: none), when each engine had moved its part (``ends``), and whether all had moved theirs at once.
    """

    dma_engines: int
    parts: list[float]
    mean_part: list[float]
    hbm: list[float]
    hbm_bytes: list[int]
    under_way: list[float]
    dma_free: list[float]
    holders: list[int]
    hbm_free: float
    moved_bytes: list[int]
    moving_ns: list[float]
    begin: float
    preceding: int
    ends: list[float]
    at_once: bool

    def __init__(self, columns: dict[str, Any], machine: Machine, cores: int) -> None:
        """``columns``: the data of the transfers, as ``transfer_columns`` returns them."""
        count = self.dma_engines = machine.dma_engines
        for name in COLUMNS:
            setattr(self, name, columns[name])
        self.dma_free, self.holders, self.hbm_free = new_floats(cores * count), new_array(cores * count, -1), 0.0
        self.moved_bytes, self.moving_ns = new_array(cores), new_floats(cores)
        self.begin, self.preceding, self.ends, self.at_once = 0.0, -1, new_floats(count), True

    def move(self, core: int, transfer: int, earliest: float, event: int) -> float:
        """Move a transfer whose first byte can move at ``earliest``, and return when its last byte has moved. Engines
        that are free at one time and move equal parts are all occupied until that end; else only the slowest is, and
        the others until they have moved their parts."""
        engines, first, of_core = self.dma_engines, transfer * self.dma_engines, core * self.dma_engines
        self.moved_bytes[core] += self.hbm_bytes[transfer]
        self.begin, self.preceding, self.at_once = earliest, -1, True
        if self.under_way[transfer] > 0.0:
            return earliest + self.under_way[transfer]
        move_equal_parts = True
        for k in range(1, engines):
            if self.parts[first + k] != self.parts[first] or self.dma_free[of_core + k] != self.dma_free[of_core]:
                move_equal_parts = False
        least, slowest = inf, 0
        for k in range(engines):
            begin = max(earliest, self.dma_free[of_core + k])
            least = min(least, begin)
            self.ends[k] = begin + self.parts[first + k]
            if self.ends[k] > self.ends[slowest]:
                slowest = k
        if self.dma_free[of_core + slowest] > earliest:
            self.begin, self.preceding = self.dma_free[of_core + slowest], self.holders[of_core + slowest]
        self.hbm_free = max(least, self.hbm_free) + self.hbm[transfer]
        end = max(self.ends[slowest], self.hbm_free)
        all_free_at_once = True
        for k in range(engines):
            if move_equal_parts or k == slowest:
                self.ends[k] = end
            if self.ends[k] != end:
                self.at_once = False
            if move_equal_parts or self.parts[first + k] > 0.0:
                self.dma_free[of_core + k], self.holders[of_core + k] = self.ends[k], event
            if self.dma_free[of_core + k] != self.dma_free[of_core]:
                all_free_at_once = False
        if all_free_at_once:
            holder = self.holders[of_core + slowest]
            for k in range(engines):
                self.holders[of_core + k] = holder
        self.moving_ns[core] += self.parts[first] if move_equal_parts else self.mean_part[transfer]
        return end
