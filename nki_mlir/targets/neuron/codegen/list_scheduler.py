# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Order a run of steps by list scheduling, with their engines and the addresses of their buffers.

Time advances from event to event. Whenever an engine is free, it starts the ready step of the lowest rank; the scalar
engine prefers a step whose functions are loaded. A step that may run on several engines goes to the one that completes
it first. The scheduler uses the times of the timed machine: laws, results, ramps, DMA engines, queues, the PSUM port,
loads of functions.

On-chip memory is a resource. A buffer gets its address when its first step starts, and is released when its last user
is complete, so that no step of the order waits for an address. A step that needs a new buffer waits while there is no
room, or while the buffer would take room that the remaining steps need in program order. If the free bytes are too
fragmented, the scheduler continues with only their number, and returns no addresses.
"""

from math import inf
from typing import Any

import numpy as np

from nki_mlir.progress import phase
from nki_mlir.targets.neuron.codegen.engine_times import EngineTimes
from nki_mlir.targets.neuron.codegen.graph_columns import columns_of
from nki_mlir.targets.neuron.codegen.scheduled_memory import ScheduledMemory
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from nki_mlir.targets.neuron.codegen.scheduling_order import ListSchedule, Order, TooLate
from nki_mlir.targets.neuron.codegen.segment_waits import QUEUES
from nki_mlir.targets.neuron.codegen.unread_loads import UnreadLoads
from nki_mlir.targets.runtime.compiled_class import (
    CompiledClass,
    InstanceRecord,
    int_array,
    new_array,
    new_floats,
    with_lists,
)

CHECKED = 64                    # the least end is estimated once for this many steps that end
SLICE = 50_000                  # events between reports of the progress, and between looks for Ctrl-C
PAYS_OFF = 15_000               # steps that Python orders in the time in which the methods compile


def list_schedule(graph: SchedulingGraph, order: Order, base: dict[str, int] | None) -> ListSchedule:
    """Return the schedule of a run. ``base`` has the begin of free memory by memory; None: assign no addresses."""
    schedule = list_schedule_within(graph, order, base, inf)
    assert isinstance(schedule, ListSchedule)
    return schedule


def list_schedule_within(graph: SchedulingGraph, order: Order, base: dict[str, int] | None, most: float
                         ) -> ListSchedule | TooLate:
    """Return the schedule; ``TooLate`` as soon as it is certain to end after ``most`` ns."""
    run = SchedulerRun(graph, order, base, most)
    # memory is too fragmented: without rotation of the banks, gaps are larger
    if not run.run() and not run.state.late:
        packed = SchedulerRun(graph, order, base, most, rotates=False)
        if packed.run() or packed.state.late:
            run = packed
        else:
            run.continue_without_addresses()
    return run.schedule()


class ListScheduler(EngineTimes, ScheduledMemory):
    """Starts steps on engines in the order of simulated time.

    Engines are numbered in the order in which they choose a step. An event is a time and a number: the number k of a
    step means that its engine is free, k + ``count`` that its engine sees its result, and k + 2 ``count`` that all
    engines see the result.

    Columns by step: ``users`` lists the steps that depend on it, ``missing`` counts the steps that it depends on whose
    results its engines do not see yet, and ``ranks`` has its priority. Steps that ``started`` have their engine in
    ``engine_of`` and their time in ``starts``. ``by_rank`` lists the steps by rank, ``order`` the first ``ordered``
    steps as they started. ``soon`` lists for each engine the ``soon_count`` buffers whose last users are its steps and
    which other engines may not reuse before they see these steps as complete.

    With ``ends_early`` the scheduler stops once the schedule is ``late``: once it must end after ``latest`` ns.
    ``rests`` has for each step a lower bound of the ns from its start to the end of its longest chain, and
    ``end_of_chains`` the latest end that follows. ``reads_wait`` has a bit for each engine that waits for a step that
    reads loaded tiles. ``stopped`` is the last time at which no step could start.
    """

    users_start: list[int]
    users: list[int]
    missing: list[int]
    passed: int
    ranks: list[int]
    by_rank: list[int]
    engine_of: list[int]
    starts: list[float]
    started: list[int]
    order: list[int]
    ordered: int
    soon: list[int]
    soon_count: list[int]
    buffer_count: int
    ends_early: bool
    latest: float
    late: bool
    rests: list[float]
    end_of_chains: float
    limits_unread: bool
    unread: UnreadLoads
    reads_wait: int
    deferred: list[int]
    has_news: bool
    end: float
    stopped: float

    def __init__(self, graph: SchedulingGraph, order: Order, base: dict[str, int] | None, most: float,
                 rotates: bool = True) -> None:
        EngineTimes.__init__(self, graph, order)
        ScheduledMemory.__init__(self, graph, order, base, rotates)
        columns, count, self.buffer_count = columns_of(graph), len(graph), len(graph.size)
        engines: Any = graph.step_engines(order.share, order.issue)
        self.masks = engines.masks
        self.users_start, self.users = columns["users_start"], columns["users"]
        self.missing, self.passed = columns["missing"].copy(), order.passed
        self.ranks = graph.ranks(order.ahead, order.after)
        self.by_rank = int_array(np.argsort(self.ranks))
        self.engine_of, self.started, self.order = new_array(count), new_array(count), new_array(count)
        self.starts = new_floats(count)
        self.soon = new_array(self.engines * self.buffer_count)
        self.soon_count = new_array(self.engines)
        # a tolerance, since the end is a rounded sum
        self.latest, self.late, self.ends_early = most * (1 + 1e-9), False, most < inf
        self.rests = graph.least_rests(order.share, order.issue) if self.ends_early else new_floats(0)
        self.end_of_chains = float(np.max(self.rests, initial=0.0))
        self.limits_unread = order.unread > 0
        self.unread = UnreadLoads(graph, order.unread)
        self.deferred = new_array(order.passed)
        self.ordered = self.reads_wait = 0
        self.has_news = False
        self.end = self.stopped = 0.0

    def begin(self) -> None:
        """Start the steps that depend on no others."""
        for k in range(self.count):
            if self.missing[k] == 0:
                self.make_ready(k)
        self.start_all(0.0)

    def go_on_without_addresses(self) -> None:
        """Start the steps that fragmentation stopped, without addresses: judged by the number of free bytes alone, the
        oldest step can always start once the others are complete."""
        self.has_addresses = False
        self.changed = self.all_engines
        for k in range(self.count):
            self.no_room[k] = -1
        self.start_all(self.stopped)

    def advance(self, most: int) -> None:
        """Process a number of events at most."""
        count = self.count
        while self.events > 0 and most > 0 and not self.late:
            most -= 1
            time, number = self.times[0], self.numbers[0]
            self.pop()
            if number < count:
                self.ended(number)
                self.has_news = True
                if self.ends_early and number % CHECKED == 0 and self.least_end(time) > self.latest:
                    self.late = True
                    return
            else:
                if number < 2 * count:
                    released = self.seen_by_itself(number - count)
                else:
                    released = self.complete(number - 2 * count)
                self.has_news = self.has_news or released
                self.end = time
            if self.events == 0 or (self.has_news and self.times[0] > time and (self.changed & self.is_free) != 0):
                self.start_all(time)
                self.has_news = False
                self.stopped = time

    def least_end(self, time: float) -> float:
        """Return a time before which the steps cannot all end: behind each step that has started, its longest chain of
        dependences has to run, and each engine has to run the steps that no other engine may run."""
        least = self.end_of_chains
        for engine in range(self.engines):
            least = max(least, max(self.free_at[engine], time) + self.missing_ns[engine])
        return least

    def make_ready(self, k: int) -> None:
        rank, mask = self.ranks[k], self.masks[k]
        for engine in range(self.engines):
            if (mask >> engine) & 1 != 0:
                self.add_ready(engine, rank)
        self.changed |= mask

    def seen_by_itself(self, k: int) -> bool:
        """Release the steps that run only on the engine of step ``k``, which sees the result before the others. Return
        whether one of them is ready now."""
        engine, news = self.engine_of[k], False
        for at in range(self.users_start[k], self.users_start[k + 1]):
            user = self.users[at]
            if self.only[user] == engine:
                self.missing[user] -= 1
                if self.missing[user] == 0:
                    self.make_ready(user)
                    news = True
        return news

    def complete(self, k: int) -> bool:
        """Release the other steps that wait for a step, and its memory; return whether another step may start now. A
        step that may run on several engines waits as if it ran on another engine."""
        transfer = self.is_transfer[k] != 0
        engine, news = self.engine_of[k], transfer
        seen_by = -2 if transfer else engine
        for at in range(self.users_start[k], self.users_start[k + 1]):
            user = self.users[at]
            if self.only[user] != seen_by:
                self.missing[user] -= 1
                if self.missing[user] == 0:
                    self.make_ready(user)
                    news = True
        if transfer:
            self.queues[2 * engine + self.stores[k]] -= 1
            self.changed |= 1 << engine
        for at in range(self.buffers_start[k], self.buffers_start[k + 1]):
            buffer = self.buffers[at]
            self.uses[buffer] -= 1
            if self.uses[buffer] == 0:
                if not transfer:
                    self.forget_soon(engine, buffer)
                self.give_back(buffer)
                news = True
        return news

    def forget_soon(self, engine: int, buffer: int) -> None:
        """Remove a buffer from the engine's ``soon`` buffers, if it is among them."""
        start, remaining = engine * self.buffer_count, 0
        for at in range(start, start + self.soon_count[engine]):
            if self.soon[at] != buffer:
                self.soon[start + remaining] = self.soon[at]
                remaining += 1
        self.soon_count[engine] = remaining

    def ended(self, k: int) -> None:
        """Free the engine of a step. The engine itself may reuse buffers that the step was the last to use, although
        others do not see the step as complete."""
        engine = self.engine_of[k]
        self.is_free |= 1 << engine
        if not self.port_free and self.port[self.forms[k] * self.engines + engine] != 0:
            self.port_free = True
            self.changed = self.all_engines
        if self.is_transfer[k] == 0:
            for at in range(self.buffers_start[k], self.buffers_start[k + 1]):
                buffer = self.buffers[at]
                if self.uses[buffer] == 1:
                    self.soon[engine * self.buffer_count + self.soon_count[engine]] = buffer
                    self.soon_count[engine] += 1

    def release_early(self, engine: int, k: int) -> bool:
        """Free the buffers whose last user was a step of the engine, if another step of the engine needs such memory:
        only other engines have to wait for the end. Return whether any were freed."""
        spaces, start, count = 0, engine * self.buffer_count, self.soon_count[engine]
        for at in range(self.buffers_start[k], self.buffers_start[k] + self.absent_count[k]):
            spaces |= 1 << self.space[self.absent[at]]
        remaining = 0
        for at in range(start, start + count):
            buffer = self.soon[at]
            if (spaces >> self.space[buffer]) & 1 != 0:
                self.uses[buffer] = self.count          # so that its last user does not free it again
                self.give_back(buffer)
            else:
                self.soon[start + remaining] = buffer
                remaining += 1
        self.soon_count[engine] = remaining
        return remaining < count

    def start_all(self, time: float) -> None:
        """Start steps on free engines until no engine can start one."""
        if self.events == 0:
            self.changed = self.all_engines
        progress = True
        while progress and (self.changed & self.is_free) != 0:
            progress, pending = False, self.changed & self.is_free
            while pending != 0:
                bit = pending & -pending
                engine = bit.bit_length() - 1
                if self.ready[engine] == 0:
                    self.changed ^= bit
                else:
                    k = self.pop_step(engine, time)
                    if k >= 0:
                        self.start(k, engine, time)
                        progress = True
                pending = self.changed & self.is_free & (-2 * bit)      # the engines after this one
        self.move(time)

    def pop_step(self, engine: int, time: float) -> int:
        """Remove the first ready step that memory allows, and return it; -1: there is none. After -1 the engine is not
        ``changed``, unless it left a step to another engine that is not free yet, because that depends on time."""
        idle, version, rank, looked, deferred, waits = self.events == 0, self.version, 0, 0, 0, False
        memory, nothing_soon = 2 * version + idle, self.soon_count[engine] == 0
        while looked < self.passed:
            rank = self.next_ready(engine, rank)
            if rank < 0:
                break
            k = self.by_rank[rank]
            if self.may_have_room(k, engine, memory, nothing_soon, idle):
                if not idle and self.only[k] < 0 and self.better_elsewhere(k, engine, time):
                    waits = True
                elif engine == self.scalar and self.takes_turns and self.tables[k] > 0 and self.tables[k] != self.table:
                    self.deferred[deferred] = k             # used if no ready step needs the loaded functions
                    deferred += 1
                elif self.has_room(k, engine):
                    return self.remove_ready(k)
            rank += 1
            looked += 1
        for at in range(deferred):
            if self.has_room(self.deferred[at], engine):
                return self.remove_ready(self.deferred[at])
        k = self.oldest
        if self.missing[k] == 0 and (self.masks[k] >> engine) & 1 != 0 and (
                idle or self.only[k] >= 0) and self.has_room(k, engine):
            return self.remove_ready(k)
        if not waits and version == self.version:
            self.changed &= ~(1 << engine)
        return -1

    def may_have_room(self, k: int, engine: int, memory: int, nothing_soon: bool, idle: bool) -> bool:
        """Return False if it is known that a step finds no room. The engine then waits for what is missing."""
        transfer = self.is_transfer[k] != 0
        if not idle and self.lacking[k] > self.free[0] and (nothing_soon or transfer):
            self.sleep(1 << engine, 0, self.lacking[k])
            return False
        if self.no_room[k] == memory:
            self.light_sleepers |= 1 << engine
            return False
        if not idle and self.limits_unread and self.unread.is_stopped(k):
            self.reads_wait |= 1 << engine
            return False
        return idle or not transfer or self.queues[2 * engine + self.stores[k]] < QUEUES

    def has_room(self, k: int, engine: int) -> bool:
        """Return whether a step can start; its new buffers then have addresses."""
        if self.can_start(k, engine):
            return True
        return self.soon_count[engine] > 0 and self.is_transfer[k] == 0 and (
            self.release_early(engine, k) and self.can_start(k, engine))

    def remove_ready(self, k: int) -> int:
        self.changed |= self.masks[k]
        for engine in range(self.engines):
            if (self.masks[k] >> engine) & 1 != 0:
                self.remove_rank(engine, self.ranks[k])
        return k

    def better_elsewhere(self, k: int, engine: int, time: float) -> bool:
        """Return whether another engine would complete the step earlier, after the steps that are ready there before
        it."""
        rank, start = self.ranks[k], self.forms[k] * self.engines
        ns_here = self.loaded[start + engine] + self.result[start + engine]
        for other in range(self.engines):
            busy, result = self.loaded[start + other], self.result[start + other]
            if other != engine and (self.masks[k] >> other) & 1 != 0 and busy + result < ns_here:
                ahead = max(self.free_at[other] - time, 0.0)
                if ahead + busy + result < ns_here:
                    before = self.next_ready(other, 0)
                    for _ in range(self.passed):
                        if before < 0 or before >= rank:
                            break
                        ahead += self.busy[self.forms[self.by_rank[before]] * self.engines + other]
                        before = self.next_ready(other, before + 1)
                    if ahead + busy + result < ns_here:
                        return True
        return False

    def can_start(self, k: int, engine: int) -> bool:
        """Return whether the PSUM port and a queue are free, the step's new buffers have room, and the remaining steps
        could still run in program order. Then the buffers have addresses; else the engine waits for what is missing."""
        transfer, busy = self.is_transfer[k] != 0, self.events > 0
        if not self.port_free and self.port[self.forms[k] * self.engines + engine] != 0:
            return False
        if transfer and busy:
            if self.queues[2 * engine + self.stores[k]] >= QUEUES:
                return False
            if self.limits_unread and not self.unread.has_room(k):
                self.reads_wait |= 1 << engine
                return False
        if self.absent_count[k] == 0 or self.allows(k, transfer, busy):
            return True
        self.sleep(1 << engine, self.lacks, self.least)
        if transfer:                            # other steps may get buffers that their engine used last
            self.no_room[k] = 2 * self.version + (not busy)
        return False

    def start(self, k: int, engine: int, time: float) -> None:
        choice = self.forms[k] * self.engines + engine
        self.order[self.ordered] = k
        self.ordered += 1
        self.started[k], self.starts[k], self.engine_of[k] = 1, time, engine
        if self.absent_count[k] > 0:
            self.occupy(k)
        if k == self.oldest:
            while self.oldest < self.count and self.started[self.oldest] != 0:
                self.oldest += 1
            if self.oldest < self.count:
                self.changed |= self.masks[self.oldest]
            self.next_version()
        if self.limits_unread and self.unread.start(k):
            self.next_version()
            self.changed |= self.reads_wait
            self.reads_wait = 0
        if self.only[k] >= 0:
            self.missing_ns[engine] -= self.busy[choice]
        if self.ends_early:
            self.end_of_chains = max(self.end_of_chains, time + self.rests[k])
        free = self.occupy_engine(k, engine, time)
        self.push(free, k)
        if self.is_transfer[k] != 0:
            self.triggered[self.trigger_order[engine]] = k
            self.queues[2 * engine + self.stores[k]] += 1
            return
        for at in range(self.users_start[k], self.users_start[k + 1]):
            if self.only[self.users[at]] == engine:
                self.push(free + self.result_in_engine[choice], k + self.count)
                break
        self.push(free + self.result[choice], k + 2 * self.count)


CODE = CompiledClass(ListScheduler, ("begin", "go_on_without_addresses", "advance"), PAYS_OFF)


class SchedulerRun:
    """A run of the scheduler, as machine code or as Python."""

    def __init__(self, graph: SchedulingGraph, order: Order, base: dict[str, int] | None, most: float,
                 rotates: bool = True) -> None:
        self.graph, self.state = graph, ListScheduler(graph, order, base, most, rotates)
        self.record = InstanceRecord(self.state) if CODE.is_ready(len(graph)) else None
        self.engines = graph.step_engines(order.share, order.issue).engines
        if self.record is None:
            with_lists(self.state)

    def run(self) -> bool:
        """Start all steps. Return False if the free bytes become too fragmented, or if the end is ``late``."""
        self.call("begin")
        return self.advance_all()

    def continue_without_addresses(self) -> None:
        self.call("go_on_without_addresses")
        self.advance_all()

    def advance_all(self) -> bool:
        state = self.state
        with phase("scheduling", len(self.graph) - state.ordered, "instructions") as advance:
            while state.events and not state.late:
                before = state.ordered
                self.call("advance", SLICE)
                advance(state.ordered - before)
        return state.ordered == len(self.graph)

    def call(self, name: str, *arguments: int) -> None:
        if self.record is None:
            getattr(self.state, name)(*arguments)
        else:
            CODE.functions[name](self.record.address, *arguments)
            self.record.read()

    def schedule(self) -> ListSchedule | TooLate:
        state, engines = self.state, self.engines
        if state.late:
            return TooLate(self.least_loads())
        columns: list[Any] = [state.order, state.engine_of, state.starts, state.addresses]
        order, engine_of, starts, addresses = columns if self.record is None else [
            column.tolist() for column in columns]
        return ListSchedule(order, [engines[e] for e in engine_of], addresses if state.has_addresses else None,
                            state.end, starts, self.least_loads())

    def least_loads(self) -> int:
        """Return the least percent of SBUF such that no load started beyond it."""
        limit, spare = int(self.state.limit[0]), max(self.state.spare, 0)
        return next(loads for loads in range(101) if limit * (100 - loads) // 100 <= spare)
