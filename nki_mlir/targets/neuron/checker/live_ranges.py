# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Find the buffers that a program declares live, and check that each access is inside a live buffer."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from nki_mlir.dialects.isa.program import DeviceLiveRange, Program
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.checker.footprint import ByteFootprint
from nki_mlir.targets.neuron.checker.trace import Event

NEAR = 1 << 12                  # bytes of a row whose buffers are stored together


class BuffersOfAddress:
    """The buffers that occupy the same bytes, one after the other."""

    def __init__(self, space: str, buffers: list[DeviceLiveRange], lengths: dict[Engine, int]) -> None:
        self.space, self.bytes = space, buffers[0]
        self.parts = range(self.bytes.byte // NEAR, (self.bytes.byte + self.bytes.size) // NEAR + 1)
        spans: dict[Engine, list[tuple[int, int, DeviceLiveRange]]] = defaultdict(list)
        for live in buffers:
            for engine, begin, end in live.spans:
                spans[engine].append((begin, min(end, lengths[engine]), live))
        self.spans = {engine: sorted(of, key=lambda span: span[:2]) for engine, of in spans.items()}
        self.firsts = {engine: [begin for begin, _, _ in of] for engine, of in self.spans.items()}
        self.ends = {engine: list(accumulate((end for _, end, _ in of), max)) for engine, of in self.spans.items()}

        self.begun = 0                  # number of buffers that have begun and share a byte with these

    def at(self, event: Event) -> Sequence[DeviceLiveRange]:
        """Return the buffers that are live at an instruction."""
        engine, pc = event.engine, event.pc
        firsts = self.firsts.get(engine)
        if firsts is None:
            return ()
        ends, spans, k = self.ends[engine], self.spans[engine], bisect_right(firsts, pc) - 1
        live_buffers: list[DeviceLiveRange] = []
        while k >= 0 and ends[k] >= pc:
            _, end, live = spans[k]
            if pc <= end:
                live_buffers.append(live)
            k -= 1
        return live_buffers


class LiveBuffers:
    """The live ranges of a core's program, by address."""

    def __init__(self, program: Program) -> None:
        self.has_ranges = bool(program.live)
        lengths = {engine: len(stream) for engine, stream in program.streams.items()}
        lives_by_address: dict[tuple[object, ...], list[DeviceLiveRange]] = defaultdict(list)
        for live in program.live:
            lives_by_address[live.space, live.partition, live.partitions, live.byte, live.size].append(live)
        self.all = [BuffersOfAddress(lives[0].space, lives, lengths) for lives in lives_by_address.values()]
        self.buffers_by_part: dict[tuple[str, int], list[BuffersOfAddress]] = defaultdict(list)
        for buffers in self.all:
            for part in buffers.parts:
                self.buffers_by_part[buffers.space, part].append(buffers)
        self.containing: dict[ByteFootprint, list[BuffersOfAddress]] = {}
        self.sharing: dict[BuffersOfAddress, list[BuffersOfAddress]] = {}
        self.begun: dict[DeviceLiveRange, int] = {}     # how often each live range has begun
        self.last: dict[Engine, int] = {}               # number of the last instruction that each engine executed
        # counts of backward jumps, by the numbers of their two instructions
        self.jumps: dict[Engine, Counter[tuple[int, int]]] = defaultdict(Counter)

    def follow(self, event: Event) -> None:
        """Advance to the next event of the trace, and record backward jumps."""
        last_pc = self.last.get(event.engine, -1)
        if event.pc <= last_pc:
            self.jumps[event.engine][last_pc, event.pc] += 1
        self.last[event.engine] = event.pc

    def entered(self, live: DeviceLiveRange, engine: Engine) -> int:
        """Count how often an engine has entered a live range: once, and again for each backward jump to its begin or
        before it."""
        jumps = self.jumps.get(engine)
        if not jumps:
            return 1
        return 1 + sum(count for (start, target), count in jumps.items() for stream, _, end in live.spans
                       if stream is engine and target <= end < start)

    def at(self, event: Event, space: str) -> Iterator[DeviceLiveRange]:
        """Return the buffers that are live at an instruction."""
        for buffers in self.all:
            if buffers.space == space:
                yield from buffers.at(event)

    def containing_buffer(self, event: Event, footprint: ByteFootprint, space: str
               ) -> tuple[BuffersOfAddress, DeviceLiveRange] | None:
        """Return a live buffer that contains all bytes of an access, with the buffers at its address, or None."""
        candidates = self.containing.get(footprint)
        if candidates is None:
            close_buffers = self.buffers_by_part.get((space, footprint.low // NEAR), ())
            candidates = self.containing[footprint] = [buffers for buffers in close_buffers
                                                       if contains(buffers.bytes, footprint)]
        for buffers in candidates:
            for live in buffers.at(event):
                return buffers, live
        return None

    def count_begun(self, footprint: ByteFootprint) -> int:
        """Count the buffers whose live range has begun and that may overlap with a footprint."""
        candidates = self.containing.get(footprint)
        return candidates[0].begun if candidates else 0

    def begins(self, buffers: BuffersOfAddress, live: DeviceLiveRange, event: Event) -> bool:
        """Return whether an event is the first access of a buffer in this iteration of a loop, and no other live buffer
        shares a byte with the buffer."""
        entered = self.entered(live, event.engine)
        if self.begun.get(live, 0) >= entered:
            return False
        self.begun[live] = entered
        sharing = self.sharing.get(buffers)
        if sharing is None:
            close_buffers = dict.fromkeys(other for part in buffers.parts
                                          for other in self.buffers_by_part[buffers.space, part])
            sharing = self.sharing[buffers] = [
                other for other in close_buffers if share_bytes(buffers.bytes, other.bytes)]
        if any(buffer is not live for other in sharing for buffer in other.at(event)):
            return False
        for other in sharing:
            other.begun += 1
        return True


def contains(live: DeviceLiveRange, footprint: ByteFootprint) -> bool:
    return (live.partition <= footprint.first and footprint.last < live.partition + live.partitions
            and live.byte <= footprint.low and footprint.high <= live.byte + live.size)


def share_bytes(a: DeviceLiveRange, b: DeviceLiveRange) -> bool:
    return (a.partition < b.partition + b.partitions and b.partition < a.partition + a.partitions
            and a.byte < b.byte + b.size and b.byte < a.byte + a.size)
