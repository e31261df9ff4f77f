# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rules of the timed machine: an engine advances by itself until it reads what other engines change.

These are semaphores, ports and the DMA engines; before such a read, all other engines advance to the same time. Streams
and state are columns of numbers, so that the methods also run as machine code. The run stops if it needs more room, and
if cores synchronize: ``machine.py`` makes room and synchronizes them.
"""

from collections.abc import Sequence
from math import inf

import numpy as np

from nki_mlir.machine import Machine
from nki_mlir.targets.neuron.timing.dma_engines import DmaEngines, transfer_columns
from nki_mlir.targets.neuron.timing.engine_registers import DIVISION, EngineRegisters
from nki_mlir.targets.neuron.timing.event_queue import EventQueue
from nki_mlir.targets.neuron.timing.ramp import RampSpeed
from nki_mlir.targets.neuron.timing.record import BEGIN, ORDER, OWN_RESULT, PORT, SEMAPHORE
from nki_mlir.targets.neuron.timing.run_notes import RunNotes
from nki_mlir.targets.neuron.timing.stream_columns import CLEAR, NONE
from nki_mlir.targets.neuron.timing.streams import CONTROL, MEETING, NEAR, PSUM_PORT, SBUF_PORT, TRANSFER, WORK, Stream
from nki_mlir.targets.runtime.compiled_class import CompiledClass, int_array, longer, new_array, new_floats

PAYS_OFF = 20_000               # most instructions of programs that run as Python if there is no machine code
# most changes and events that one instruction adds: signals, and times at which engines come back
ROOM = 64
PORTS = (PSUM_PORT | SBUF_PORT) + 1
# answers of ``awaits``: RESULT, an instruction reads the result of an earlier one; OTHER, that of one in between, or no
# tile
NOTHING, OTHER, RESULT = range(3)
# Why the run stops: it needs room; an engine waits for other cores; an engine triggers its part of a transfer of
# several cores; an instruction divides by 0; more instructions than the limit have run.
FULL, MEETS, SHARES, DIVIDES, EXCEEDS = range(5)


class EngineRun(EventQueue, EngineRegisters):
    """By engine: its core; the number of its ramp (-1: none); its position ``at``; when it is ``free``, as far as that
    depends on the engine alone; when it comes back (``due``), with the reason and the event that make it wait (``why``,
    ``cause``); for which semaphore it waits, up to which value; ``ready``, when it may read all that it has written;
    its latest event, the event whose result is seen last (``last``: when), and its ``recent`` events; whether the
    meeting that it is at is complete (``met``).

    By semaphore: its value, and the first and the last of its later changes, which are linked lists (``change_times``,
    ``change_amounts``, ``change_events``, ``change_next``; ``spare``: those not in use, ``spare_count`` of them). By
    core and port: from when it is free, and which event holds it until then.

    ``stopped``: the engine at which the run stops, at ``stop_time``, for ``stop_reason``; -1: none. ``triggered_at``:
    when it triggered its part of a transfer.
    """

    core: list[int]
    waits_for_itself: list[int]
    ramp: list[int]
    ramps: list[RampSpeed]
    dma: DmaEngines
    notes: RunNotes
    trigger: float
    notify: float
    refill: float
    at: list[int]
    free: list[float]
    due: list[float]
    why: list[int]
    cause: list[int]
    waits_for: list[int]
    waits_until: list[int]
    ready: list[float]
    event: list[int]
    last: list[float]
    last_event: list[int]
    recent: list[float]
    recent_events: list[int]
    recent_count: list[int]
    met: list[int]
    values: list[int]
    heads: list[int]
    tails: list[int]
    change_times: list[float]
    change_amounts: list[int]
    change_events: list[int]
    change_next: list[int]
    spare: int
    spare_count: int
    port_free: list[float]
    port_holders: list[int]
    decided: list[int]
    executed: int
    limit: int
    stopped: int
    stop_time: float
    stop_reason: int
    triggered_at: float
    end: float

    def __init__(self, streams: Sequence[Stream], cores: Sequence[int], semaphores: Sequence[int], machine: Machine,
                 loaded: Sequence[Sequence[int] | None], ramps: Sequence[RampSpeed | None], limit: int,
                 notes: int) -> None:
        """``cores``: the core of each stream. ``semaphores``: how many each core has. ``loaded``: the numbers that the
        engine of each stream loads from memory, if they are known. ``notes``: the room for notes of events; 0: none
        are taken."""
        count, before = len(streams), np.cumsum([0, *semaphores])
        EventQueue.__init__(self, 2 * ROOM + count)
        EngineRegisters.__init__(self, streams, [int(before[core]) for core in cores], loaded)
        self.limit, self.core = limit, int_array(cores)
        self.waits_for_itself = int_array([stream.waits_for_itself for stream in streams])
        self.ramps = [ramp for ramp in ramps if ramp is not None]
        self.ramp = int_array([self.ramps.index(ramp) if ramp is not None else -1 for ramp in ramps])
        core_count = len(semaphores)
        transfers = transfer_columns(self.timed_transfers, machine, core_count)
        self.dma = DmaEngines(transfers, machine, core_count)
        self.notes = RunNotes(notes, machine.dma_engines)
        self.trigger, self.notify = float(machine.costs.dma.trigger_ns), float(machine.costs.dma.notify_ns)
        self.refill = float(machine.costs.control.refill_ns)
        self.at = self.first[:-1].copy()
        self.free, self.due, self.ready, self.last = (new_floats(count) for _ in range(4))
        self.why, self.cause, self.waits_until, self.met = (new_array(count) for _ in range(4))
        self.waits_for, self.event, self.last_event = (new_array(count, -1) for _ in range(3))
        self.recent, self.recent_events = new_floats(count * NEAR), new_array(count * NEAR)
        self.recent_count = new_array(count)
        self.values = new_array(int(before[-1]))
        self.heads, self.tails = new_array(len(self.values), -1), new_array(len(self.values), -1)
        self.change_times, self.change_amounts, self.change_events = new_floats(0), new_array(0), new_array(0)
        self.change_next, self.spare, self.spare_count = new_array(0), -1, 0
        self.add_spare(16 * ROOM, True)
        self.port_free = new_floats(core_count * PORTS)
        self.port_holders = new_array(len(self.port_free), -1)
        self.decided = new_array(NEAR * len(self.kinds), -1)
        self.executed, self.end = 0, 0.0
        self.stopped, self.stop_time, self.stop_reason, self.triggered_at = -1, 0.0, FULL, 0.0
        for number in range(count):
            self.push(0.0, number)

    def add_spare(self, count: int, is_code: bool) -> None:
        """Make room for more changes of semaphores."""
        before = len(self.change_next)
        added = np.arange(before + 1, before + count + 1)
        added[-1] = self.spare
        self.change_times = longer(self.change_times, new_floats(count), is_code)
        self.change_amounts = longer(self.change_amounts, new_array(count), is_code)
        self.change_events = longer(self.change_events, new_array(count), is_code)
        self.change_next = longer(self.change_next, added, is_code)
        self.spare, self.spare_count = before, self.spare_count + count

    def make_room(self, is_code: bool) -> None:
        """Make room for the events and the changes of another instruction."""
        count = len(self.times)
        if self.events + 2 * ROOM > count:
            self.times = longer(self.times, new_floats(count), is_code)
            self.numbers = longer(self.numbers, new_array(count), is_code)
        if self.spare_count < 2 * ROOM:
            self.add_spare(len(self.change_next), is_code)

    # -- the run -------------------------------------------------------------------------------------------------------
    def run(self, room: int) -> None:
        """Let the engines advance until none can, or until the run stops. The run has room for ``room`` events."""
        if self.stopped >= 0:
            agent = self.stopped
            self.stopped = -1
            self.advance(agent, self.stop_time, room)
        while self.events > 0 and self.stopped < 0:
            time, agent = self.times[0], self.numbers[0]
            self.pop()
            if self.due[agent] == time:
                self.advance(agent, time, room)

    def stop(self, agent: int, time: float, reason: int) -> None:
        self.stopped, self.stop_time, self.stop_reason = agent, time, reason

    def advance(self, agent: int, time: float, room: int) -> None:
        """Advance an engine from ``time`` until it has to wait, or until another engine has to advance first."""
        stop, at, free = self.first[agent + 1], self.at[agent], self.free[agent]
        self.waits_for[agent] = -1
        while at < stop:
            self.at[agent], self.free[agent] = at, free
            if self.spare_count < ROOM or self.events + ROOM > room or self.notes.is_full():
                self.stop(agent, time, FULL)
                return
            kind, port, start, why, cause = self.kinds[at], self.ports[at], free, ORDER, self.event[agent]
            looks = kind != WORK or port != 0 or self.waits_start[at] < self.waits_start[at + 1]
            if looks:
                if free > time:
                    if self.events > 0 and self.times[0] < free:        # another engine has to advance first
                        self.schedule_next_attempt(agent)
                        return
                    time = free
                elif free < time:
                    start, why, cause = time, self.why[agent], self.cause[agent]
                if self.sleeps(agent, at, time):
                    return
            if self.ready[agent] >= start and self.ready[agent] > free and why != OWN_RESULT:
                awaited = self.result_in_engine(agent, at, start, free)
                if awaited >= 0:
                    why, cause = OWN_RESULT, self.recent_events[awaited]
                    if self.recent[awaited] > start and looks:
                        self.schedule_attempt(agent, self.recent[awaited], why, cause)
                        return
                    start = self.recent[awaited]
            if port != 0 and self.waits_for_port(agent, port, start):
                return
            if kind == MEETING and self.met[agent] == 0:
                self.stop(agent, time, MEETS)
                return
            self.at[agent], self.free[agent] = at + 1, self.occupy(agent, at, start, why, cause)
            self.execute(agent, at, start, time)
            if self.stopped >= 0:
                return
            at, free = self.at[agent], self.free[agent]
        self.at[agent], self.free[agent], self.due[agent] = at, free, inf

    def execute(self, agent: int, at: int, start: float, time: float) -> None:
        """Carry out an instruction that occupies its engine from ``start`` on. ``time``: that of the other engines."""
        if self.kinds[at] == TRANSFER:
            if self.is_shared[at] != 0:
                self.triggered_at = start
                self.stop(agent, time, SHARES)
            else:
                self.carry_out(agent, at, start, self.event[agent], -1)
        else:
            self.complete(agent, at, self.free[agent])
            if self.kinds[at] == CONTROL and self.controls[at] != NONE:
                self.control(agent, at, time)

    def occupy(self, agent: int, at: int, start: float, why: int, cause: int) -> float:
        """Occupy an engine and its ports with an instruction, and return until when. ``why``, ``cause``: the reason and
        the event because of which it did not start before ``start``."""
        if self.ramp[agent] < 0 or self.shares[at] == 0.0:
            free = start + self.busy[at]
        else:
            free = self.ramps[self.ramp[agent]].end(start, self.busy[at], self.shares[at])
        complete, event, later = free + self.result[at], self.executed, -1
        if complete < self.last[agent]:
            complete, later = self.last[agent], self.last_event[agent]
        else:
            self.last[agent], self.last_event[agent] = complete, event
        if self.notes.room > 0:
            self.notes.note(agent, at - self.first[agent], start, free, complete, why if cause >= 0 else BEGIN, cause,
                            later)
        if self.waits_for_itself[agent] != 0:
            self.note_result(agent, free + self.in_engine[at], event)
        port, ports = self.ports[at], self.core[agent] * PORTS
        if port & PSUM_PORT != 0:
            self.port_free[ports + PSUM_PORT], self.port_holders[ports + PSUM_PORT] = free, event
        if port & SBUF_PORT != 0:
            self.port_free[ports + SBUF_PORT], self.port_holders[ports + SBUF_PORT] = free, event
        self.event[agent], self.executed = event, event + 1
        return free

    def complete(self, agent: int, at: int, free: float) -> None:
        """Signal the end of the latest instruction of an engine, which is not a transfer."""
        complete = self.last[agent]
        self.end, self.met[agent] = max(self.end, complete), 0
        if self.updates[at] >= 0:                       # an engine sees its own decrement without a delay
            self.signal(self.updates[at], complete if self.amounts[at] > 0 or self.kinds[at] == WORK else free,
                        self.amounts[at], self.event[agent])

    def waits_for_port(self, agent: int, port: int, start: float) -> bool:
        """Let an engine come back if the ports of its instruction are not free at ``start``; return whether it does.
        It waits for the port that is free later; of equal times, for the one with the later event."""
        ports = self.core[agent] * PORTS
        later, other = ports + (port & PSUM_PORT), ports + (port & SBUF_PORT)
        if self.port_free[other] > self.port_free[later] or (
                self.port_free[other] == self.port_free[later] and self.port_holders[other] > self.port_holders[later]):
            later = other
        if self.port_free[later] <= start:
            return False
        self.schedule_attempt(agent, self.port_free[later], PORT, self.port_holders[later])
        return True

    def schedule_attempt(self, agent: int, time: float, why: int, cause: int) -> None:
        """Let an engine come back at a time. ``why``, ``cause``: the reason and the event that make it wait."""
        self.due[agent], self.why[agent], self.cause[agent] = time, why, cause
        self.push(time, agent)

    def schedule_next_attempt(self, agent: int) -> None:
        """Schedule the next attempt of an engine to start its instruction: when it is free, or later if a semaphore
        reaches its value later."""
        at = self.at[agent]
        for wait in range(self.waits_start[at], self.waits_start[at + 1]):
            if self.values[self.wait_semaphores[wait]] < self.wait_values[wait]:
                self.sleep(agent, wait)
                return
        self.due[agent] = self.free[agent]
        self.push(self.free[agent], agent)

    # -- semaphores ----------------------------------------------------------------------------------------------------
    def semaphore_value(self, semaphore: int, time: float) -> int:
        """Return the value of a semaphore at ``time``."""
        head = self.heads[semaphore]
        while head >= 0 and self.change_times[head] <= time:
            self.values[semaphore] += self.change_amounts[head]
            after = self.change_next[head]
            self.change_next[head], self.spare = self.spare, head
            self.spare_count += 1
            head = after
        self.heads[semaphore] = head
        if head < 0:
            self.tails[semaphore] = -1
        return self.values[semaphore]

    def sleeps(self, agent: int, at: int, time: float) -> bool:
        """Suspend an engine if a semaphore of its instruction has not reached its value; return whether it did."""
        for wait in range(self.waits_start[at], self.waits_start[at + 1]):
            if self.semaphore_value(self.wait_semaphores[wait], time) < self.wait_values[wait]:
                self.sleep(agent, wait)
                return True
        return False

    def sleep(self, agent: int, wait: int) -> None:
        """Suspend an engine until a semaphore reaches a value."""
        semaphore = self.wait_semaphores[wait]
        self.due[agent], self.waits_for[agent], self.waits_until[agent] = inf, semaphore, self.wait_values[wait]
        self.wake(agent, semaphore)

    def wake(self, agent: int, semaphore: int) -> None:
        """Schedule a suspended engine for the time at which the semaphore reaches its value, if that is known."""
        shown, change = self.values[semaphore], self.heads[semaphore]
        while change >= 0:
            shown += self.change_amounts[change]
            if shown >= self.waits_until[agent]:
                time = max(self.change_times[change], self.free[agent])
                if time < self.due[agent]:
                    self.schedule_attempt(agent, time, SEMAPHORE, self.change_events[change])
                return
            change = self.change_next[change]

    def signal(self, semaphore: int, time: float, amount: int, event: int) -> None:
        """Change a semaphore at a later time, and wake the engines that wait for the change."""
        change, tail = self.spare, self.tails[semaphore]
        self.spare = self.change_next[change]
        self.spare_count -= 1
        self.change_times[change], self.change_amounts[change], self.change_next[change] = time, amount, -1
        self.change_events[change] = event
        if tail < 0:
            self.heads[semaphore] = self.tails[semaphore] = change
        elif self.change_times[tail] <= time:
            self.change_next[tail] = change
            self.tails[semaphore] = change
        else:
            before, after = -1, self.heads[semaphore]
            while self.change_times[after] <= time:
                before = after
                after = self.change_next[after]
            self.change_next[change] = after
            if before < 0:
                self.heads[semaphore] = change
            else:
                self.change_next[before] = change
        for agent in range(self.engines):
            if self.waits_for[agent] == semaphore and time < self.due[agent]:
                self.wake(agent, semaphore)

    # -- results of the same engine ------------------------------------------------------------------------------------
    def note_result(self, agent: int, time: float, event: int) -> None:
        """Record when the engine may read the result of its latest instruction."""
        count = self.recent_count[agent]
        k = agent * NEAR + count % NEAR
        self.recent[k], self.recent_events[k], self.recent_count[agent] = time, event, count + 1
        self.ready[agent] = max(self.ready[agent], time)

    def result_in_engine(self, agent: int, at: int, start: float, free: float) -> int:
        """Return the index in ``recent`` of the result of the same engine that an instruction reads and waits for until
        ``start`` or longer, that of the nearest earlier instruction which wrote the operands; -1 without one."""
        count = self.recent_count[agent]
        for k in range(min(count, NEAR)):
            before = at - 1 - k
            if before < self.first[agent]:
                break
            result = agent * NEAR + (count - 1 - k) % NEAR
            if free < self.recent[result] and self.recent[result] >= start:
                if self.decided[at * NEAR + k] < 0:
                    self.decided[at * NEAR + k] = self.awaits(before, at)
                decision = self.decided[at * NEAR + k]
                if decision != NOTHING:
                    return result if decision == RESULT else -1
        return -1

    def awaits(self, before: int, at: int) -> int:
        """Return which result an instruction reads, if an earlier one of its engine is at ``before``: see
        ``NOTHING``."""
        if self.reads_start[at] == self.reads_start[at + 1]:
            return OTHER
        if not self.uses_result(at, before):
            return NOTHING
        for k in range(before + 1, at):
            if self.uses_result(at, k):
                return OTHER
        return RESULT

    def uses_result(self, at: int, before: int) -> bool:
        for read in range(self.reads_start[at], self.reads_start[at + 1]):
            for write in range(self.writes_start[before], self.writes_start[before + 1]):
                if self.boxes.overlap(self.reads[read], self.writes[write]):
                    return True
        return False

    # -- transfers -----------------------------------------------------------------------------------------------------
    def carry_out(self, agent: int, at: int, start: float, event: int, met: int) -> None:
        """Move the data of a transfer, and signal its end. ``met``: the event of another core for which the transfer
        has waited; -1: none."""
        dma, earliest, semaphore = self.dma, start + self.trigger, self.updates[at]
        end = dma.move(self.core[agent], self.transfers[at], earliest, event)
        notified = end + self.notify
        self.end = max(self.end, notified)
        if self.notes.room > 0:
            self.notes.note_movement(event, earliest, dma.begin, end, notified, dma.preceding, met)
        if semaphore < 0:
            return
        if dma.at_once or self.amounts[at] != dma.dma_engines:      # one signal when all DMA engines are done
            self.signal_movement(semaphore, notified, self.amounts[at], event)
            return
        time, count = -1.0, 1
        while count > 0:                                # sorted by time
            after, count = inf, 0
            for k in range(dma.dma_engines):
                if dma.ends[k] > time and dma.ends[k] < after:
                    after, count = dma.ends[k], 0
                if dma.ends[k] == after:
                    count += 1
            if count > 0:
                self.signal_movement(semaphore, after + self.notify, count, event)
            time = after

    def signal_movement(self, semaphore: int, time: float, amount: int, event: int) -> None:
        if self.notes.room > 0:
            self.notes.note_signal(time, amount)
        self.signal(semaphore, time, amount, event)

    # -- registers and branches ----------------------------------------------------------------------------------------
    def control(self, agent: int, at: int, time: float) -> None:
        """Execute a control instruction. Its engine is at the next one, or at the target of a branch that is taken."""
        if self.controls[at] == CLEAR:
            for semaphore in range(self.lhs[at], self.rhs[at] + 1):
                self.semaphore_value(semaphore, time)
                self.values[semaphore] = 0
        else:
            target = self.compute(agent, at)
            if target == DIVISION:
                self.at[agent] = at
                self.stop(agent, time, DIVIDES)
                return
            if target >= 0:
                self.at[agent], self.free[agent] = target, self.free[agent] + self.refill
        if self.executed > self.limit:
            self.stop(agent, time, EXCEEDS)


CODE = CompiledClass(EngineRun, ("run", "carry_out"), PAYS_OFF)
