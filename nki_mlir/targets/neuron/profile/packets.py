# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of transfers that the DMA engines move, and their times, which add up to those of the timed machine."""

from typing import NamedTuple

from nki_mlir.targets.neuron.timing.machine import TimedMachine
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer


class Packets(NamedTuple):
    """Columns: a transfer's slice; the first of some neighboring DMA engines and their number; the begin and the end
    of each engine's part in ns from the launch; the share of the bytes that each engine moves."""

    slice: list[int]
    first: list[int]
    engines: list[int]
    begin: list[float]
    end: list[float]
    share: list[float]

    def add(self, number: int, engines: int, begin: float, end: float, share: float) -> None:
        """Append parts of one transfer that the first DMA engines move in the same time."""
        self.slice.append(number)
        self.first.append(0)
        self.engines.append(engines)
        self.begin.append(begin)
        self.end.append(end)
        self.share.append(share)


def packets_of(run: TimedMachine, slice_of: dict[int, int]) -> Packets:
    """Return the packets of a finished run, by the slices of its transfers' events."""
    packets = Packets([], [], [], [], [], [])
    record, launch = run.record, float(run.machine.costs.control.launch_ns)
    free = {core: [0.0] * run.machine.dma_engines for core in run.cores}
    # the DMA engines move transfers in the order in which they were triggered
    for event, movement in record.movements.items():
        agent = run.agents[record.agent[event]]
        transfer = agent.stream.details[record.position[event]]
        assert isinstance(transfer, TimedTransfer)
        free_at = free[agent.core]
        if transfer.under_way:                                  # links between devices move a collective
            continue
        parts = transfer.parts
        if max(free_at) <= movement.first and parts[0] and parts.count(parts[0]) == len(parts) == len(free_at):
            # each engine moves the same number of bytes, from the same time on
            free_at[:] = [movement.end] * len(free_at)
            packets.add(slice_of[event], len(free_at), launch + movement.first, launch + movement.end,
                        parts[0] / sum(parts))
            continue
        begins = [max(time, movement.first) for time in free_at]
        ends = [begin + ns for begin, ns in zip(begins, transfer.parts)]
        last_engine, even = ends.index(max(ends)), len(set(zip(begins, transfer.parts))) == 1
        for k, ns in enumerate(transfer.parts):
            if even or k == last_engine:
                ends[k] = movement.end                          # HBM may have been at its limit
            if ns:
                free_at[k] = ends[k]
        total = sum(transfer.parts)
        for k, ns in enumerate(transfer.parts):
            if not ns:
                continue
            row = slice_of[event], launch + begins[k], launch + ends[k], ns / total
            if packets.slice and row == (packets.slice[-1], packets.begin[-1], packets.end[-1], packets.share[-1]) \
                    and packets.first[-1] + packets.engines[-1] == k:
                packets.engines[-1] += 1
                continue
            packets.slice.append(row[0])
            packets.first.append(k)
            packets.engines.append(1)
            for column, value in zip((packets.begin, packets.end, packets.share), row[1:]):
                column.append(value)
    return packets
