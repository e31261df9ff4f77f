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

from bisect import bisect_left, insort
from heapq import heappop, heappush
from math import inf

from nki_mlir.machine import ENGINES, Engine
from nki_mlir.progress import Advance, phase
from nki_mlir.targets.neuron.codegen.least_end import LeastEnd
from nki_mlir.targets.neuron.codegen.scheduled_memory import ScheduledMemory
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from nki_mlir.targets.neuron.codegen.scheduling_order import ListSchedule, Order, TooLate
from nki_mlir.targets.neuron.codegen.segment_waits import QUEUES
from nki_mlir.targets.neuron.codegen.unread_loads import UnreadLoads
from nki_mlir.targets.neuron.timing.ramp import RampState
from nki_mlir.targets.neuron.timing.transfers import DmaEngines, Hbm

CHECKED = 64                    # the end is estimated when one of this many steps ends


def list_schedule(graph: SchedulingGraph, order: Order, base: dict[str, int] | None) -> ListSchedule:
    """Return the schedule of a run. ``base``: where free memory begins, by memory; None: assign no addresses."""
    schedule = list_schedule_within(graph, order, base, inf)
    assert isinstance(schedule, ListSchedule)
    return schedule


def list_schedule_within(graph: SchedulingGraph, order: Order, base: dict[str, int] | None, most: float
                         ) -> ListSchedule | TooLate:
    """Return the schedule; ``TooLate`` as soon as it is certain that it would end after ``most`` ns."""
    run = _ListScheduler(graph, order, base, most)
    if not run.run() and not run.late:              # too fragmented: without rotation of the banks gaps are larger
        packed = _ListScheduler(graph, order, base, most, rotates=False)
        if packed.run() or packed.late:
            run = packed
        else:
            run.continue_without_addresses()
    if run.late:
        return TooLate(run.least_loads())
    engines = [run.engines[e] for e in run.engine_of]
    return ListSchedule(run.order, engines, run.addresses if run.free_ranges else None, run.end, run.starts,
                        run.least_loads())


class _ListScheduler(ScheduledMemory):
    """Engines have numbers, in the order in which they choose. An event is its time and a number. The number of a step
    means that its engine is free; plus ``count``, that its own engine sees the result; plus twice ``count``, that all
    engines see it. ``free``: the free engines, as bits.
    """

    def __init__(self, graph: SchedulingGraph, order: Order, base: dict[str, int] | None, most: float,
                 rotates: bool = True) -> None:
        machine = graph.machine
        self.latest, self.late = most * (1 + 1e-9), False       # the end is a sum of many numbers
        self.least_end = LeastEnd(graph.least_rests(order.share, order.issue)) if most < inf else None
        self.machine, self.passed = machine, order.passed
        self.count = count = len(graph)
        step_engines = graph.step_engines(order.share, order.issue)
        self.engines, self.engines_of = step_engines.engines, step_engines.several
        self.only, self.on, self.rivals = step_engines.only, step_engines.on, step_engines.rivals
        super().__init__(graph, order, base, rotates, step_engines.masks)
        self.ranks = graph.ranks(order.ahead)
        self.by_rank = [0] * count
        for k, rank in enumerate(self.ranks):
            self.by_rank[rank] = k
        self.is_transfer = [transfer is not None for transfer in graph.transfers]
        self.engine_of = [0] * count            # the engine of each started step
        self.missing, self.users = [len(before) for before in graph.before], graph.users
        self.unread = UnreadLoads(graph, order.unread) if order.unread else None
        self.started = [False] * count
        self.starts = [0.0] * count
        self.ready: list[list[int]] = [[] for _ in self.engines]               # ranks, sorted
        self.free_at = [0.0] * len(self.engines)
        self.free = self.all_engines = (1 << len(self.engines)) - 1
        self.soon: list[list[tuple[int, int]]] = [[] for _ in self.engines]
        self.missing_ns = list(step_engines.alone)      # ns of the steps to start that no other engine may run
        self.reads_wait = 0                     # engines, as bits, that wait for a step that reads loaded tiles
        self.events: list[tuple[float, int]] = []
        self.dma = DmaEngines(machine, Hbm(machine, 1))
        self.turns = [ENGINES.index(engine) for engine in self.engines]
        self.triggered: list[tuple[int, int]] = []      # started transfers, each after its engine's number in ``turns``
        self.queues = [0] * (2 * len(self.engines))     # transfers that are under way: loads and stores of each engine
        self.port_free = True
        ramps = [machine.costs.engines[engine].ramp for engine in self.engines]
        self.ramps = [None if ramp is None else RampState(ramp) for ramp in ramps]
        self.scalar = self.engines.index(Engine.SCALAR) if Engine.SCALAR in self.engines else -1
        self.table, self.scalar_free = "", 0.0  # the set of functions that the scalar engine has, and when it is free
        self.order: list[int] = []
        self.end = self.stopped = 0.0           # ``stopped``: when a step could start last
        for k, missing in enumerate(self.missing):
            if not missing:
                self.make_ready(k)

    def run(self) -> bool:
        """Start all steps. Return False if the free bytes become too fragmented, or if the end is ``late``."""
        with phase("scheduling", self.count, "instructions") as advance:
            self.start_all(0.0)
            self.advance_all(advance)
        return len(self.order) == self.count

    def continue_without_addresses(self) -> None:
        """Start the steps that fragmentation stopped. By the number of free bytes, the oldest step could always
        start once the others are complete."""
        self.free_ranges = []
        self.changed = self.all_engines
        self.no_room = [-1] * self.count
        with phase("scheduling", self.count - len(self.order), "instructions") as advance:
            self.start_all(self.stopped)
            self.advance_all(advance)

    def advance_all(self, advance: Advance) -> None:
        events, count, changed = self.events, self.count, False
        while events:
            time, number = heappop(events)
            if number < count:
                self.ended(number)
                changed = True
                advance()
                if self.least_end is not None and not number % CHECKED and (
                        self.least_end.at(time, self.free_at, self.missing_ns) > self.latest):
                    self.late = True
                    return
            else:
                if number < 2 * count:
                    changed |= self.seen_by_itself(number - count)
                else:
                    changed |= self.complete(number - 2 * count)
                self.end = time
            if not events or (changed and events[0][0] > time and self.changed & self.free):
                self.start_all(time)
                changed = False
                self.stopped = time

    def make_ready(self, k: int) -> None:
        rank = self.ranks[k]
        for e in self.engines_of[k]:
            insort(self.ready[e], rank)
        self.changed |= self.engine_masks[k]

    def seen_by_itself(self, k: int) -> bool:
        """Release the steps that run only on the step's own engine, which sees a result before the others. Return
        whether one of them is ready now."""
        missing, only, engine = self.missing, self.only, self.engine_of[k]
        changed = False
        for user in self.users[k]:
            if only[user] == engine:
                missing[user] -= 1
                if not missing[user]:
                    self.make_ready(user)
                    changed = True
        return changed

    def complete(self, k: int) -> bool:
        """Release the other steps that wait for a step, and its memory; return whether another step may start now. A
        step that may run on several engines waits as if it ran on another engine."""
        missing, only = self.missing, self.only
        changed = transfer = self.is_transfer[k]
        engine = -2 if transfer else self.engine_of[k]
        for user in self.users[k]:
            if only[user] != engine:
                missing[user] -= 1
                if not missing[user]:
                    self.make_ready(user)
                    changed = True
        if transfer:
            self.queues[2 * self.engine_of[k] + self.graph.stores[k]] -= 1
            self.changed |= 1 << self.engine_of[k]
        uses = self.uses
        for buffer in self.graph.buffers[k]:
            uses[buffer] -= 1
            if not uses[buffer]:
                if not transfer and (buffer, k) in (soon := self.soon[engine]):
                    soon.remove((buffer, k))
                self.give_back(buffer)
                changed = True
        return changed

    def ended(self, k: int) -> None:
        """Free the engine of a step. The engine itself may reuse buffers that the step was the last to use, although
        others do not see the step as complete."""
        engine = self.engine_of[k]
        self.free |= 1 << engine
        if not self.port_free and self.on[k][engine].port:                  # type: ignore[union-attr]
            self.port_free = True
            self.changed = self.all_engines
        if not self.is_transfer[k]:
            uses = self.uses
            for buffer in self.graph.buffers[k]:
                if uses[buffer] == 1:
                    self.soon[engine].append((buffer, k))

    def release_early(self, engine: int, k: int) -> bool:
        """Free the buffers whose last user was a step of the engine, if another step of the engine needs such memory:
        only other engines have to wait for the end. Return whether there were any."""
        space = self.space
        spaces = {space[buffer] for buffer in self.absent[k]}
        soon = [entry for entry in self.soon[engine] if space[entry[0]] in spaces]
        if not soon:
            return False
        for buffer, _ in soon:
            self.uses[buffer] = self.count      # its last user does not free it again
            self.give_back(buffer)
        self.soon[engine] = [entry for entry in self.soon[engine] if entry not in soon]
        return True

    def start_all(self, time: float) -> None:
        """Start on every free engine, until none can."""
        ready = self.ready
        if not self.events:
            self.changed = self.all_engines
        while pending := self.changed & self.free:
            progress = False
            while pending:
                bit = pending & -pending
                engine = bit.bit_length() - 1
                if not ready[engine]:
                    self.changed ^= bit
                elif (k := self.take(engine, ready[engine], time)) >= 0:
                    self.start(k, engine, time)
                    progress = True
                pending = self.changed & self.free & -2 * bit           # the engines after this one
            if not progress:
                break
        if self.triggered:
            self.move(time)

    def take(self, engine: int, ready_steps: list[int], time: float) -> int:
        """Remove the first ready step that memory allows, and return it; -1: there is none. Then the engine has not
        ``changed``, unless another engine, not free yet, will take a step: that depends on time."""
        idle, loads, stores = not self.events, self.queues[2 * engine], self.queues[2 * engine + 1]
        turns = self.graph.takes_turns and engine == self.scalar
        deferred: list[int] = []                  # steps to take if no step needs the loaded functions
        waits = False
        bit, version, room, lacking = 1 << engine, self.version, self.room, self.lacking
        memory, by_rank, no_room, only = 2 * version + idle, self.by_rank, self.no_room, self.only
        nothing_soon = not self.soon[engine]
        full = not idle and (loads >= QUEUES or stores >= QUEUES)
        stopped = () if idle or self.unread is None else self.unread.stopped()  # until ``version`` changes
        for rank in ready_steps[:self.passed]:
            k = by_rank[rank]
            if lacking[k] > room[0] and not idle and (nothing_soon or self.is_transfer[k]):
                self.sleep(bit, 0, lacking[k])
                continue
            if no_room[k] == memory:
                self.light_sleepers |= bit
                continue
            if k in stopped:
                self.reads_wait |= bit
                continue
            if full and self.is_transfer[k] and (stores if self.graph.stores[k] else loads) >= QUEUES:
                continue
            if only[k] < 0 and not idle and self.rivals[k][engine][1] and self.better_elsewhere(k, engine, time):
                waits = True
            elif turns and self.graph.tables[k] not in ("", self.table):
                deferred.append(k)
            elif self.has_room(k, engine):
                return self.remove_ready(k)
        for k in deferred:
            if self.has_room(k, engine):
                return self.remove_ready(k)
        k = self.oldest
        if not self.missing[k] and engine in self.engines_of[k] and (
                idle or only[k] >= 0) and self.has_room(k, engine):
            return self.remove_ready(k)
        if not waits and version == self.version:
            self.changed &= ~bit
        return -1

    def has_room(self, k: int, engine: int) -> bool:
        """Return whether a step can start; its new buffers then have addresses."""
        if self.can_start(k, engine):
            return True
        return bool(self.soon[engine]) and not self.is_transfer[k] and (
            self.release_early(engine, k) and self.can_start(k, engine))

    def remove_ready(self, k: int) -> int:
        rank = self.ranks[k]
        self.changed |= self.engine_masks[k]
        for e in self.engines_of[k]:
            ready_steps = self.ready[e]
            del ready_steps[bisect_left(ready_steps, rank)]
        return k

    def better_elsewhere(self, k: int, engine: int, time: float) -> bool:
        """Return whether another engine would complete the step earlier, after the steps that are ready there before
        it."""
        rank, by_rank, on, free_at = self.ranks[k], self.by_rank, self.on, self.free_at
        ns_here, rivals = self.rivals[k][engine]
        for e, busy, result in rivals:
            ahead = free_at[e] - time
            if ahead < 0.0:
                ahead = 0.0
            if ahead + busy + result >= ns_here:
                continue
            for before in self.ready[e][:self.passed]:
                if before >= rank:
                    break
                ahead += on[by_rank[before]][e].busy                        # type: ignore[union-attr]
            if ahead + busy + result < ns_here:
                return True
        return False

    def can_start(self, k: int, engine: int) -> bool:
        """Return whether the PSUM port and a queue are free, the step's new buffers have room, and the remaining steps
        could still run in program order. Then the buffers have addresses; else the engine waits for what is missing."""
        if not self.port_free and self.on[k][engine].port:                  # type: ignore[union-attr]
            return False
        transfer = self.is_transfer[k]
        if transfer and self.events:
            if self.queues[2 * engine + self.graph.stores[k]] >= QUEUES:
                return False
            if self.unread is not None and not self.unread.has_room(k):
                self.reads_wait |= 1 << engine
                return False
        new = self.absent[k]
        if not new or self.allows(k, new, transfer, bool(self.events)):
            return True
        self.sleep(1 << engine, self.lacks, self.least)
        if transfer:                            # other steps may get buffers that their engine used last
            self.no_room[k] = 2 * self.version + (not self.events)
        return False

    def begin(self, k: int, time: float) -> float:
        """Return when a step begins if it is started now. The scalar engine loads functions once its last step has
        ended."""
        table = self.graph.tables[k]
        if table in ("", self.table):
            return time
        self.table = table
        return max(time, self.scalar_free + self.machine.costs.control.table_load_ns)

    def start(self, k: int, engine: int, time: float) -> None:
        graph, oldest = self.graph, self.oldest
        choice = self.on[k][engine]
        assert choice is not None
        self.order.append(k)
        self.started[k] = True
        self.starts[k] = time
        self.engine_of[k] = engine
        if self.absent[k]:
            self.occupy(k)
        if k == oldest:
            started = self.started
            while oldest < self.count and started[oldest]:
                oldest += 1
            self.oldest = oldest
            if oldest < self.count:
                self.changed |= self.engine_masks[oldest]
            self.next_version()
        if self.unread is not None and self.unread.start(k):
            self.next_version()
            self.changed |= self.reads_wait
            self.reads_wait = 0
        self.free &= ~(1 << engine)
        if choice.port:
            self.port_free = False
        begin = time if graph.tables[k] == "" else self.begin(k, time)
        ramp = self.ramps[engine] if choice.share else None
        free = begin + choice.busy if ramp is None else ramp.end(begin, choice.busy, choice.share)
        self.free_at[engine] = free
        if self.only[k] >= 0:
            self.missing_ns[engine] -= choice.busy
        if self.least_end is not None and (end := time + self.least_end.rests[k]) > self.least_end.of_chains:
            self.least_end.of_chains = end
        if engine == self.scalar:
            self.scalar_free = free
        heappush(self.events, (free, k))
        if self.is_transfer[k]:
            self.triggered.append((self.turns[engine], k))
            self.queues[2 * engine + graph.stores[k]] += 1
        else:
            only = self.only
            for user in self.users[k]:
                if only[user] == engine:
                    heappush(self.events, (free + choice.result_in_engine, k + self.count))
                    break
            heappush(self.events, (free + choice.result, k + 2 * self.count))

    def move(self, time: float) -> None:
        """Move the transfers that were triggered now. DMA engines take those of one time in the order of the
        engines."""
        dma = self.machine.costs.dma
        for _, k in sorted(self.triggered):
            transfer = self.graph.transfers[k]
            assert transfer is not None
            moved = time + dma.trigger_ns + transfer.under_way
            if not transfer.under_way:
                moved = self.dma.move(transfer, moved, k)[1]
            heappush(self.events, (moved + dma.notify_ns, k + 2 * self.count))
        self.triggered.clear()
