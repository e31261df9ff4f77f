# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Determines the instructions for which each instruction of straight-line code waits, and the queue of each transfer.

Engines and DMA queues are lanes: each completes its instructions in order. An instruction must wait for an instruction
on another lane that it depends on, unless its engine already knows that the other one is complete: from an earlier
wait, or from a wait whose producer knew it (vector clocks). The waits that no order implies remain.

16 DMA engines count up a queue's semaphore independently, and one may be far ahead. So that the semaphore shows which
transfers are complete, at most one transfer of a queue may be incomplete. A transfer goes into a queue whose last
transfer its engine knows to be complete, else into an unused queue, else into the least recently used queue, whose last
transfer it waits for.
"""

from collections.abc import Hashable, Sequence

from nki_mlir.dialects.access import HBM
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen.dependences import dependences_between, physical, touched
from nki_mlir.targets.neuron.codegen.records import InstructionStep

QUEUES = 8                      # queues of a group: an engine's transfers in one direction, of its 16 queues
Clock = list[int]               # by lane, how many of its instructions are known to be complete; 0 after its end


class SegmentWaits:
    """The waits of one segment, in columns by step: the ``engines`` that issue, the ``lanes`` that complete as number
    ``counts`` (from 1), and for which (lane, count) each waits. ``issuers``: for each step the engine that issues it,
    and the group of queues that it is put into (None: it is not a transfer); ``before``: what each step comes after,
    where that is known. Lane ``first_queue + QUEUES * group + n`` is queue n of a group, after the lanes of engines.

    A clock is shared until it changes. An engine's own instructions are complete before its next starts, so that its
    clock leaves them out; when a step is complete, it reports the clock of its engine, with both counts.
    """

    def __init__(self, steps: Sequence[InstructionStep], issuers: Sequence[tuple[int, int | None]], engines: int,
                 groups: int, before: Sequence[Sequence[int]] | None = None) -> None:
        self.steps, self.first_queue = steps, engines
        number = engines + QUEUES * groups
        self.clocks: list[Clock] = [[] for _ in range(engines)]             # shared with what its steps report
        self.totals = [0] * number
        self.reported: list[list[tuple[Clock, int, int]]] = [[] for _ in range(number)]     # clock, engine, its count
        self.used: list[list[int]] = [[] for _ in range(groups)]            # lanes of queues, the latest used last
        self.engines = [engine for engine, _ in issuers]
        self.lanes: list[int] = []
        self.counts: list[int] = []
        self.waits: list[list[tuple[int, int]]] = []
        for (engine, group), earlier in zip(issuers, before or dependences_of(steps, issuers)):
            self.add(engine, group, earlier)

    def add(self, engine: int, group: int | None, before: Sequence[int]) -> None:
        clock, lanes, counts, totals = self.clocks[engine], self.lanes, self.counts, self.totals
        end = len(clock)
        needed: dict[int, int] = {}
        for k in before:
            lane = lanes[k]
            if lane != engine and (lane >= end or counts[k] > clock[lane]) and counts[k] > needed.get(lane, 0):
                needed[lane] = counts[k]
        clock_after = self.merged(clock, needed) if needed else clock
        lane = engine
        if group is not None:
            lane = self.queue(group, clock_after)
            if totals[lane] > (clock[lane] if lane < end else 0):
                needed[lane] = totals[lane]
                clock_after = self.merged(clock_after, {lane: totals[lane]})
        self.clocks[engine] = clock_after
        waits = list(needed.items())
        if len(waits) > 1:
            waits = sorted([(p, count) for p, count in waits if not self.implied(p, count, needed)])
        self.waits.append(waits)
        totals[lane] = count = totals[lane] + 1
        self.reported[lane].append((clock_after, engine, totals[engine]))
        lanes.append(lane)
        counts.append(count)

    def merged(self, clock: Clock, needed: dict[int, int]) -> Clock:
        """Return a clock after some waits."""
        for lane, count in needed.items():
            if lane < len(clock) and clock[lane] >= count:      # an earlier wait implies the clock of that time
                continue
            other, engine, number = self.reported[lane][count - 1]
            if len(other) > len(clock):
                clock, other = other, clock
            clock = [a if a > b else b for a, b in zip(clock, other)] + clock[len(other):]
            for p, complete in ((engine, number), (lane, count)):
                if p >= len(clock):
                    clock += [0] * (p + 1 - len(clock))
                if complete > clock[p]:
                    clock[p] = complete
        return clock

    def implied(self, lane: int, count: int, needed: dict[int, int]) -> bool:
        """Return whether the wait for another lane implies the wait for a lane."""
        for other_lane, other_count in needed.items():
            if other_lane != lane:
                clock, engine, number = self.reported[other_lane][other_count - 1]
                if (lane < len(clock) and clock[lane] >= count) or (lane == engine and number >= count):
                    return True
        return False

    def queue(self, group: int, clock: Clock) -> int:
        """Return the lane of the queue that a transfer is put into, by what its engine will know after the waits it
        needs."""
        lanes, totals = self.used[group], self.totals
        idle_lanes = [lane for lane in lanes if lane < len(clock) and clock[lane] == totals[lane]]
        first_lane = self.first_queue + QUEUES * group
        lane = min(idle_lanes) if idle_lanes else first_lane + len(lanes) if len(lanes) < QUEUES else lanes[0]
        if lane in lanes:
            lanes.remove(lane)
        lanes.append(lane)
        return lane

    def unknown(self, engine: int, lane: int) -> bool:
        """Return whether a lane has completed events that the engine has not waited for."""
        clock = self.clocks[engine]
        return self.totals[lane] > (clock[lane] if lane < len(clock) else 0)


def group_of(step: InstructionStep) -> tuple[Engine, int]:
    """Return the group of queues of a transfer: an engine has separate queues for transfers to SBUF and to HBM."""
    (_, written), *_ = step.op.targets()
    return step.op.runs_on, int(written.space == HBM)


def dependences_of(steps: Sequence[InstructionStep], issuers: Sequence[tuple[int, int | None]]) -> list[list[int]]:
    """Return the steps that each step depends on by the physical bytes that it touches."""
    return dependences_between(touched([step.op for step in steps], physical), streams_of(issuers))


def streams_of(issuers: Sequence[tuple[int, int | None]]) -> list[Hashable]:
    """Return the streams whose steps complete in order: transfers of an engine may complete in any order."""
    return [engine if group is None else (k,) for k, (engine, group) in enumerate(issuers)]
