# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The timed machine (``machine.py``) for one core, without a record: it tells only when a program ends.

A search for fast code times many programs of which it keeps one. This form of the machine has columns of numbers in
place of objects, so that it runs as machine code. It does not execute programs that load numbers into registers or
divide by numbers below 1, which are rare: their end is that of the timed machine itself.
"""

from collections.abc import Sequence
from math import inf

import numpy as np

from nki_mlir.dialects.isa.instruction import REGISTERS
from nki_mlir.dialects.isa.program import Program
from nki_mlir.machine import Machine, machine_named
from nki_mlir.targets.neuron.timing.event_queue import EventQueue
from nki_mlir.targets.neuron.timing.ramp import RampSpeed
from nki_mlir.targets.neuron.timing.stream_columns import (
    ADD,
    ALU,
    AND,
    BRANCH,
    CLEAR,
    EQ,
    FLOORDIV,
    GE,
    GT,
    LE,
    LT,
    MAX,
    MIN,
    MOD,
    MULT,
    NE,
    NONE,
    OR,
    SUBTRACT,
    StreamColumns,
    is_plain,
)
from nki_mlir.targets.neuron.timing.streams import (
    CONTROL,
    NEAR,
    PSUM_PORT,
    SBUF_PORT,
    TRANSFER,
    WORK,
    Stream,
    streams_of,
)
from nki_mlir.targets.runtime.compiled_class import (
    CompiledClass,
    int_array,
    longer,
    new_array,
    new_floats,
    with_lists,
)

PAYS_OFF = 20_000               # instructions of programs that the timed machine runs while the code compiles
ROOM = 64                       # signals, and times at which engines come back, that one instruction adds at most
NOTHING, OTHER, RESULT = range(3)   # what an instruction reads: RESULT, that of an earlier one; OTHER, of one between
HALF, ALL_BITS = 1 << 31, (1 << 32) - 1


class UnrecordedRun(EventQueue, StreamColumns):
    """By engine: its position ``at``; when it is ``free``; when it comes back (``due``); for which semaphore it waits,
    up to which value; ``ready``, ``last``, ``recent``, ``recent_count`` and ``comes_for_result`` as an agent of the
    timed machine has them. By semaphore: its value, and the first and the last of its later changes, which are linked
    lists (``change_times``, ``change_amounts``, ``change_next``; ``spare``: those not in use, ``spare_count`` of them).
    ``stalled``: the engine that goes on at ``stalled_time`` when there is more room.
    """

    waits_for_itself: list[int]
    has_ramp: list[int]
    ramp: RampSpeed
    trigger: float
    notify: float
    refill: float
    registers: list[int]
    at: list[int]
    free: list[float]
    due: list[float]
    waits_for: list[int]
    waits_until: list[int]
    ready: list[float]
    last: list[float]
    recent: list[float]
    recent_count: list[int]
    comes_for_result: list[int]
    values: list[int]
    heads: list[int]
    tails: list[int]
    change_times: list[float]
    change_amounts: list[int]
    change_next: list[int]
    spare: int
    spare_count: int
    dma_free: list[float]
    ends: list[float]
    hbm_free: float
    port_free: list[float]
    decided: list[int]
    executed: int
    limit: int
    exceeds: bool
    fails: bool
    stalled: int
    stalled_time: float
    end: float

    def __init__(self, program: Program, machine: Machine, streams: Sequence[Stream], limit: int) -> None:
        count = len(streams)
        EventQueue.__init__(self, 2 * ROOM)
        StreamColumns.__init__(self, streams, machine)
        self.limit = limit
        self.waits_for_itself = int_array([stream.waits_for_itself for stream in streams])
        ramps = [machine.costs.engines[stream.engine].ramp for stream in streams]
        self.has_ramp = int_array([ramp is not None for ramp in ramps])
        self.ramp = RampSpeed(next((ramp for ramp in ramps if ramp is not None), None))
        self.trigger, self.notify = float(machine.costs.dma.trigger_ns), float(machine.costs.dma.notify_ns)
        self.refill = float(machine.costs.control.refill_ns)
        self.registers = new_array(count * REGISTERS)
        self.at = self.first[:-1].copy()
        self.free, self.due, self.ready, self.last = (new_floats(count) for _ in range(4))
        self.waits_for, self.waits_until = new_array(count, -1), new_array(count)
        self.recent, self.recent_count = new_floats(count * NEAR), new_array(count)
        self.comes_for_result = new_array(count)
        semaphores = len(program.semaphores)
        self.values = new_array(semaphores)
        self.heads, self.tails = new_array(semaphores, -1), new_array(semaphores, -1)
        self.change_times, self.change_amounts = new_floats(0), new_array(0)
        self.change_next, self.spare, self.spare_count = new_array(0), -1, 0
        self.add_spare(16 * ROOM, True)
        self.dma_free, self.ends, self.hbm_free = new_floats(self.dma_engines), new_floats(self.dma_engines), 0.0
        self.port_free = new_floats((PSUM_PORT | SBUF_PORT) + 1)
        self.decided = new_array(NEAR * len(self.kinds), -1)
        self.executed, self.exceeds, self.fails, self.end = 0, False, False, 0.0
        self.stalled, self.stalled_time = -1, 0.0
        for number in range(count):
            self.push(0.0, number)

    def add_spare(self, count: int, is_code: bool) -> None:
        """Make room for more changes of semaphores."""
        before = len(self.change_next)
        added = np.arange(before + 1, before + count + 1)
        added[-1] = self.spare
        self.change_times = longer(self.change_times, new_floats(count), is_code)
        self.change_amounts = longer(self.change_amounts, new_array(count), is_code)
        self.change_next = longer(self.change_next, added, is_code)
        self.spare, self.spare_count = before, self.spare_count + count

    def add_room(self, is_code: bool) -> None:
        """Make room for more events and changes."""
        count = len(self.times)
        self.times, self.numbers = longer(self.times, new_floats(count), is_code), longer(
            self.numbers, new_array(count), is_code)
        self.add_spare(len(self.change_next), is_code)

    # -- the run -------------------------------------------------------------------------------------------------------
    def run(self, room: int) -> None:
        """Let the engines advance, until none can, or until there is no room for the events of one instruction.
        ``room``: how many events there may be."""
        if self.stalled >= 0:
            agent = self.stalled
            self.stalled = -1
            self.advance(agent, self.stalled_time, room)
        while self.events > 0 and self.stalled < 0 and not self.exceeds and not self.fails:
            time, agent = self.times[0], self.numbers[0]
            self.pop()
            if self.due[agent] == time:
                self.advance(agent, time, room)

    def advance(self, agent: int, time: float, room: int) -> None:
        """Advance an engine from ``time`` until it has to wait, or until another engine has to advance first."""
        stop, at, free = self.first[agent + 1], self.at[agent], self.free[agent]
        self.waits_for[agent] = -1
        while at < stop:
            if self.spare_count < ROOM or self.events + ROOM > room:
                self.at[agent], self.free[agent] = at, free
                self.stalled, self.stalled_time = agent, time
                return
            kind, port, start, own_result = self.kinds[at], self.ports[at], free, 0
            looks = kind != WORK or port != 0 or self.waits_start[at] < self.waits_start[at + 1]
            if looks:
                if free > time:
                    if self.events > 0 and self.times[0] < free:        # another engine advances first
                        self.at[agent], self.free[agent] = at, free
                        self.come_back(agent)
                        return
                    time = free
                elif free < time:
                    start, own_result = time, self.comes_for_result[agent]
                for wait in range(self.waits_start[at], self.waits_start[at + 1]):
                    if self.settled(self.wait_semaphores[wait], time) < self.wait_values[wait]:
                        self.at[agent], self.free[agent] = at, free
                        self.sleep(agent, wait)
                        return
            if self.ready[agent] >= start and self.ready[agent] > free and own_result == 0:
                awaited = self.result_in_engine(agent, at, start, free)
                if awaited >= 0.0:
                    if awaited > start and looks:
                        self.at[agent], self.free[agent] = at, free
                        self.come(agent, awaited, 1)
                        return
                    start = awaited
            if port != 0:
                granted = max(self.port_free[port & PSUM_PORT], self.port_free[port & SBUF_PORT])
                if granted > start:
                    self.at[agent], self.free[agent] = at, free
                    self.come(agent, granted, 0)
                    return
            if self.has_ramp[agent] == 0 or self.shares[at] == 0.0:
                free = start + self.busy[at]
            else:
                free = self.ramp.end(start, self.busy[at], self.shares[at])
            self.executed += 1
            complete = max(free + self.result[at], self.last[agent])
            self.last[agent] = complete
            if self.waits_for_itself[agent] != 0:
                self.note_result(agent, free + self.in_engine[at])
            if port & PSUM_PORT != 0:
                self.port_free[PSUM_PORT] = free
            if port & SBUF_PORT != 0:
                self.port_free[SBUF_PORT] = free
            if kind == TRANSFER:
                self.carry_out(at, start)
                at += 1
            else:
                self.end = max(self.end, complete)
                if self.updates[at] >= 0:               # an engine sees at once what it counts down itself
                    self.signal(self.updates[at], complete if self.amounts[at] > 0 or kind == WORK else free,
                                self.amounts[at])
                at += 1
                if kind == CONTROL and self.controls[at - 1] != NONE:
                    target = self.control(agent, at - 1, time)
                    if target >= 0:
                        at, free = target, free + self.refill
                    if self.executed > self.limit:
                        self.exceeds = True
                    if self.exceeds or self.fails:
                        return
        self.at[agent], self.free[agent], self.due[agent] = at, free, inf

    def come(self, agent: int, time: float, for_result: int) -> None:
        """Let an engine come back at a time."""
        self.due[agent], self.comes_for_result[agent] = time, for_result
        self.push(time, agent)

    def come_back(self, agent: int) -> None:
        """Let an engine look at its instruction when it is free, or later if a semaphore reaches its value later."""
        at = self.at[agent]
        for wait in range(self.waits_start[at], self.waits_start[at + 1]):
            if self.values[self.wait_semaphores[wait]] < self.wait_values[wait]:
                self.sleep(agent, wait)
                return
        self.due[agent] = self.free[agent]
        self.push(self.free[agent], agent)

    # -- semaphores ----------------------------------------------------------------------------------------------------
    def settled(self, semaphore: int, time: float) -> int:
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

    def sleep(self, agent: int, wait: int) -> None:
        """Suspend an engine until a semaphore reaches a value."""
        semaphore = self.wait_semaphores[wait]
        self.due[agent], self.waits_for[agent], self.waits_until[agent] = inf, semaphore, self.wait_values[wait]
        self.wake(agent, semaphore)

    def wake(self, agent: int, semaphore: int) -> None:
        """Let a suspended engine come when the semaphore reaches its value, if that time is known."""
        shown, change = self.values[semaphore], self.heads[semaphore]
        while change >= 0:
            shown += self.change_amounts[change]
            if shown >= self.waits_until[agent]:
                time = max(self.change_times[change], self.free[agent])
                if time < self.due[agent]:
                    self.come(agent, time, 0)
                return
            change = self.change_next[change]

    def signal(self, semaphore: int, time: float, amount: int) -> None:
        """Change a semaphore at a later time, and wake the engines that wait for the change."""
        change, tail = self.spare, self.tails[semaphore]
        self.spare = self.change_next[change]
        self.spare_count -= 1
        self.change_times[change], self.change_amounts[change], self.change_next[change] = time, amount, -1
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
    def note_result(self, agent: int, time: float) -> None:
        """Note when the engine may read the result of its latest instruction."""
        count = self.recent_count[agent]
        self.recent[agent * NEAR + count % NEAR] = time
        self.recent_count[agent] = count + 1
        self.ready[agent] = max(self.ready[agent], time)

    def result_in_engine(self, agent: int, at: int, start: float, free: float) -> float:
        """Return when the result of the same engine is readable which an instruction reads and waits for until
        ``start`` or longer; -1 without such a result."""
        count = self.recent_count[agent]
        for k in range(min(count, NEAR)):
            before = at - 1 - k
            if before < self.first[agent]:
                break
            time = self.recent[agent * NEAR + (count - 1 - k) % NEAR]
            if free < time and time >= start:
                if self.decided[at * NEAR + k] < 0:
                    self.decided[at * NEAR + k] = self.awaits(before, at)
                decision = self.decided[at * NEAR + k]
                if decision != NOTHING:
                    return time if decision == RESULT else -1.0
        return -1.0

    def awaits(self, before: int, at: int) -> int:
        """Return whether an instruction reads what an earlier one of its engine has written."""
        if self.reads_start[at] == self.reads_start[at + 1]:
            return OTHER
        if not self.reads_result(at, before):
            return NOTHING
        for k in range(before + 1, at):
            if self.reads_result(at, k):
                return OTHER
        return RESULT

    def reads_result(self, at: int, before: int) -> bool:
        for read in range(self.reads_start[at], self.reads_start[at + 1]):
            tile = self.reads[read]
            for write in range(self.writes_start[before], self.writes_start[before + 1]):
                other = self.writes[write]
                if self.byte[tile] < self.byte_end[other] and self.byte[other] < self.byte_end[tile] and (
                        self.partition[tile] < self.partition_end[other]) and (
                        self.partition[other] < self.partition_end[tile]) and self.space[tile] == self.space[other]:
                    return True
        return False

    # -- transfers -----------------------------------------------------------------------------------------------------
    def carry_out(self, at: int, start: float) -> None:
        """Move the data of a transfer, and signal its end."""
        transfer, earliest, engines = self.transfers[at], start + self.trigger, self.dma_engines
        semaphore, first, at_once = self.updates[at], transfer * engines, True
        if self.under_way[transfer] > 0.0:
            end = earliest + self.under_way[transfer]
        else:
            alike = True
            for k in range(1, engines):
                if self.parts[first + k] != self.parts[first] or self.dma_free[k] != self.dma_free[0]:
                    alike = False
            least, slowest = inf, 0
            for k in range(engines):
                begin = max(earliest, self.dma_free[k])
                least = min(least, begin)
                self.ends[k] = begin + self.parts[first + k]
                if self.ends[k] > self.ends[slowest]:
                    slowest = k
            self.hbm_free = max(least, self.hbm_free) + self.hbm[transfer]
            end = max(self.ends[slowest], self.hbm_free)
            for k in range(engines):
                if alike or k == slowest:
                    self.ends[k] = end
                if self.ends[k] != end:
                    at_once = False
                if alike or self.parts[first + k] > 0.0:
                    self.dma_free[k] = self.ends[k]
        self.end = max(self.end, end + self.notify)
        if semaphore < 0:
            return
        if at_once or self.amounts[at] != engines:      # one signal when all DMA engines are done
            self.signal(semaphore, end + self.notify, self.amounts[at])
            return
        time, count = -1.0, 1
        while count > 0:                                # in the order of the times
            after, count = inf, 0
            for k in range(engines):
                if self.ends[k] > time and self.ends[k] < after:
                    after, count = self.ends[k], 0
                if self.ends[k] == after:
                    count += 1
            if count > 0:
                self.signal(semaphore, after + self.notify, count)
            time = after

    # -- registers and branches ----------------------------------------------------------------------------------------
    def control(self, agent: int, at: int, time: float) -> int:
        """Execute a control instruction; return the position after a branch that is taken, else -1."""
        control, registers = self.controls[at], agent * REGISTERS
        if control == CLEAR:
            for semaphore in range(self.lhs[at], self.rhs[at] + 1):
                self.settled(semaphore, time)
                self.values[semaphore] = 0
            return -1
        lhs, rhs = self.lhs[at], self.rhs[at]
        if self.lhs_register[at] >= 0:
            lhs = self.registers[registers + self.lhs_register[at]]
        if self.rhs_register[at] >= 0:
            rhs = self.registers[registers + self.rhs_register[at]]
        if control == BRANCH:
            return self.targets[at] if self.computed(self.operators[at], lhs, rhs) != 0 else -1
        if control == ALU:
            lhs = self.computed(self.operators[at], lhs, rhs)
        self.registers[registers + self.targets[at]] = lhs
        return -1

    def computed(self, operator: int, lhs: int, rhs: int) -> int:
        """Return the result of an operator, in 32 bits."""
        value = 0
        if operator == ADD:
            value = lhs + rhs
        elif operator == SUBTRACT:
            value = lhs - rhs
        elif operator == MULT:
            value = lhs * rhs
        elif operator == MIN:
            value = min(lhs, rhs)
        elif operator == MAX:
            value = max(lhs, rhs)
        elif operator == FLOORDIV or operator == MOD:
            if rhs <= 0:
                self.fails = True
                return 0
            value = lhs // rhs if lhs >= 0 else -((rhs - 1 - lhs) // rhs)
            if operator == MOD:
                value = lhs - value * rhs
        elif operator == AND:
            value = lhs & rhs
        elif operator == OR:
            value = lhs | rhs
        elif (operator == EQ and lhs == rhs) or (operator == NE and lhs != rhs) or (operator == LT and lhs < rhs) or (
                operator == LE and lhs <= rhs) or (operator == GT and lhs > rhs) or (operator == GE and lhs >= rhs):
            value = 1
        return ((value + HALF) & ALL_BITS) - HALF


CODE = CompiledClass(UnrecordedRun, ("run",), PAYS_OFF)


def unrecorded_end(program: Program, limit: int) -> float | None:
    """Return when a program ends; infinity if it executes more than ``limit`` instructions. Return None for a program
    that has no such run, that ends in a deadlock or an error, or that is too short to compile the code for it."""
    machine = machine_named(program.target)
    if program.static_descriptors:
        machine = machine.with_static_descriptors
    if not CODE.is_ready(sum(map(len, program.streams.values()))):
        return None
    streams = streams_of(program, machine, 0, 1)
    if not streams or not is_plain(streams, machine):
        return None
    return end_of_run(UnrecordedRun(program, machine, streams, limit), True)


def end_of_run(state: UnrecordedRun, is_code: bool) -> float | None:
    """Run a program, and return its end as ``unrecorded_end`` does."""
    if not is_code:
        with_lists(state)
    begins = True
    while begins or state.stalled >= 0:
        if state.stalled >= 0:
            state.add_room(is_code)
        begins = False
        CODE.call("run", state, is_code, len(state.times))
    if state.fails or state.exceeds:
        return None if state.fails else inf
    return state.end if all(at == stop for at, stop in zip(state.at, state.first[1:])) else None
