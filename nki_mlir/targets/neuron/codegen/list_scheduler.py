# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One order of a run of steps, with their engines and the addresses of their buffers, by list scheduling.

Time goes on from event to event. Whenever an engine is free it takes, of the steps whose operands are there, the first
by rank; the scalar engine one that needs the functions that it has, if there is one. A step that may run on several
engines goes to the one that has it done first. Times are those of the timed machine: laws, results, ramps, DMA
engines, queues, the PSUM port, loads of functions.

On-chip memory is a resource. A buffer gets its address when its first step starts, and gives it back when its last user
is complete, so that nothing in the order waits for an address. A step that needs a new buffer waits while there is no
room, and while it would take the room that the steps left need in program order. Where free bytes are too scattered the
scheduler goes on by their number alone; then it gives no addresses.
"""

from bisect import bisect_left, insort
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.machine import ENGINES, Engine
from nki_mlir.progress import Advance, phase
from nki_mlir.targets.neuron.codegen.address_map import FreeRanges
from nki_mlir.targets.neuron.codegen.scheduling_graph import SPACES, Choice, SchedulingGraph
from nki_mlir.targets.neuron.codegen.segment_waits import QUEUES
from nki_mlir.targets.neuron.timing.ramp import RampState
from nki_mlir.targets.neuron.timing.transfers import DmaEngines, Hbm

MEMORY = 100                     # percent
ENGINE_FREE, SEEN_BY_ITSELF, COMPLETE = range(3)
PASSED_OVER = 4                 # ready steps that are looked at
LONG = 8                        # a buffer that is needed for this part of the steps, or longer, is kept apart
FIRST = (Engine.SYNC, Engine.TENSOR, Engine.GPSIMD, Engine.VECTOR, Engine.SCALAR)      # who chooses first


class Order(NamedTuple):
    """How an order is found. ``memory``: percent of on-chip memory that buffers may fill; ``ahead``: how early what a
    long chain waits for starts, in percent of the time that the chain takes; ``share``: which engines a step may go to
    that may run on several, when it starts: its first (0); all but that GpSimd computes (1); all (2); or, but for
    transfers, the one that balances the engines in program order (3). ``passed``: how
    many ready steps are looked at for one that can start; ``issue``: any engine that can triggers an open transfer;
    ``loads``: percent of SBUF beyond which no load starts, which leaves room for results of what is loaded."""

    memory: int = MEMORY
    ahead: int = 0
    share: int = 2
    passed: int = PASSED_OVER
    issue: bool = True
    loads: int = 100


class ListSchedule(NamedTuple):
    """``order``: the steps; ``engines`` and ``addresses``: by step and by buffer; ``ns``: when the last is complete;
    ``starts``: when each step starts, nothing where some find no room."""

    order: list[int]
    engines: list[Engine]
    addresses: list[int] | None
    ns: float
    starts: list[float] = []


def list_schedule(graph: SchedulingGraph, order: Order, base: dict[str, int] | None) -> ListSchedule:
    """``base``: where free memory begins, by memory; None: give no addresses."""
    run = _ListScheduler(graph, order, base)
    run.run()
    if len(run.found) < len(graph):
        return ListSchedule(list(range(len(graph))), [some[0].engine for some in graph.choices], None, inf)
    return ListSchedule(run.found, run.engines, run.addresses if run.free_ranges else None, run.end, run.starts)


class _ListScheduler:
    def __init__(self, graph: SchedulingGraph, order: Order, base: dict[str, int] | None) -> None:
        machine = graph.machine
        self.graph, self.machine, self.passed = graph, machine, order.passed
        count = len(graph)
        self.choices = graph.shared(order.share, order.issue)
        firsts = [some[0] for some in graph.choices]
        self.ranks = graph.ranks(order.ahead, firsts)
        self.by_rank = [0] * count
        for k, rank in enumerate(self.ranks):
            self.by_rank[rank] = k
        self.chosen: list[Choice] = firsts
        self.engines = [choice.engine for choice in firsts]
        self.missing = [len(before) for before in graph.before]
        limits = {SBUF: machine.sbuf_bytes_per_partition, PSUM: machine.psum_bytes_per_partition}
        self.limit = [max(limits[s] * order.memory // 100, min(int(graph.needed[s].max()), limits[s])) for s in SPACES]
        self.needed = [graph.needed[s].copy() for s in SPACES]     # at each step, if the rest is in program order
        self.room = [limit - graph.outside[s] for limit, s in zip(self.limit, SPACES)]
        self.results = self.limit[0] * (100 - order.loads) // 100       # bytes of SBUF that loads leave
        self.space = [SPACES.index(buffer.space) for buffer in graph.held]
        self.free_ranges = [FreeRanges(base[s], limits[s], machine.psum_bank_bytes if s == PSUM else 0)
                            for s in SPACES] if base is not None else []
        self.addresses = [0] * len(graph.held)
        self.long = [last - first > max(count // LONG, 64) for first, last in zip(graph.first, graph.last)]
        self.uses = list(graph.uses)
        self.released = 0                       # how often memory was freed
        self.no_room: list[tuple[int, int, bool] | None] = [None] * count      # the state in which a transfer had none
        self.live = [False] * len(graph.held)
        self.oldest = 0
        self.started = [False] * count
        self.starts = [0.0] * count
        engines = {choice.engine for some in self.choices for choice in some}
        self.ready: dict[Engine, list[int]] = {engine: [] for engine in FIRST if engine in engines}     # ranks, sorted
        self.free_at = dict.fromkeys(self.ready, 0.0)
        self.free = set(self.ready)
        self.soon: dict[Engine, list[tuple[int, int]]] = {engine: [] for engine in self.ready}
        self.load = self.pressures()
        self.refused: dict[Engine, tuple[int, int, int, int, bool, bool]] = {}  # the state in which none could start
        self.events: list[tuple[float, int, int]] = []        # time, kind, step
        self.dma = DmaEngines(machine, Hbm(machine, 1))
        self.triggered: list[tuple[int, int]] = []      # now: by the engine's number, the steps
        self.queues: dict[tuple[Engine, bool], int] = {}        # transfers that are under way
        self.port_free = True
        ramps = {engine: machine.costs.engines[engine].ramp for engine in self.ready}
        self.ramps = {engine: RampState(ramp) for engine, ramp in ramps.items() if ramp is not None}
        self.table, self.scalar_free = "", 0.0  # the set of functions that the scalar engine has, and when it is free
        self.found: list[int] = []
        self.end = 0.0

    def pressures(self) -> dict[Engine, float]:
        """Of each engine the part of the time that it is busy with steps that no other may have: what a step costs
        others that is given to it."""
        alone = dict.fromkeys(self.ready, 0.0)
        for some in self.choices:
            if len(some) == 1:
                alone[some[0].engine] += some[0].busy
        most = max(max(alone.values(), default=0.0), 1.0)
        return {engine: busy / most for engine, busy in alone.items()}

    def run(self) -> None:
        with phase("scheduling", len(self.missing), "instructions") as advance:
            self.advance_all(advance)

    def advance_all(self, advance: Advance) -> None:
        for k, missing in enumerate(self.missing):
            if not missing:
                self.make_ready(k)
        self.start_all(0.0)
        if not self.events:
            self.scattered(0.0)
        events = self.events
        changed = False
        while events:
            now, kind, k = heappop(events)
            if kind == ENGINE_FREE:
                choice = self.chosen[k]
                self.free.add(choice.engine)
                self.port_free |= choice.port
                changed = True
                self.ended(k)
                advance()
            else:
                changed |= self.complete(k, kind)
                self.end = now
            if not events or (changed and events[0][0] > now):
                self.start_all(now)
                changed = False
                if not events and len(self.found) < len(self.started):
                    self.scattered(now)

    def scattered(self, now: float) -> None:
        """Nothing can start and nothing will end: go on without addresses."""
        self.free_ranges = []
        self.refused.clear()
        self.no_room = [None] * len(self.no_room)
        self.start_all(now)

    def make_ready(self, k: int) -> None:
        rank = self.ranks[k]
        for choice in self.choices[k]:
            insort(self.ready[choice.engine], rank)

    def complete(self, k: int, kind: int) -> bool:
        """Release who waits: steps of the same engine see a result before others do. Whether any waited. A step that
        may run on several engines waits as if it were on another."""
        graph, missing = self.graph, self.missing
        changed = False
        issuer = self.engines[k] if graph.transfers[k] is None else None
        for user in graph.users[k]:
            some = self.choices[user]
            if (len(some) == 1 and some[0].engine is issuer) == (kind == SEEN_BY_ITSELF):
                missing[user] -= 1
                if not missing[user]:
                    self.make_ready(user)
                    changed = True
        if kind == COMPLETE:
            if issuer is None:
                self.queues[self.engines[k], graph.stores[k]] -= 1
                changed = True
            changed |= self.release(k)
        return changed

    def ended(self, k: int) -> None:
        """A step of an engine has ended and is not seen as complete: what it was the last to use may be taken by the
        engine itself."""
        if self.graph.transfers[k] is None:
            mine = self.soon[self.engines[k]]
            mine += [(buffer, k) for buffer in self.graph.buffers[k] if self.uses[buffer] == 1]

    def release(self, k: int) -> bool:
        """Give back the memory that no other step needs; whether there was some."""
        released = False
        for buffer in self.graph.buffers[k]:
            self.uses[buffer] -= 1
            if not self.uses[buffer]:
                if (buffer, k) in (mine := self.soon[self.engines[k]]):
                    mine.remove((buffer, k))
                self.give_back(buffer)
                released = True
        return released

    def give_back(self, buffer: int) -> None:
        space, size = self.space[buffer], self.graph.size[buffer]
        self.room[space] += size
        if self.graph.last[buffer] >= self.oldest:
            self.needed[space][self.oldest:self.graph.last[buffer] + 1] -= size
        if self.free_ranges:
            self.free_ranges[space].give(self.addresses[buffer], size)
        self.released += 1

    def release_early(self, engine: Engine, k: int) -> bool:
        """Give back what a step of the engine was the last to use, where another one needs such memory, of which only
        other engines have to wait for the end. Whether there was some."""
        spaces = {self.space[buffer] for buffer in self.graph.buffers[k] if not self.live[buffer]}
        soon = [one for one in self.soon[engine] if self.space[one[0]] in spaces]
        for buffer, _ in soon:
            self.uses[buffer] = len(self.started)       # its last user does not give it back again
            self.give_back(buffer)
        self.soon[engine] = [one for one in self.soon[engine] if one not in soon]
        return bool(soon)

    def start_all(self, now: float) -> None:
        """Start on every free engine, until none can."""
        progress = True
        while progress:
            progress = False
            for engine, ready in self.ready.items():
                if ready and engine in self.free and (choice := self.take(engine, ready, now)) is not None:
                    self.start(*choice, now)
                    progress = True
        if self.triggered:
            self.move(now)

    def take(self, engine: Engine, ready: list[int], now: float) -> tuple[int, Choice] | None:
        """The first ready step that memory allows, which is ready no more."""
        state = ready[0], len(ready), self.oldest, self.released, self.port_free, not self.events
        if self.refused.get(engine) == state:
            return None                         # nothing has changed since none was found
        turns = self.graph.takes_turns and engine is Engine.SCALAR
        others: list[tuple[int, Choice]] = []   # if none needs the functions that are there
        waits = False                           # a step is left to an engine that is not free yet: that depends on time
        memory = self.oldest, self.released, not self.events
        for rank in ready[:self.passed]:
            k = self.by_rank[rank]
            if self.no_room[k] == memory:
                continue
            choice = self.on(k, engine)
            if self.events and len(self.choices[k]) > 1 and self.better_elsewhere(k, choice, now):
                waits = True
            elif turns and self.graph.tables[k] not in ("", self.table):
                others.append((k, choice))
            elif self.has_room(k, choice):
                return self.taken(k, choice)
        for k, choice in others:
            if self.has_room(k, choice):
                return self.taken(k, choice)
        oldest = self.oldest
        if not self.missing[oldest] and (choices := [c for c in self.choices[oldest] if c.engine is engine]) and (
                not self.events or len(self.choices[oldest]) == 1) and self.has_room(oldest, choices[0]):
            return self.taken(oldest, choices[0])
        if not waits:
            self.refused[engine] = state
        return None

    def has_room(self, k: int, choice: Choice) -> bool:
        """Whether a step can start, whose new buffers then have addresses."""
        if self.can_start(k, choice):
            return True
        return bool(self.soon[choice.engine]) and self.graph.transfers[k] is None and (
            self.release_early(choice.engine, k) and self.can_start(k, choice))

    def taken(self, k: int, choice: Choice) -> tuple[int, Choice]:
        rank = self.ranks[k]
        for some in self.choices[k]:
            ready = self.ready[some.engine]
            del ready[bisect_left(ready, rank)]
        return k, choice

    def on(self, k: int, engine: Engine) -> Choice:
        for choice in self.choices[k]:
            if choice.engine is engine:
                return choice
        raise KeyError(engine)

    def better_elsewhere(self, k: int, choice: Choice, now: float) -> bool:
        """Whether another engine would have the step done earlier, with what is ready there before it."""
        rank = self.ranks[k]
        mine = choice.busy * (1 + self.load[choice.engine]) + choice.result
        for other in self.choices[k]:
            if other is choice:
                continue
            engine = other.engine
            ahead = max(self.free_at[engine] - now, 0.0)
            for before in self.ready[engine][:self.passed]:
                if before >= rank:
                    break
                ahead += self.on(self.by_rank[before], engine).busy
            if ahead + other.busy * (1 + self.load[engine]) + other.result < mine:
                return True
        return False

    def can_start(self, k: int, choice: Choice) -> bool:
        """Whether the PSUM port and a queue are free and the step's new buffers have room, and what is left could still
        run in program order. Then the buffers have addresses."""
        if choice.port and not self.port_free:
            return False
        graph = self.graph
        if graph.transfers[k] is not None and (
                self.queues.get((choice.engine, graph.stores[k]), 0) >= QUEUES and self.events):
            return False
        new = [buffer for buffer in graph.buffers[k] if not self.live[buffer]]
        if not new or self.memory_allows(k, new):
            return True
        if graph.transfers[k] is not None:      # other steps may be given what their engine used last
            self.no_room[k] = self.oldest, self.released, not self.events
        return False

    def memory_allows(self, k: int, new: list[int]) -> bool:
        """Whether a step's new buffers have room. Until memory is released or the oldest step starts it stays so that
        they have none."""
        graph = self.graph
        for space in {self.space[buffer] for buffer in new}:
            size = sum([graph.size[buffer] for buffer in new if self.space[buffer] == space])
            left = self.results if graph.transfers[k] is not None and self.events and not space else 0
            if size > self.room[space] - left:
                # Nothing gives room back any more, or sums that are in use throughout take more than there is.
                if not (k == self.oldest and not self.events and not self.free_ranges):
                    return False
                continue
            last = max([graph.first[buffer] for buffer in new if self.space[buffer] == space])
            if last > self.oldest and self.needed[space][self.oldest:last].max() + size > self.limit[space]:
                return False
        return not self.free_ranges or self.give_addresses(new)

    def give_addresses(self, new: list[int]) -> bool:
        """Give buffers addresses, all or none."""
        done: list[int] = []
        for buffer in new:
            ranges, size = self.free_ranges[self.space[buffer]], self.graph.size[buffer]
            address = ranges.take(size, self.long[buffer])
            if address is None:
                for other in done:
                    self.free_ranges[self.space[other]].give(self.addresses[other], self.graph.size[other])
                return False
            self.addresses[buffer] = address
            done.append(buffer)
        return True

    def begin(self, k: int, now: float) -> float:
        """When a step begins that could now. Functions are loaded once the scalar engine has done its last step."""
        table = self.graph.tables[k]
        if table in ("", self.table):
            return now
        self.table = table
        return max(now, self.scalar_free + self.machine.costs.control.table_load_ns)

    def start(self, k: int, choice: Choice, now: float) -> None:
        graph = self.graph
        engine = choice.engine
        self.found.append(k)
        self.started[k] = True
        self.starts[k] = now
        self.chosen[k], self.engines[k] = choice, engine
        for buffer in graph.buffers[k]:
            if not self.live[buffer]:
                self.live[buffer] = True
                space, size = self.space[buffer], graph.size[buffer]
                self.room[space] -= size
                if graph.first[buffer] > self.oldest:
                    self.needed[space][self.oldest:graph.first[buffer]] += size
        while self.oldest < len(self.started) and self.started[self.oldest]:
            self.oldest += 1
        self.free.discard(engine)
        self.port_free &= not choice.port
        begin = self.begin(k, now)
        free = self.ramps[engine].end(begin, choice.busy, choice.share) if choice.share else begin + choice.busy
        self.free_at[engine] = free
        if engine is Engine.SCALAR:
            self.scalar_free = free
        heappush(self.events, (free, ENGINE_FREE, k))
        if graph.transfers[k] is None:
            heappush(self.events, (free + choice.own_result, SEEN_BY_ITSELF, k))
            heappush(self.events, (free + choice.result, COMPLETE, k))
        else:
            self.triggered.append((ENGINES.index(engine), k))
            key = engine, graph.stores[k]
            self.queues[key] = self.queues.get(key, 0) + 1

    def move(self, now: float) -> None:
        """Move what was triggered now. DMA engines take what is triggered at one time in the order of the engines."""
        dma = self.machine.costs.dma
        for _, k in sorted(self.triggered):
            transfer = self.graph.transfers[k]
            assert transfer is not None
            moved = now + dma.trigger_ns + transfer.under_way
            if not transfer.under_way:
                moved = self.dma.move(transfer, moved, k)[1]
            heappush(self.events, (moved + dma.notify_ns, COMPLETE, k))
        self.triggered.clear()
