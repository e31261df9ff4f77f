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
from itertools import pairwise

import numpy as np

from nki_mlir.dialects.access import HBM
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen.dependence_scan import StepEdges, joined
from nki_mlir.targets.neuron.codegen.dependences import dependences_between, physical, touched
from nki_mlir.targets.neuron.codegen.records import InstructionStep
from nki_mlir.targets.runtime.compiled_class import (
    CompiledClass,
    int_array,
    longer,
    new_array,
    unset_array,
    with_lists,
)

# queues of a group, which has an engine's transfers in one direction: half of its 16 queues
QUEUES = 8
PAYS_OFF = 3_000                # steps whose waits Python determines in the time in which the method compiles


class WaitScan:
    """Walks over the steps of a segment in order. An engine, or a queue that was used, is a lane; ``number`` lanes are
    in use of at most ``most``. By step: its engine (``issuers``), its group of queues (``groups``; -1: no transfer),
    what it comes after (``before``); its lane, and the ``counts`` of its lane's steps up to it. By lane: ``totals``,
    its steps so far, and the ``latest`` one; ``names``, its number outside.

    A clock tells for each lane how many of its steps are known to be complete. ``clocks``: by engine, its row of
    ``rows``, which has ``row_count`` rows, and room for ``capacity``. A row is shared until it changes. An engine's own
    steps are complete before its next starts, so that its clock leaves them out; when a step is complete, it reports
    the clock of its engine (``reports``), and how many steps of the engine had started (``issued``).

    ``needed``: the ``needed_count`` lanes for which a step must wait, in which ``needed_steps``. ``recent``: by group,
    the ``used`` lanes of its queues, the latest used last. ``waits``: for which step each step waits, from
    ``waits_start`` on. ``signals``: by step, whether others wait for it.
    """

    count: int
    at: int
    engines: int
    most: int
    number: int
    issuers: list[int]
    groups: list[int]
    before_start: list[int]
    before: list[int]
    lanes: list[int]
    counts: list[int]
    totals: list[int]
    latest: list[int]
    names: list[int]
    clocks: list[int]
    rows: list[int]
    row_count: int
    capacity: int
    reports: list[int]
    issued: list[int]
    needed: list[int]
    needed_count: int
    needed_steps: list[int]
    recent: list[int]
    used: list[int]
    waits_start: list[int]
    waits: list[int]
    signals: list[int]

    def __init__(self, issuers: Sequence[tuple[int, int | None]], engines: int, groups: int, before: StepEdges) -> None:
        self.count, self.at, self.engines, self.number = len(issuers), 0, engines, engines
        self.most = engines + QUEUES * groups
        self.issuers = int_array([engine for engine, _ in issuers])
        self.groups = int_array([-1 if group is None else group for _, group in issuers])
        self.before_start, self.before = before.starts, before.steps
        self.lanes, self.counts = unset_array(self.count), unset_array(self.count)
        self.totals, self.latest, self.names = new_array(self.most), new_array(self.most), new_array(self.most)
        self.names[:engines] = range(engines)
        self.clocks, self.row_count, self.capacity = new_array(engines), 1, self.count // 4 + 16
        self.rows = new_array(self.capacity * self.most)
        self.reports, self.issued = unset_array(self.count), unset_array(self.count)
        self.needed, self.needed_count, self.needed_steps = new_array(self.most), 0, new_array(self.most, -1)
        self.recent, self.used = new_array(QUEUES * groups), new_array(groups)
        self.waits_start = new_array(self.count + 1)
        self.waits = unset_array(len(self.before) + self.count)
        self.signals = new_array(self.count)

    def advance(self) -> None:
        """Walk on while there is room for clocks."""
        while self.at < self.count and self.row_count < self.capacity:
            self.add(self.at)
            self.at += 1

    def add(self, k: int) -> None:
        engine = self.issuers[k]
        clock = self.clocks[engine]
        row = clock * self.most
        for at in range(self.before_start[k], self.before_start[k + 1]):
            other = self.before[at]
            lane = self.lanes[other]
            if lane != engine and self.counts[other] > self.rows[row + lane]:
                self.need(lane, other)
        after = clock
        for n in range(self.needed_count):
            after = self.merged(after, clock, self.needed[n])
        lane = engine
        if self.groups[k] >= 0:
            lane = self.queue(self.groups[k], after)
            if self.totals[lane] > self.rows[row + lane]:
                self.need(lane, self.latest[lane])
                after = self.merged(after, clock, lane)
        self.clocks[engine] = after
        self.note_waits(k)
        self.totals[lane] += 1
        self.lanes[k], self.counts[k] = lane, self.totals[lane]
        self.reports[k], self.issued[k], self.latest[lane] = after, self.totals[engine], k
        if lane >= self.engines:
            self.signals[k] = 1

    def need(self, lane: int, step: int) -> None:
        """Record that the current step must wait for a step of a lane."""
        if self.needed_steps[lane] < 0:
            self.needed[self.needed_count] = lane
            self.needed_count += 1
        if self.needed_steps[lane] < 0 or self.counts[step] > self.counts[self.needed_steps[lane]]:
            self.needed_steps[lane] = step

    def merged(self, clock: int, shared: int, lane: int) -> int:
        """Return a clock after the wait for a lane; the row ``shared`` does not change."""
        step, rows, row = self.needed_steps[lane], self.rows, clock * self.most
        if rows[row + lane] >= self.counts[step]:       # an earlier wait already implies the clock of that time
            return clock
        after, other = row, self.reports[step] * self.most
        if clock == shared:
            clock = self.row_count
            self.row_count += 1
            after = clock * self.most
        for p in range(self.number):
            first, second = rows[row + p], rows[other + p]
            rows[after + p] = first if first > second else second
        issuer = self.issuers[step]
        rows[after + issuer] = max(rows[after + issuer], self.issued[step])
        rows[after + lane] = max(rows[after + lane], self.counts[step])
        return clock

    def note_waits(self, k: int) -> None:
        """Store the waits of a step that others do not imply, in the order of the lanes' names."""
        begin = end = self.waits_start[k]
        for n in range(self.needed_count):
            lane = self.needed[n]
            if self.needed_count == 1 or not self.implied(lane):
                step, at = self.needed_steps[lane], end
                while at > begin and self.names[self.lanes[self.waits[at - 1]]] > self.names[lane]:
                    self.waits[at] = self.waits[at - 1]
                    at -= 1
                self.waits[at] = step
                self.signals[step] = 1
                end += 1
        for n in range(self.needed_count):
            self.needed_steps[self.needed[n]] = -1
        self.needed_count = 0
        self.waits_start[k + 1] = end

    def implied(self, lane: int) -> bool:
        """Return whether the wait for another lane implies the wait for a lane."""
        count = self.counts[self.needed_steps[lane]]
        for n in range(self.needed_count):
            if self.needed[n] != lane:
                step = self.needed_steps[self.needed[n]]
                if self.rows[self.reports[step] * self.most + lane] >= count or (
                        self.issuers[step] == lane and self.issued[step] >= count):
                    return True
        return False

    def queue(self, group: int, clock: int) -> int:
        """Return the lane of the queue that a transfer is put into, by what its engine will know after the waits it
        needs."""
        begin, used, lane = QUEUES * group, self.used[group], -1
        for at in range(begin, begin + used):
            other = self.recent[at]
            if self.rows[clock * self.most + other] == self.totals[other] and (
                    lane < 0 or self.names[other] < self.names[lane]):
                lane = other
        if lane < 0 and used < QUEUES:
            lane = self.number
            self.names[lane] = self.engines + begin + used
            self.number += 1
            self.recent[begin + used] = lane
            self.used[group] += 1
            return lane
        if lane < 0:
            lane = self.recent[begin]
        at = begin
        while self.recent[at] != lane:
            at += 1
        for later in range(at, begin + used - 1):
            self.recent[later] = self.recent[later + 1]
        self.recent[begin + used - 1] = lane
        return lane


CODE = CompiledClass(WaitScan, ("advance",), PAYS_OFF)


class SegmentWaits:
    """The waits of one segment, in columns by step: the ``engines`` that issue, the ``lanes`` that complete, whether
    they signal that (``signals``), and for which ``waits`` each waits, as a lane and its number of signals up to then.
    By lane, ``signaled`` is its number of signals. ``issuers``: for each step the engine that issues it, and the group
    of queues that it is put into (None: it is not a transfer); ``before``: what each step comes after, where that is
    known. Lane ``engines + QUEUES * group + n`` is queue n of a group, after the lanes of engines; ``used``: the number
    of queues in use, by group.
    """

    def __init__(self, steps: Sequence[InstructionStep], issuers: Sequence[tuple[int, int | None]], engines: int,
                 groups: int, before: StepEdges | None = None) -> None:
        self.steps = steps
        edges = StepEdges(*joined(dependences_of(steps, issuers))) if before is None else before
        state = walked(WaitScan(issuers, engines, groups, edges))
        names, lanes, signals = (int_array(column) for column in (state.names, state.lanes, state.signals))
        self.engines: list[int] = int_array(state.issuers).tolist()
        self.lanes: list[int] = names[lanes].tolist()
        self.signals: list[int] = signals.tolist()
        self.used: list[int] = int_array(state.used).tolist()
        self.signaled = {name: int(signals[lanes == lane].sum())
                          for lane, name in enumerate(names[:state.number].tolist())}
        values = unset_array(len(lanes))                # by step, the signals of its lane up to it
        for lane in range(state.number):
            of_lane = np.flatnonzero(lanes == lane)
            values[of_lane] = np.cumsum(signals[of_lane])
        starts = int_array(state.waits_start).tolist()
        waited = int_array(state.waits[:starts[-1]])
        pairs = list(zip(names[lanes[waited]].tolist(), values[waited].tolist()))
        self.waits: list[list[tuple[int, int]]] = [pairs[begin:end] for begin, end in pairwise(starts)]
        self.totals = {name: int(total) for name, total in zip(names.tolist(), state.totals[:state.number])}
        self.clocks = [dict(zip(names.tolist(), state.rows[row * state.most:row * state.most + state.number]))
                       for row in state.clocks]

    def unknown(self, engine: int, lane: int) -> bool:
        """Return whether a lane has completed events that the engine has not waited for."""
        return bool(self.totals.get(lane, 0) > self.clocks[engine].get(lane, 0))


def walked(state: WaitScan) -> WaitScan:
    """Run a walk to its end, and return it."""
    is_code = CODE.is_ready(state.count)
    if not is_code:
        with_lists(state)
    while state.at < state.count:
        CODE.call("advance", state, is_code)
        if state.at < state.count:              # the clocks need more room
            state.rows = longer(state.rows, new_array(len(state.rows)), is_code)
            state.capacity *= 2
    return state


def group_of(step: InstructionStep) -> tuple[Engine, int]:
    """Return the group of queues of a transfer: an engine has separate queues for transfers to SBUF and to HBM."""
    written = next(tile for tile in type(step.op).tiles_written(step.op.__dict__) if tile is not None)
    return step.op.runs_on, int(written.space == HBM)


def dependences_of(steps: Sequence[InstructionStep], issuers: Sequence[tuple[int, int | None]]) -> list[list[int]]:
    """Return the steps that each step depends on by the physical bytes that it touches."""
    return dependences_between(touched([step.op for step in steps], physical), streams_of(issuers))


def streams_of(issuers: Sequence[tuple[int, int | None]]) -> list[Hashable]:
    """Return the streams whose steps complete in order: transfers of an engine may complete in any order."""
    return [engine if group is None else (k,) for k, (engine, group) in enumerate(issuers)]
