# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The buffers that a program says are live, and whether what an instruction touches lies in one of them."""

from collections import defaultdict
from collections.abc import Iterator

from nki_mlir.dialects.isa.program import DeviceLiveRange, Program
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.checker.footprint import ByteFootprint
from nki_mlir.targets.neuron.checker.trace import Event

PLACES = 32                     # instructions of a stream whose live ranges are kept together


class LiveBuffers:
    """The live ranges of a core's program, by where they are in which stream."""

    def __init__(self, program: Program) -> None:
        self.known = bool(program.live)
        self.near: dict[tuple[Engine, str, int], list[tuple[int, int, DeviceLiveRange]]] = defaultdict(list)
        for live in program.live:
            for engine, first, last in live.spans:
                last = min(last, len(program.streams[engine]))
                for part in range(first // PLACES, last // PLACES + 1):
                    self.near[engine, live.space, part].append((first, last, live))
        self.found: dict[tuple[Engine, int, ByteFootprint], DeviceLiveRange | None] = {}
        self.begun: set[DeviceLiveRange] = set()

    def at(self, event: Event, space: str) -> Iterator[DeviceLiveRange]:
        """Those that are live at an instruction."""
        for first, last, live in self.near.get((event.engine, space, event.pc // PLACES), ()):
            if first <= event.pc <= last:
                yield live

    def around(self, event: Event, footprint: ByteFootprint, space: str) -> DeviceLiveRange | None:
        """One in which all lies that the instruction touches there."""
        key = event.engine, event.pc, footprint
        if key not in self.found:
            self.found[key] = next((live for live in self.at(event, space) if contains(live, footprint)), None)
        return self.found[key]

    def begins(self, live: DeviceLiveRange, event: Event) -> bool:
        """Whether an event is the first in a buffer that shares no byte with another one that is live there."""
        if live in self.begun:
            return False
        self.begun.add(live)
        return not any(other is not live and share_bytes(live, other) for other in self.at(event, live.space))


def contains(live: DeviceLiveRange, footprint: ByteFootprint) -> bool:
    return (live.partition <= footprint.first and footprint.last < live.partition + live.partitions
            and live.byte <= footprint.low and footprint.high <= live.byte + live.size)


def share_bytes(a: DeviceLiveRange, b: DeviceLiveRange) -> bool:
    return (a.partition < b.partition + b.partitions and b.partition < a.partition + a.partitions
            and a.byte < b.byte + b.size and b.byte < a.byte + a.size)
