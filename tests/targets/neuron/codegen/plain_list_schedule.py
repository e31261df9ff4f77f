# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""List scheduling as its rules say it, without what makes it fast.

All that a step needs is worked out whenever an engine looks at it, from the steps that started and ended so far.
"""

from dataclasses import dataclass, field

from nki_mlir.machine import ENGINES, Engine
from nki_mlir.targets.neuron.codegen.address_map import FreeRanges
from nki_mlir.targets.neuron.codegen.result_ring import ResultRing, owners_in_ring
from nki_mlir.targets.neuron.codegen.scheduling_graph import SPACES, SchedulingGraph
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from nki_mlir.targets.neuron.timing.ramp import RampState
from tests.targets.neuron.timing.plain_dma_engines import DmaEngines, Hbm

TURNS = Engine.SYNC, Engine.TENSOR, Engine.GPSIMD, Engine.VECTOR, Engine.SCALAR
QUEUES = 8                          # transfers of an engine in one direction


def plain_schedule(graph: SchedulingGraph, options: Order, base: dict[str, int] | None) -> "PlainSchedule":
    """Return the schedule with addresses; if free bytes become too fragmented, with those of banks that are not taken
    in turns; else the first one, continued without addresses."""
    schedule = PlainSchedule(graph, options, base)
    if schedule.complete_order() or base is None:
        return schedule
    packed = PlainSchedule(graph, options, base, rotates=False)
    if packed.complete_order():
        return packed
    schedule.continue_without_addresses()
    return schedule


@dataclass
class PlainSchedule:
    """Runs on creation; then ``order``, ``starts``, ``chosen`` engines, ``addresses`` and ``ns`` hold. ``spare``: the
    least bytes that a load left when it started."""

    graph: SchedulingGraph
    options: Order
    base: dict[str, int] | None
    rotates: bool = True
    order: list[int] = field(default_factory=list)
    starts: dict[int, float] = field(default_factory=dict)
    chosen: dict[int, Engine] = field(default_factory=dict)
    addresses: dict[int, int] = field(default_factory=dict)
    ns: float = 0.0

    def __post_init__(self) -> None:
        graph, machine = self.graph, self.graph.machine
        self.steps = range(len(graph))
        self.choices = [{c.engine: c for c in choices} for choices in graph.shared(self.options.share, self.options.issue)]
        self.ranks = graph.ranks(self.options.ahead, self.options.after)
        self.total = machine.sbuf_bytes_per_partition, machine.psum_bytes_per_partition
        self.released, self.kept_by_engine = set[int](), set[tuple[int, int]]()
        self.limit = [max(total * self.options.memory // 100, min(self.needed(s, 0, len(graph) + 1, 0), total))
                      for s, total in enumerate(self.total)]
        self.spare = self.limit[0]
        self.for_loads = self.limit[0] * (100 - self.options.loads) // 100
        self.ended, self.seen_there, self.complete = set[int](), set[int](), set[int]()
        self.free_at = dict.fromkeys(TURNS, 0.0)
        self.events: list[tuple[float, int, int]] = []      # time; whether an end, seen by its engine, by all; the step
        self.table, self.now = 0, 0.0
        self.dma = DmaEngines(machine, Hbm(machine, 1))
        self.ramps = {e: RampState(ramp) for e in TURNS if (ramp := machine.costs.engines[e].ramp) is not None}
        self.ring = ResultRing(owners_in_ring(graph, self.total[1])) if graph.ring else None
        if self.base is not None:
            self.pieces = [FreeRanges(self.base[space], total, machine.psum_bank_bytes if s else 0, self.rotates)
                           for s, (space, total) in enumerate(zip(SPACES, self.total))]
        self.run()

    # -- what holds now ------------------------------------------------------------------------------------------------
    def users(self, buffer: int) -> list[int]:
        return self.graph.buffer_users.lists[buffer]

    def is_allocated(self, buffer: int) -> bool:
        return any(k in self.starts for k in self.users(buffer)) and buffer not in self.released

    def ready(self, engine: Engine) -> list[int]:
        return sorted([k for k in self.steps if k not in self.starts and engine in self.choices[k]
                       and all(self.visible(other, k) for other in self.graph.before[k])], key=self.ranks.__getitem__)

    def visible(self, k: int, user: int) -> bool:
        """A step sees a result early if it can run only where the result comes from."""
        alone = len(self.choices[user]) == 1
        there = self.graph.transfers[k] is None and alone and self.chosen.get(k) in self.choices[user]
        return k in (self.seen_there if there else self.complete)

    def oldest(self) -> int:
        return next((k for k in self.steps if k not in self.starts), len(self.steps))

    def room(self, space: int) -> int:
        return self.limit[space] - self.graph.outside[SPACES[space]] - sum(
            size for b, size in enumerate(self.graph.size) if self.graph.space[b] == space and self.is_allocated(b))

    def needed(self, space: int, first: int, end: int, oldest: int | None = None) -> int:
        """The most bytes that are in use before one of these steps, if the rest is in program order."""
        graph = self.graph
        allocated = [self.is_allocated(b) for b in range(len(graph.size))]
        return max(graph.outside[SPACES[space]] + sum(
            size for b, size in enumerate(graph.size) if graph.space[b] == space and b not in self.released
            and step <= graph.last[b] and (allocated[b] or graph.first[b] <= step)) for step in range(first, end))

    def port_taken(self) -> bool:
        return any(k not in self.ended and self.choices[k][engine].port for k, engine in self.chosen.items())

    def under_way(self, k: int, engine: Engine) -> int:
        """Transfers of an engine in the direction of one of them."""
        return sum(self.graph.transfers[other] is not None and at is engine and other not in self.complete
                   and self.graph.stores[other] == self.graph.stores[k] for other, at in self.chosen.items())

    # -- what an engine takes ------------------------------------------------------------------------------------------
    def take(self, engine: Engine) -> int | None:
        ready, graph, idle = self.ready(engine), self.graph, not self.events
        if not ready:
            return None
        turns = graph.takes_turns and engine is Engine.SCALAR
        later = []
        for k in ready[:self.options.passed]:
            if not idle and graph.transfers[k] is not None and self.under_way(k, engine) >= QUEUES:
                continue
            if not idle and self.sooner_elsewhere(k, engine):
                continue
            if turns and graph.tables[k] not in (0, self.table):
                later.append(k)
            elif self.has_room(k, engine):
                return k
        for k in later:
            if self.has_room(k, engine):
                return k
        k = self.oldest()
        alone = k in ready and len(self.choices[k]) == 1
        return k if k in ready and (idle or alone) and self.has_room(k, engine) else None

    def sooner_elsewhere(self, k: int, engine: Engine) -> bool:
        alone = dict.fromkeys(TURNS, 0.0)
        for choices in self.choices:
            if len(choices) == 1:
                (only, choice), = choices.items()
                alone[only] += choice.busy
        most = max(*alone.values(), 1.0)

        def ends(at: Engine) -> float:
            choice = self.choices[k][at]
            return choice.busy * (1 + alone[at] / most) + choice.result

        for other in self.choices[k]:
            if other is not engine:
                before = [self.choices[b][other].busy for b in self.ready(other)[:self.options.passed]
                          if self.ranks[b] < self.ranks[k]]
                if sum(before, max(self.free_at[other] - self.now, 0.0)) + ends(other) < ends(engine):
                    return True
        return False

    # -- memory --------------------------------------------------------------------------------------------------------
    def has_room(self, k: int, engine: Engine) -> bool:
        if self.can_start(k, engine):
            return True
        spaces = {self.graph.space[b] for b in self.new(k)}
        early = [(b, last) for b, last in self.kept_by_engine
                 if self.chosen[last] is engine and self.graph.space[b] in spaces]
        if self.graph.transfers[k] is not None or not early:
            return False
        for b, last in sorted(early, key=lambda entry: self.order_of_end(entry[1], entry[0])):
            self.kept_by_engine.remove((b, last))
            self.release(b)
        return self.can_start(k, engine)

    def order_of_end(self, k: int, buffer: int) -> tuple[float, int]:
        return self.starts[k], self.graph.buffers[k].index(buffer)

    def new(self, k: int) -> list[int]:
        return [b for b in self.graph.buffers[k] if not any(user in self.starts for user in self.users(b))]

    def can_start(self, k: int, engine: Engine) -> bool:
        graph, new, idle = self.graph, self.new(k), not self.events
        transfer = graph.transfers[k] is not None
        if self.choices[k][engine].port and self.port_taken():
            return False
        if transfer and not idle and self.under_way(k, engine) >= QUEUES:
            return False
        if self.ring is not None and not idle and not all(map(self.ring.has_room, new)):
            return False
        for space in range(len(SPACES)):
            here = [b for b in new if graph.space[b] == space]
            if not here:
                continue
            size, last = sum(graph.size[b] for b in here), max(graph.first[b] for b in here)
            room, oldest = self.room(space), self.oldest()
            if transfer and space == 0 and not idle:
                if size > room - self.for_loads:
                    return False
            elif size > room:
                if not (k == oldest and idle and self.base is None):
                    return False
                continue
            if oldest < last and self.needed(space, oldest, last) + size > self.limit[space]:
                return False
        return self.base is None or self.find_addresses(new)

    def find_addresses(self, new: list[int]) -> bool:
        assigned: list[int] = []
        longest = max(len(self.steps) // 8, 64)
        for b in new:
            address = self.pieces[self.graph.space[b]].allocate(self.graph.size[b],
                                                            self.graph.last[b] - self.graph.first[b] > longest)
            if address < 0:
                for other in assigned:
                    self.pieces[self.graph.space[other]].release(self.addresses[other], self.graph.size[other])
                return False
            self.addresses[b] = address
            assigned.append(b)
        return True

    def release(self, buffer: int) -> None:
        self.released.add(buffer)
        if self.ring is not None and self.graph.space[buffer] == 1:
            self.ring.release(buffer)
        if self.base is not None:
            self.pieces[self.graph.space[buffer]].release(self.addresses[buffer], self.graph.size[buffer])

    # -- time ----------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        self.start_all()
        self.advance()

    def continue_without_addresses(self) -> None:
        self.base = None
        self.start_all()
        self.advance()

    def complete_order(self) -> bool:
        return len(self.order) == len(self.steps)

    def advance(self) -> None:
        changed = False
        while self.events:
            self.events.sort()
            self.now, kind, k = self.events.pop(0)
            changed |= (self.at_end, self.at_result_in_engine, self.at_result)[kind](k)
            if kind:
                self.ns = self.now
            if not self.events or (changed and min(self.events)[0] > self.now):
                self.start_all()
                changed = False

    def at_end(self, k: int) -> bool:
        self.ended.add(k)
        if self.graph.transfers[k] is None:
            for b in self.graph.buffers[k]:
                if b not in self.released and {*self.users(b)} - self.complete == {k}:
                    self.kept_by_engine.add((b, k))
        return True

    def at_result_in_engine(self, k: int) -> bool:
        before = [{*self.ready(engine)} for engine in TURNS]
        self.seen_there.add(k)
        return before != [{*self.ready(engine)} for engine in TURNS]

    def at_result(self, k: int) -> bool:
        before = [{*self.ready(engine)} for engine in TURNS]
        self.complete.add(k)
        gone = [b for b in self.graph.buffers[k] if b not in self.released and {*self.users(b)} <= self.complete]
        for b in gone:
            self.kept_by_engine.discard((b, k))
            self.release(b)
        return bool(gone) or self.graph.transfers[k] is not None or (
            before != [{*self.ready(engine)} for engine in TURNS])

    def start_all(self) -> None:
        triggered: list[tuple[int, int]] = []
        progress = True
        while progress:
            progress = False
            for engine in TURNS:
                if all(k in self.ended for k, at in self.chosen.items() if at is engine) and (
                        (k := self.take(engine)) is not None):
                    self.start(k, engine)
                    progress = True
                    if self.graph.transfers[k] is not None:
                        triggered.append((ENGINES.index(engine), k))
        dma = self.graph.machine.costs.dma
        for _, k in sorted(triggered):
            transfer = self.graph.transfers[k]
            end = self.now + dma.trigger_ns + transfer.under_way
            if not transfer.under_way:
                _, end, *_ = self.dma.move(transfer, end, k)
            self.events.append((end + dma.notify_ns, 2, k))

    def start(self, k: int, engine: Engine) -> None:
        choice, begin, table = self.choices[k][engine], self.now, self.graph.tables[k]
        if self.graph.transfers[k] is not None and self.events and any(self.graph.space[b] == 0 for b in self.new(k)):
            self.spare = min(self.spare, self.room(0) - sum(self.graph.size[b] for b in self.new(k)))
        self.order.append(k)
        self.starts[k], self.chosen[k] = self.now, engine
        if table not in (0, self.table):
            self.table = table
            begin = max(begin, self.free_at[Engine.SCALAR] + self.graph.machine.costs.control.table_load_ns)
        end = self.ramps[engine].end(begin, choice.busy, choice.share) if choice.share else begin + choice.busy
        self.free_at[engine] = end
        self.events.append((end, 0, k))
        if self.graph.transfers[k] is None:
            if any({*self.choices[user]} == {engine} for user in self.graph.users[k]):
                self.events.append((end + choice.result_in_engine, 1, k))
            self.events.append((end + choice.result, 2, k))
