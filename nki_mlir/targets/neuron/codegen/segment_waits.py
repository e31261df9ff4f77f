# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which instructions of straight-line code wait for which others, and which queue each transfer is put into.

Engines and DMA queues are lanes: each completes its instructions in order. An instruction must wait for one on another
lane that it depends on, unless its engine knows already that this one is complete: from an earlier wait, or from a wait
whose producer knew it (vector clocks). What is left are the waits that no order implies.

A queue's semaphore is counted up by 16 DMA engines, each for itself, of which one may be far ahead. So that it says
which transfers are complete, a queue has at most one that is not known to be: a transfer goes into a queue whose last
one its engine knows to be complete, else into one that was not used yet, else into the one that was used longest ago,
whose last it waits for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nki_mlir.dialects.access import HBM
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen.dependences import Dependences, physical, touched
from nki_mlir.targets.neuron.codegen.records import InstructionStep

QUEUES = 8                      # queues of a group: an engine's transfers in one direction, of its 16 queues
Clock = NDArray[np.int64]       # for each lane, how many of its instructions are known to be complete


@dataclass(slots=True)
class Planned:
    """A step with its place: ``engine`` issues it, ``lane`` completes it as number ``count`` (from 1)."""

    step: InstructionStep
    engine: int
    lane: int
    count: int
    waits: list[tuple[int, int]] = field(default_factory=list)      # (lane, count)


class SegmentWaits:
    """The waits of one segment. ``issuers``: for each step the engine that issues it, and the group of queues that it
    is put into (None: it is no transfer); ``before``: what each step comes after, where that is known. Lane
    ``engines + QUEUES * group + n`` is queue n of a group.
    """

    def __init__(self, steps: Sequence[InstructionStep], issuers: Sequence[tuple[int, int | None]], engines: int,
                 groups: int, before: Sequence[Sequence[int]] | None = None) -> None:
        self.engines = engines
        number = engines + QUEUES * groups
        self.known: list[Clock] = [np.zeros(number, np.int64) for _ in range(engines)]
        self.totals = [0] * number
        self.reported: list[list[Clock]] = [[] for _ in range(number)]      # by lane and count: the clock then
        self.planned: list[Planned] = []
        self.used: list[list[int]] = [[] for _ in range(groups)]            # lanes of queues, the latest used last
        for step, (engine, group), earlier in zip(steps, issuers, before or dependences_of(steps, issuers)):
            self.add(step, engine, group, earlier)

    def add(self, step: InstructionStep, engine: int, group: int | None, before: Sequence[int]) -> None:
        engine_clock, planned = self.known[engine], self.planned
        needed: dict[int, int] = {}
        for k in before:
            predecessor = planned[k]
            lane, count = predecessor.lane, predecessor.count
            # An engine's own instructions are complete before the next starts; a queue's are not.
            if lane != engine and count > engine_clock[lane] and count > needed.get(lane, 0):
                needed[lane] = count
        lane = engine if group is None else self.queue(engine, group, needed)
        if lane != engine and self.totals[lane] > engine_clock[lane]:
            needed[lane] = self.totals[lane]
        waits = list(needed.items())
        if waits:
            clocks = {p: self.reported[p][count - 1] for p, count in waits}
            if len(waits) > 1:
                waits = sorted([(p, count) for p, count in waits
                                if not any([clock[p] >= count for q, clock in clocks.items() if q != p])])
            for clock in clocks.values():
                np.maximum(engine_clock, clock, out=engine_clock)
        self.totals[lane] += 1
        count = self.totals[lane]
        reported = engine_clock.copy()
        reported[lane] = count
        if lane == engine:
            engine_clock[lane] = count
        self.reported[lane].append(reported)
        planned.append(Planned(step, engine, lane, count, waits))

    def queue(self, engine: int, group: int, needed: Mapping[int, int]) -> int:
        """Return the lane of the queue that a transfer is put into, by what its engine will know after the waits it
        needs."""
        lanes = self.used[group]
        clock = self.known[engine].copy()
        for p, count in needed.items():
            np.maximum(clock, self.reported[p][count - 1], out=clock)
        first_lane = self.engines + QUEUES * group
        idle_lanes = [lane for lane in lanes if clock[lane] == self.totals[lane]]
        lane = min(idle_lanes) if idle_lanes else first_lane + len(lanes) if len(lanes) < QUEUES else lanes[0]
        if lane in lanes:
            lanes.remove(lane)
        lanes.append(lane)
        return lane

    def unknown(self, engine: int, lane: int) -> bool:
        """Return whether the engine has not yet waited for all that the lane does."""
        return bool(self.known[engine][lane] < self.totals[lane])


def group_of(step: InstructionStep) -> tuple[Engine, int]:
    """Return the group of queues of a transfer: an engine has queues for those that write SBUF and others for those
    that write HBM."""
    (_, written), *_ = step.op.targets()
    return step.op.runs_on, int(written.space == HBM)


def dependences_of(steps: Sequence[InstructionStep], issuers: Sequence[tuple[int, int | None]]) -> Iterator[list[int]]:
    """Yield the steps that each step depends on by the physical bytes that it touches."""
    dependences = Dependences(touched(steps, physical))
    for k, (engine, group) in enumerate(issuers):
        # Transfers of an engine may complete in any order.
        yield dependences.add(k, engine if group is None else (k,))
