# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""When DMA engines and HBM move the data of transfers, with objects in place of columns: the reference of tests."""

from collections.abc import Sequence
from functools import cache
from itertools import groupby

from nki_mlir.machine import Machine
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer


@cache
def pieces_of(transfer: TimedTransfer) -> tuple[tuple[int, float], ...]:
    """Return runs of neighboring DMA engines with equal parts: how many, and their ns."""
    return tuple([(len(list(engines)), ns) for ns, engines in groupby(transfer.parts)])


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
    neighbors, time, event)."""

    def __init__(self, machine: Machine, hbm: Hbm) -> None:
        self.count = machine.dma_engines
        self.hbm = hbm
        self.runs = [(self.count, 0.0, -1)]
        self.busy = 0.0

    def move(self, transfer: TimedTransfer, earliest: float, event: int) -> Moved:
        """Execute a transfer whose first byte can move at ``earliest``."""
        parts = pieces_of(transfer)
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
        """Return runs of neighbors with equal parts that are free at one time: how many, the part, the time, the
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
