# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which instructions of straight-line code wait for which others.

Engines and DMA queues are lanes: each completes its instructions in order. An instruction must wait for one on another
lane that it depends on, unless its engine knows already that this one is complete: from an earlier wait, or from a wait
whose producer knew it (vector clocks). What is left are the waits that no order implies.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki_mlir.targets.neuron.codegen.dependences import Dependences, memory_sizes, physical, touched
from nki_mlir.targets.neuron.codegen.records import InstructionStep

Clock = tuple[int, ...]         # for each lane, how many of its instructions are known to be complete


@dataclass(slots=True)
class Planned:
    """A step with its place: ``engine`` issues it, ``lane`` completes it as number ``count`` (from 1)."""

    step: InstructionStep
    engine: int
    lane: int
    count: int
    waits: list[tuple[int, int]] = field(default_factory=list)      # (lane, count)


class SegmentWaits:
    """The waits of one segment. ``lanes``: for each step the lane that issues it and the one that completes it."""

    def __init__(self, steps: Sequence[InstructionStep], lanes: Sequence[tuple[int, int]], number: int) -> None:
        self.known: list[list[int]] = [[0] * number for _ in range(number)]         # by issuing lane
        self.totals = [0] * number
        self.reported: list[list[Clock]] = [[] for _ in range(number)]      # by lane and count: what completion tells
        self.planned: list[Planned] = []
        regions = [touched(step, physical) for step in steps]
        dependences = Dependences(memory_sizes(regions))
        for k, (step, (engine, lane)) in enumerate(zip(steps, lanes)):
            before = dependences.add(k, lane, *regions[k])
            self.add(step, engine, lane, before)

    def add(self, step: InstructionStep, engine: int, lane: int, before: Sequence[int]) -> None:
        known = self.known[engine]
        needed: dict[int, int] = {}
        for k in before:
            other = self.planned[k]
            # An engine's own instructions are complete before the next starts; a queue's are not.
            if other.lane != engine and other.count > known[other.lane]:
                needed[other.lane] = max(needed.get(other.lane, 0), other.count)
        clocks = {p: self.reported[p][count - 1] for p, count in needed.items()}
        waits = [(p, count) for p, count in needed.items()
                 if not any(clock[p] >= count for q, clock in clocks.items() if q != p)]
        for clock in clocks.values():
            known[:] = map(max, known, clock)
        self.totals[lane] += 1
        count = self.totals[lane]
        told = list(known)
        if lane == engine:
            known[lane] = told[lane] = count
        else:
            told[lane] = count
            if self.reported[lane]:
                told[:] = map(max, told, self.reported[lane][-1])
        self.reported[lane].append(tuple(told))
        self.planned.append(Planned(step, engine, lane, count, sorted(waits)))

    def unknown(self, engine: int, lane: int) -> bool:
        """Whether the engine has not yet waited for all that the lane does."""
        return self.known[engine][lane] < self.totals[lane]
