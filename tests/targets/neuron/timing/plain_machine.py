# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A timed machine with objects in place of columns, in plain Python: the reference of tests for the one that compiles.

An engine advances by itself until it reads what other engines change (a semaphore, a port, the DMA engines); before
that read, all other engines advance to the same time. The machine computes registers, so loops run their actual number
of iterations. It does not know numbers in memory, unless the caller passes them: if a branch depends on one, the engine
does not take the branch the first time, takes it the second time, and so on in turn, so that a run-time loop has one
iteration.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from operator import itemgetter

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM, Bounds
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program
from nki_mlir.machine import Machine, machine_named
from nki_mlir.targets.neuron.control import control_step
from nki_mlir.targets.neuron.timing.machine import EVENT_LIMIT, EventLimit, Loaded, computed_if_known
from nki_mlir.targets.neuron.timing.ramp import RampState
from nki_mlir.targets.neuron.timing.record import (
    BEGIN,
    MEETING,
    ORDER,
    OWN_RESULT,
    PORT,
    SEMAPHORE,
    Movement,
    Record,
)
from nki_mlir.targets.neuron.timing.streams import (
    CONTROL,
    NEAR,
    PSUM_PORT,
    SBUF_PORT,
    TRANSFER,
    WORK,
    Stream,
    Synchronization,
    streams_of,
)
from nki_mlir.targets.neuron.timing.streams import MEETING as MEETING_KIND
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer
from tests.targets.neuron.timing.plain_dma_engines import DmaEngines, Hbm

Change = tuple[float, int, int]                 # time, amount, event


class TimedSemaphore:
    """A semaphore: ``value`` is its value at the time of the last ``settle``; ``coming`` are later changes, in order.
    """

    __slots__ = ("coming", "sleepers", "value")

    def __init__(self) -> None:
        self.value = 0
        self.coming: deque[Change] = deque()
        self.sleepers: dict[int, int] = {}      # a waiting engine -> the value that it waits for

    def settle(self, time: float) -> int:
        """Return the value at ``time``. The times of successive calls never decrease."""
        coming = self.coming
        while coming and coming[0][0] <= time:
            self.value += coming.popleft()[1]
        return self.value

    def clear(self) -> None:
        """Set the value to 0; later changes count from there."""
        self.value = 0




class CoreState:
    """The resources that the engines of a core share."""

    def __init__(self, program: Program, machine: Machine, hbm: Hbm) -> None:
        self.program = program
        self.semaphores = [TimedSemaphore() for _ in program.semaphores]
        self.dma = DmaEngines(machine, hbm)
        self.ports = [(0.0, -1)] * (PSUM_PORT + SBUF_PORT + 1)      # time from which it is free, and the event before
        self.hbm_bytes = 0


class Agent:
    """The state of one engine. ``free``: when it can start its next instruction, as far as that depends on the engine
    alone; ``ready``: when it may read everything that it has written."""

    __slots__ = ("at", "branched", "cause", "core", "due", "event", "free", "last", "last_event", "loaded", "met",
                 "now", "number", "parts", "ramp", "ready", "recent", "registers", "stream", "waits_for", "why")

    def __init__(self, number: int, core: CoreState, stream: Stream, loaded: Sequence[int] | None,
                 ramp: RampState | None = None) -> None:
        self.number, self.core, self.stream, self.ramp = number, core, stream, ramp
        self.at = 0
        self.free = self.last = self.due = self.ready = 0.0
        self.event = self.last_event = -1
        self.registers: list[int | None] = [0] * isa.REGISTERS
        self.loaded: Iterator[int] | None = iter(loaded) if loaded is not None else None
        self.branched: dict[int, int] = {}          # number of visits of an undecided branch, by position
        self.waits_for: TimedSemaphore | None = None
        self.met = False                            # whether the meeting that it is at is complete
        self.recent: deque[tuple[int, float]] = deque(maxlen=NEAR)      # events, and when results can be read
        self.parts = (number, stream.entries, stream.instructions, stream.details, stream.meetings,
                      stream.waits_for_itself, core.semaphores, self.recent, ramp,
                      stream.shares)                # the state that ``advance`` reads each time
        self.why, self.cause = BEGIN, -1            # reason and cause of the current wait
        self.now = 0.0                              # when it executes a control instruction, which is after ``at``

    def load(self, op: isa.TensorLoad) -> int | None:
        """Return the number that the engine loads, if it is known."""
        return next(self.loaded, None) if self.loaded is not None else None

    def takes(self, holds: int | None) -> bool:
        """Return whether the engine takes a branch: by its comparison, or in turn if an operand is unknown."""
        if holds is not None:
            return bool(holds)
        position = self.at - 1
        met = self.branched.get(position, 0)
        self.branched[position] = met + 1
        return met % 2 == 1

    def clear(self, low: int, high: int) -> None:
        """Clear semaphores now."""
        for semaphore in self.core.semaphores[low:high + 1]:
            semaphore.settle(self.now)
            semaphore.clear()


def boxes_of(instruction: isa.Instruction, fields: Sequence[str]) -> list[tuple[str, Bounds]]:
    """Return the on-chip boxes of these operands of an instruction that its engine executes."""
    if instruction.queue is not None:
        return []
    return [(tile.space, tile.bounds) for name in fields
            if (tile := getattr(instruction.op, name)) is not None and tile.space != HBM]


def boxes_overlap(boxes: Sequence[tuple[str, Bounds]], others: Sequence[tuple[str, Bounds]]) -> bool:
    """Return whether a box of the first list shares a byte with a box of the second."""
    return any(space == other_space and max(begin, first) < min(end, last) and max(low, bottom) < min(high, top)
               for space, (begin, end, low, high) in boxes for other_space, (first, last, bottom, top) in others)


def awaits(instructions: Sequence[isa.Instruction], before: int, at: int) -> bool | None:
    """Return whether an instruction reads what an earlier one of its engine has written; None if it reads nothing, or
    if one between the two has written to what it reads."""
    read, earlier = boxes_of(instructions[at], instructions[at].op.inputs), instructions[before]
    if not read:
        return None
    if not boxes_overlap(read, boxes_of(earlier, earlier.op.outputs)):
        return False
    nearer = instructions[before + 1:at]
    return None if any([boxes_overlap(read, boxes_of(i, i.op.outputs)) for i in nearer]) else True


class Gathering:
    """The cores that have reached a meeting."""

    def __init__(self) -> None:
        self.engines: list[Agent] = []
        self.transfers: list[tuple[Agent, int, TimedTransfer, int]] = []         # agent, position, transfer, event


class PlainMachine:
    """Run programs once, each on its own core. ``record`` has the executed instructions, ``cores`` the shared
    resources.

    ``mode`` names how the programs were compiled. More than ``limit`` instructions raise ``EventLimit``. Without
    ``ramps`` each engine always works at full speed.
    """

    def __init__(self, programs: Sequence[Program], loaded: Loaded | None = None, mode: str = "optimized",
                 limit: int | None = None, ramps: bool = True) -> None:
        self.mode, self.limit = mode, EVENT_LIMIT if limit is None else limit
        self.loaded = loaded
        self.machine: Machine = machine_named(programs[0].target)
        if programs[0].static_descriptors:
            self.machine = self.machine.with_static_descriptors
        self.record = Record()
        hbm = Hbm(self.machine, len(programs))
        self.cores = [CoreState(program, self.machine, hbm) for program in programs]
        self.agents: list[Agent] = []
        for number, core in enumerate(self.cores):
            for stream in streams_of(core.program, self.machine, number, len(programs)):
                loaded_stream = loaded.get((number, stream.engine)) if loaded else None
                ramp = self.machine.costs.engines[stream.engine].ramp
                self.agents.append(Agent(len(self.agents), core, stream, loaded_stream,
                                         RampState(ramp) if ramps and ramp is not None else None))
        self.heap: list[tuple[float, int]] = [(0.0, agent.number) for agent in self.agents]
        self.gatherings: dict[object, Gathering] = {}
        self.counts: dict[object, int] = {}
        dma = self.machine.costs.dma
        self.trigger, self.notify = float(dma.trigger_ns), float(dma.notify_ns)

    def run(self) -> Record:
        """Run all engines to the ends of their streams, or until they wait for each other for ever."""
        heap, agents = self.heap, self.agents
        while heap:
            time, number = heappop(heap)
            agent = agents[number]
            if agent.due == time:
                self.advance(agent, time)
        self.record.finish()
        self.is_complete = all(agent.at == len(agent.stream.entries) for agent in agents)
        return self.record

    @property
    def end(self) -> float:
        """Return when the last instruction is complete."""
        return max(self.record.complete, default=0.0)

    # -- one engine ----------------------------------------------------------------------------------------------------
    def advance(self, agent: Agent, time: float) -> None:
        """Advance an engine from ``time`` until it has to wait, or until another engine has to advance first."""
        (number, entries, instructions, details, meetings, waits_for_itself, semaphores, recent, ramp,
         shares) = agent.parts
        heap, record, at, free, count = self.heap, self.record, agent.at, agent.free, len(entries)
        event = len(record)
        if agent.waits_for is not None:
            del agent.waits_for.sleepers[number]
            agent.waits_for = None
        while at < count:
            kind, busy, result, result_in_engine, port = entries[at]
            instruction = instructions[at]
            waits, update = instruction.waits, instruction.update
            start, reason, cause = free, ORDER, agent.event
            if waits or port or kind:
                if free > time:
                    if heap and heap[0][0] < free:          # another engine advances first
                        agent.at, agent.free = at, free
                        self.come_back(agent, waits)
                        return
                    time = free
                elif free < time:
                    start, reason, cause = time, agent.why, agent.cause
                for wait in waits:
                    semaphore = semaphores[wait.semaphore]
                    if (semaphore.settle(time) if semaphore.coming else semaphore.value) < wait.value:
                        agent.at, agent.free = at, free
                        self.sleep(agent, semaphore, wait.value)
                        return
            if agent.ready >= start and agent.ready > free and reason != OWN_RESULT and (
                    awaited := self.result_in_engine(agent, at, start, free)):
                reason, cause = OWN_RESULT, awaited[0]
                if awaited[1] > start and (waits or port or kind):
                    agent.at, agent.free, agent.due, agent.why, agent.cause = at, free, awaited[1], reason, cause
                    heappush(heap, (awaited[1], number))
                    return
                start = awaited[1]
            if waits or port or kind:
                if port:
                    granted, holder = max(agent.core.ports[port & PSUM_PORT], agent.core.ports[port & SBUF_PORT])
                    if granted > start:
                        agent.at, agent.free, agent.due = at, free, granted
                        agent.why, agent.cause = PORT, holder
                        heappush(heap, (granted, number))
                        return
                if kind == MEETING_KIND and not agent.met and not self.arrive(agent, at, time):
                    agent.at, agent.free, agent.due = at, free, inf
                    return
            free = start + busy if ramp is None or not shares[at] else ramp.end(start, busy, shares[at])
            complete = free + result
            if complete < agent.last:
                complete = agent.last
                record.later_events[event] = agent.last_event
            else:
                agent.last, agent.last_event = complete, event
            for column, entry in zip((record.agent, record.position, record.start, record.end, record.complete,
                                      record.why, record.cause),
                                     (number, at, start, free, complete, reason if cause >= 0 else BEGIN, cause)):
                column.append(entry)                        # type: ignore[attr-defined]
            if waits_for_itself:
                result_time = free + result_in_engine
                recent.append((event, result_time))
                if result_time > agent.ready:
                    agent.ready = result_time
            if port:
                self.hold(agent.core, port, free, event)
            agent.event = event
            at, event = at + 1, event + 1
            if kind == TRANSFER:
                if meetings:
                    self.transfer(agent, at - 1, event - 1, start)
                else:
                    self.carry_out(agent, update, details[at - 1], event - 1, start, -1)    # type: ignore[arg-type]
                continue
            if update is not None:                      # an engine sees at once what it counts down itself
                self.signal(semaphores[update.semaphore], complete if update.amount > 0 or kind == WORK else free,
                            update.amount, event - 1)
            agent.met = False
            if kind == CONTROL and at - 1 in details:
                agent.at, agent.free = at, free
                self.control(agent, at - 1, time)
                at, free = agent.at, agent.free
        agent.at, agent.free, agent.due = at, free, inf

    @staticmethod
    def result_in_engine(agent: Agent, at: int, start: float, free: float) -> tuple[int, float] | None:
        """Return the event of the same engine whose result an instruction reads and waits for until ``start`` or
        longer, with the time at which it is readable: the nearest earlier event that wrote the operands. Return
        None without such an event."""
        before = at
        for result in reversed(agent.recent):
            before -= 1
            if before < 0:
                break
            if not free < result[1] >= start:
                continue
            awaited = awaits(agent.stream.instructions, before, at)
            if awaited is not False:
                return result if awaited else None
        return None

    def come_back(self, agent: Agent, waits: Sequence[isa.Wait]) -> None:
        """Schedule an engine to look at its instruction when it is free, or later if a semaphore reaches its value
        later."""
        for wait in waits:
            semaphore = agent.core.semaphores[wait.semaphore]
            if semaphore.value < wait.value:
                self.sleep(agent, semaphore, wait.value)
                return
        agent.due = agent.free
        heappush(self.heap, (agent.free, agent.number))

    def sleep(self, agent: Agent, semaphore: TimedSemaphore, value: int) -> None:
        """Suspend an engine until a semaphore reaches a value: at the known change, or when such a change becomes
        known."""
        semaphore.sleepers[agent.number] = value
        agent.due, agent.waits_for = inf, semaphore
        self.wake(agent, semaphore, value)

    def wake(self, agent: Agent, semaphore: TimedSemaphore, value: int) -> None:
        """Schedule a suspended engine for the time at which the semaphore reaches its value, if that time is known."""
        shown = semaphore.value
        for time, amount, event in semaphore.coming:
            shown += amount
            if shown >= value:
                if time < agent.free:
                    time = agent.free
                if time < agent.due:
                    agent.due, agent.why, agent.cause = time, SEMAPHORE, event
                    heappush(self.heap, (time, agent.number))
                return

    def signal(self, semaphore: TimedSemaphore, time: float, amount: int, event: int) -> None:
        """Change a semaphore at a later time, and wake the engines that wait for the change."""
        coming = semaphore.coming
        coming.append((time, amount, event))
        if len(coming) > 1 and coming[-2][0] > time:
            semaphore.coming = deque(sorted(coming, key=itemgetter(0)))
        if semaphore.sleepers:
            for number, value in semaphore.sleepers.items():
                agent = self.agents[number]
                if time < agent.due:                # else the engine looks at the semaphore before this change
                    self.wake(agent, semaphore, value)

    @staticmethod
    def hold(core: CoreState, port: int, until: float, event: int) -> None:
        for bit in (PSUM_PORT, SBUF_PORT):
            if port & bit:
                core.ports[bit] = until, event

    # -- registers and branches ----------------------------------------------------------------------------------------
    def control(self, agent: Agent, position: int, time: float) -> None:
        """Execute a control instruction, except its signal; the engine's position is already after it."""
        op, record = agent.stream.details[position], self.record
        assert isinstance(op, isa.Control)
        agent.now = time
        try:
            target = control_step(op, agent.registers, computed_if_known, agent.load, agent.takes, agent.clear)
        except NkiMlirError as error:
            raise error.located(agent.stream.instructions[position].location) from None
        if target is not None:
            agent.at = target
            agent.free += self.machine.costs.control.refill_ns
        if len(record) > self.limit:
            raise EventLimit(limit=self.limit)

    # -- transfers -----------------------------------------------------------------------------------------------------
    def transfer(self, agent: Agent, position: int, event: int, start: float) -> None:
        """Trigger a transfer. A transfer of several cores begins when the last core has triggered its part."""
        transfer = agent.stream.details[position]
        assert isinstance(transfer, TimedTransfer)
        synchronization = agent.stream.meetings.get(position)
        if synchronization is None:
            self.carry_out(agent, agent.stream.instructions[position].update, transfer, event, start, -1)
            return
        gathering = self.gathering(agent, synchronization)
        gathering.transfers.append((agent, position, transfer, event))
        if len(gathering.transfers) == len(synchronization.members):
            for other, at, moved, number in gathering.transfers:
                self.carry_out(other, other.stream.instructions[at].update, moved, number, start, event)

    def carry_out(self, agent: Agent, update: isa.Update | None, transfer: TimedTransfer, event: int, start: float,
                  met: int) -> None:
        """Move the data of a transfer, and signal its end."""
        core, earliest = agent.core, start + self.trigger
        dma = core.dma
        core.hbm_bytes += transfer.hbm_bytes
        if transfer.under_way:
            begin, end, preceding = earliest, earliest + transfer.under_way, -1
            finished = [(end, dma.count)]
        else:
            begin, end, finished, preceding = dma.move(transfer, earliest, event)
        notified, movements = end + self.notify, self.record.movements
        if update is None:
            movements[event] = Movement(earliest, begin, end, notified, preceding, met, ())
            return
        number, amount = update
        if len(finished) == 1 or amount != dma.count:                   # one signal when all DMA engines are done
            movements[event] = Movement(earliest, begin, end, notified, preceding, met, ((notified, amount),))
            self.signal(core.semaphores[number], notified, amount, event)
            return
        signals = [(time + self.notify, engines) for time, engines in finished]
        movements[event] = Movement(earliest, begin, end, notified, preceding, met, signals)
        for time, engines in signals:
            self.signal(core.semaphores[number], time, engines, event)

    # -- meetings of cores ---------------------------------------------------------------------------------------------
    def gathering(self, agent: Agent, synchronization: Synchronization) -> Gathering:
        """Return the next meeting of this kind that the agent's core has not attended."""
        core = self.cores.index(agent.core)
        met = self.counts[core, synchronization] = self.counts.get((core, synchronization), 0) + 1
        return self.gatherings.setdefault((synchronization, met), Gathering())

    def arrive(self, agent: Agent, position: int, time: float) -> bool:
        """Let an engine reach a meeting; return whether it is complete. Completion resumes the waiting engines."""
        synchronization = agent.stream.details[position]
        assert isinstance(synchronization, Synchronization)
        gathering = self.gathering(agent, synchronization)
        if len(gathering.engines) + 1 < len(synchronization.members):
            gathering.engines.append(agent)
            return False
        for waiting in gathering.engines:
            waiting.met, waiting.due, waiting.why, waiting.cause = True, time, MEETING, len(self.record)
            heappush(self.heap, (time, waiting.number))
        return True
