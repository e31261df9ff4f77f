# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Find an order that the semaphores allow, in which the later of two accesses runs before the earlier one completes.

The search delays the earlier access while everything else advances as far as possible. If semaphores only count up,
this finds such an order whenever there is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.targets.neuron.checker.conflicts import Conflict
from nki_mlir.targets.neuron.checker.trace import CoreMeeting, Event, StreamTrace
from nki_mlir.targets.neuron.order import EngineStep, QueueStep, Step

HELD_ENGINE = isa.COMPLETIONS - 1       # the DMA engine whose report is delayed


@dataclass
class QueueProgress:
    """A queue: its triggered transfers, and how many of these each DMA engine has reported. The data of a transfer move
    with the last report."""

    core: int
    number: int
    triggered: list[Event] = field(default_factory=list)
    reported: list[int] = field(default_factory=lambda: [0] * isa.COMPLETIONS)


class Witness:
    """Replays a trace, and delays the first access of a conflict until the second has run. ``steps`` are the steps up
    to the second access; none if the replay does not reach it, or if cores wait for each other."""

    def __init__(self, trace: StreamTrace, conflict: Conflict) -> None:
        self.trace, self.delayed, self.wanted = trace, conflict.first, conflict.then
        self.steps: list[Step] = []
        self.semaphores = [[0] * len(program.semaphores) for program in trace.programs]
        self.positions = [0] * len(trace.lanes)
        self.queues = {lane: QueueProgress(core, key) for (core, key), lane in trace.lane_of.items()
                       if isinstance(key, int)}
        self.done = False
        if any(isinstance(step, CoreMeeting) for step in trace.steps):
            return
        while not self.done and self.advance():
            pass
        if not self.done:
            self.steps.clear()

    def advance(self) -> bool:
        """Advance each engine and queue as far as possible. Return whether any advanced."""
        before = len(self.steps)
        for lane, events in enumerate(self.trace.lanes):
            if self.trace.is_queue[lane] and not self.done:
                self.report(self.queues[lane])
            while not self.trace.is_queue[lane] and not self.done and self.positions[lane] < len(events) and (
                    self.execute(events[self.positions[lane]])):
                self.positions[lane] += 1
        return len(self.steps) > before

    def execute(self, event: Event) -> bool:
        """Execute an engine's next instruction, unless it waits or is delayed. Return whether it was executed."""
        semaphores = self.semaphores[event.core]
        if any(semaphores[wait.semaphore] < wait.value for wait in event.instruction.waits):
            return False
        if event is self.delayed and event.queue_lane < 0:
            return False
        self.steps.append(EngineStep(event.core, event.engine, event.pc))
        if event.queue_lane >= 0:
            queue = self.queues[event.queue_lane]
            queue.triggered.append(event)
            if event is self.wanted:
                self.steps.append(QueueStep(queue.core, queue.number, False, len(queue.triggered) - 1))
                self.done = True
            return True
        op = event.instruction.op
        if isinstance(op, isa.RangeClear):
            semaphores[op.first:op.last + 1] = [0] * (op.last + 1 - op.first)
        if event.instruction.update is not None:
            semaphores[event.instruction.update.semaphore] += event.instruction.update.amount
        self.done = event is self.wanted
        return True

    def report(self, queue: QueueProgress) -> None:
        """Let the DMA engines report all transfers, except one engine's parts of the delayed transfer and of those
        after it."""
        for engine in range(isa.COMPLETIONS):
            while (number := queue.reported[engine]) < len(queue.triggered):
                event = queue.triggered[number]
                if event is self.delayed and engine == HELD_ENGINE:
                    break
                queue.reported[engine] += 1
                self.steps.append(QueueStep(queue.core, queue.number, True, engine))
                self.count(event, queue, number)

    def count(self, event: Event, queue: QueueProgress, number: int) -> None:
        update = event.instruction.update
        assert update is not None
        if update.amount == isa.COMPLETIONS:
            self.semaphores[event.core][update.semaphore] += 1
        elif min(queue.reported) > number:
            self.semaphores[event.core][update.semaphore] += update.amount


def witness_of(trace: StreamTrace, conflict: Conflict) -> Sequence[Step]:
    """Return the steps of an order in which the later access runs before the earlier one completes; none if there is no
    such order."""
    return Witness(trace, conflict).steps
