# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans the waits of the instructions of a loop's body, for instructions of the same iteration and of the previous one.

Engines do not synchronize between iterations: each starts a step of the next iteration as soon as the steps that it
depends on are complete. A dependence on a step of any earlier iteration is a dependence on that step in the previous
iteration, which comes after the others.

Only one engine waits for a semaphore. There is a semaphore for each pair of a signaling and a waiting engine, and one
for each DMA queue. At the end of each iteration the waiting engine counts it down by the amount that an iteration adds,
so that the same values hold in all iterations. The engine that issues a store to HBM waits for it, since other engines
overwrite its source late. The engine that first needs a load waits for it. These engines signal to the others that a
transfer is complete.

The waits come from vector clocks, as in straight-line code (``segment_waits.py``), over as many iterations as it takes
until two of them have the same waits: the previous iteration then guarantees what an iteration relies on.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep, Loop, exchanges_data, nodes_in
from nki_mlir.targets.neuron.codegen.segment_waits import QUEUES

# most iterations to compare; if no two have equal waits, the engines synchronize after each
ITERATIONS = 6
Clock = NDArray[np.int64]       # for each lane, the time up to which its events are known to be complete


def straight_loops(code: Code) -> list[Loop]:
    """Return the register loops of several iterations whose bodies are straight-line code."""
    return [] if exchanges_data(code) else [
        node for node in nodes_in(code.body) if isinstance(node, Loop) and len(node.span) > 1 and node.body.nodes
        and all(isinstance(step, InstructionStep) for step in node.body.nodes)]


@dataclass(frozen=True)
class IterationEvent:
    """The completion of a step (its ``time`` is ``2 * number + 1``), or a relay before one (``2 * number``), of
    this iteration or of the previous one."""

    lane: int
    time: int
    before: bool


@dataclass
class PlannedIteration:
    """The events that each step waits for, and the events that relays wait for, by (time, engine)."""

    waits: list[list[IterationEvent]] = field(default_factory=list)
    relays: dict[tuple[int, int], list[IterationEvent]] = field(default_factory=dict)


class IterationWaits:
    """The waits of a loop's body. ``issuers``: for each step the engine that issues it, and the group of queues that it
    is put into (None: it is not a transfer); ``stores``: which groups write HBM; ``before`` and ``carried``: the steps
    that each comes after, of the same iteration and of the previous one. Lane ``engines + QUEUES * group + n`` is queue
    n of a group.

    ``plan`` is None if no two iterations have the same waits.
    """

    def __init__(self, steps: Sequence[InstructionStep], issuers: Sequence[tuple[int, int | None]], engines: int,
                 stores: Sequence[bool], before: Sequence[Sequence[int]], carried: Sequence[Sequence[int]]) -> None:
        self.steps, self.issuers, self.engines, self.stores = steps, issuers, engines, stores
        groups = len(stores)
        self.before, self.carried = before, carried
        self.length = 2 * len(steps)                # the number of times in an iteration
        self.used = [0] * groups                    # the number of queues in use
        self.waiting: dict[int, int] = {}           # the engine that waits for a queue, by the queue's lane
        self.lanes = self.choose_queues()
        number = engines + QUEUES * groups
        self.clocks: list[Clock] = [np.zeros(number, np.int64) for _ in range(engines)]
        self.latest = [0] * number                  # the last event of each lane
        self.times: list[list[int]] = [[] for _ in range(number)]          # times of the events of each lane
        self.reported: list[list[Clock]] = [[] for _ in range(number)]     # the clock that each event reports
        self.plan: PlannedIteration | None = None
        earlier = None
        for iteration in range(ITERATIONS):
            plan = self.planned(iteration)
            if plan == earlier:
                self.plan = plan
                break
            earlier = plan

    # -- queues --------------------------------------------------------------------------------------------------------
    def choose_queues(self) -> list[int]:
        """Return the lane of each step. Transfers for which one engine waits share queues."""
        waiting_engine: dict[int, int] = {}
        for earlier in (self.before, self.carried):
            for k, (engine, _) in enumerate(self.issuers):
                for other in earlier[k]:
                    waiting_engine.setdefault(other, engine)
        kinds: dict[tuple[int, int], list[int]] = defaultdict(list)         # numbers of transfers by group and engine
        for k, (engine, group) in enumerate(self.issuers):
            if group is not None:
                kinds[group, engine if self.stores[group] else waiting_engine.get(k, engine)].append(k)
        lanes = [engine for engine, _ in self.issuers]
        for group in range(len(self.used)):
            counts = {engine: len(transfers) for (g, engine), transfers in kinds.items() if g == group}
            for engine, queues in shares(counts, QUEUES).items():
                begin = self.engines + QUEUES * group + self.used[group]
                lines = range(begin, begin + queues)
                self.used[group] += queues
                self.waiting |= dict.fromkeys(lines, engine)
                for n, k in enumerate(kinds[group, engine]):
                    lanes[k] = lines[n % queues]
        return lanes

    # -- one iteration -------------------------------------------------------------------------------------------------
    def planned(self, iteration: int) -> PlannedIteration:
        plan = PlannedIteration()
        self.begin = iteration * self.length + 1
        for k, (engine, _) in enumerate(self.issuers):
            lane = self.lanes[k]
            needed: dict[int, int] = {}
            if lane != engine:                      # a queue has at most one transfer under way
                self.need(engine, lane, self.latest[lane], needed)
            for other in self.before[k]:
                self.need(engine, self.lanes[other], self.begin + 2 * other + 1, needed)
            for other in self.carried[k] if iteration else ():
                self.need(engine, self.lanes[other], self.begin - self.length + 2 * other + 1, needed)
            for queue in [candidate for candidate in needed if self.waiting.get(candidate, engine) != engine]:
                self.need(engine, *self.report_of(queue, needed.pop(queue), k, plan), needed)
            plan.waits.append(self.wait(engine, needed))
            self.complete(lane, self.begin + 2 * k + 1, self.clocks[engine])
            if lane == engine:
                self.clocks[engine][lane] = self.latest[lane]
        return plan

    def need(self, engine: int, lane: int, time: int, needed: dict[int, int]) -> None:
        """Record the time of a lane that an engine has to wait for, unless it is the engine's lane: earlier
        instructions of the engine are complete anyway."""
        if lane != engine and time > self.clocks[engine][lane]:
            needed[lane] = max(needed.get(lane, 0), time)

    def report_of(self, queue: int, time: int, k: int, plan: PlannedIteration) -> tuple[int, int]:
        """Return the event by which the engine that waits for a queue reports that a transfer is complete: a step, or
        a relay before step ``k``."""
        teller = self.waiting[queue]
        at = bisect_left(self.reported[teller], time, key=lambda clock: clock[queue])
        if at < len(self.times[teller]):
            return teller, self.times[teller][at]
        relay = self.begin + 2 * k
        waits = plan.relays.setdefault((2 * k, teller), [])
        if time > self.clocks[teller][queue]:
            waits += self.wait(teller, {queue: time})
        if self.latest[teller] == relay:            # the relay already reports on another queue
            self.times[teller].pop()
            self.reported[teller].pop()
        self.complete(teller, relay, self.clocks[teller])
        self.clocks[teller][teller] = relay
        return teller, relay

    def wait(self, engine: int, needed: dict[int, int]) -> list[IterationEvent]:
        """Return the waits that other waits do not imply."""
        if not needed:
            return []
        engine_clock = self.clocks[engine]
        clocks = {lane: self.reported[lane][bisect_left(self.times[lane], time)] for lane, time in needed.items()}
        waits = [IterationEvent(lane, (time - 1) % self.length, time < self.begin) for lane, time in needed.items()
                 if not any([clock[lane] >= time for other, clock in clocks.items() if other != lane])]
        for clock in clocks.values():
            np.maximum(engine_clock, clock, engine_clock)
        return sorted(waits, key=lambda event: (event.lane, event.time))

    def complete(self, lane: int, time: int, engine_clock: Clock) -> None:
        clock = engine_clock.copy()
        clock[lane] = self.latest[lane] = time
        self.times[lane].append(time)
        self.reported[lane].append(clock)


def shares(counts: dict[int, int], queues: int) -> dict[int, int]:
    """Return the number of queues for each kind of transfers: at least one, and at most one for each transfer of the
    kind."""
    total = sum(counts.values())
    shared = {kind: max(1, min(count, queues * count // total)) for kind, count in counts.items()}
    while sum(shared.values()) > queues:
        shared[max(shared, key=lambda kind: shared[kind])] -= 1
    return shared


class SignaledIteration:
    """The semaphores of a planned iteration: the ``amounts`` that an iteration adds to each, and the values at which
    its events are complete.

    A semaphore is named by the lane that signals and the engine that waits.
    """

    def __init__(self, waits: IterationWaits) -> None:
        assert waits.plan is not None
        self.plan = waits.plan
        awaited: dict[tuple[int, int], set[int]] = defaultdict(set)
        queues: Counter[int] = Counter()
        self.transfers: dict[tuple[int, int], int] = {}         # (lane, time) -> its number in the queue
        for k, (engine, group) in enumerate(waits.issuers):
            for event in self.plan.waits[k]:
                if event.lane < waits.engines:
                    awaited[event.lane, engine].add(event.time)
            if group is not None:
                lane = waits.lanes[k]
                queues[lane] += 1
                self.transfers[lane, 2 * k + 1] = queues[lane]
        self.events = {pair: sorted(times) for pair, times in awaited.items()}
        self.amounts = {(lane, waits.waiting[lane]): count * isa.COMPLETIONS for lane, count in queues.items()}
        self.amounts |= {pair: len(times) for pair, times in self.events.items()}
        self.signals: dict[tuple[int, int], list[int]] = defaultdict(list)      # the engines that wait for an event
        for (lane, engine), times in sorted(self.events.items()):
            for time in times:
                self.signals[lane, time].append(engine)

        # Engines that know nothing of the previous iteration of an engine that waits for them may be far ahead of it.
        self.ahead = [(lane, engine) for lane, engine in self.events
                      if waits.clocks[lane][engine] < waits.begin - waits.length]

    def may_overflow(self, iterations: int) -> bool:
        """Return whether a semaphore may exceed its limit in a loop of this many iterations, because an engine waits
        for nothing that bounds how far it is ahead."""
        return any(self.amounts[pair] * (iterations + 1) > isa.SEMAPHORE_MAX for pair in self.ahead)

    def value(self, event: IterationEvent, engine: int) -> int:
        """Return the value of the semaphore by which an engine knows that an event is complete. At the beginning of an
        iteration a semaphore counts from the beginning of the previous one."""
        transfer = self.transfers.get((event.lane, event.time))
        number = (bisect_left(self.events[event.lane, engine], event.time) + 1 if transfer is None else
                  transfer * isa.COMPLETIONS)
        return number if event.before else number + self.amounts[event.lane, engine]
