# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""schedule-instructions: put independent instructions in the order in which engines that run side by side start them.

before:  load A0; exp A0; store A0; load A1; exp A1; store A1
after:   load A0; load A1; exp A0; store A0; exp A1; store A1

List scheduling: whenever an engine is free it takes, of the instructions whose operands are there, the first in program
order; the scalar engine one that needs the functions that it has, if there is one. Times are those of the timed
machine: laws, results, DMA engines, the PSUM port, loads of functions. On-chip memory is a resource: an
instruction that needs a new buffer waits while ``memory`` percent are in use, unless it is the oldest that is left.
Only runs of instructions between loops and branches are ordered.
Instructions are neither merged nor dropped. Buffers are allocated afterwards: addresses that were chosen for the old
order are dropped.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import groupby
from typing import Any, NamedTuple

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.dialects.op import on_engine
from nki_mlir.machine import Engine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Code,
    DeviceBuffer,
    InstructionStep,
    Loop,
    blocks,
    forget_addresses,
    sub_blocks,
    tiles_of,
)
from nki_mlir.targets.neuron.codegen.scheduling_graph import ScheduledStep, SchedulingGraph
from nki_mlir.targets.neuron.timing.transfers import DmaEngines, Hbm

MEMORY = 90                     # percent
NO_REORDER = "nki.no_reorder"   # of an operation: nothing around it starts on its other side
ENGINE_FREE, SEEN_BY_ITSELF, COMPLETE = range(3)
PASSED_OVER = 8                 # ready instructions that may be passed over for lack of memory


class ScheduleInstructions(RecordsPass, name="schedule-instructions", reads=Level.NISA):
    memory: int = MEMORY        # percent of on-chip memory that buffers may fill
    early: bool = True          # memory is free again when its last use starts, else when that is complete
    ahead: int = 0              # percent of the time behind an instruction by which it goes before others

    def rewritten(self, code: Code) -> None:
        schedule(code, Order(self.memory, self.early, self.ahead))


class Order(NamedTuple):
    """How an order is found. ``memory``: percent of on-chip memory that buffers may fill; ``early``: it is free again
    when its last use starts, else when that is complete; ``ahead``: how early what a long chain waits for starts, in
    percent of the time that the chain takes."""

    memory: int = MEMORY
    early: bool = True
    ahead: int = 0


def schedule(code: Code, order: Order = Order()) -> None:
    """Order the runs of the code, in place. Addresses that were allocated for the old order go."""
    schedules = Schedules(code)
    schedules.arrange(schedules.found(order).runs)


Runs = tuple[tuple[int, ...], ...]      # of each run of steps their numbers, in an order


class Arrangement(NamedTuple):
    """An order, and how long it takes but for waits until addresses are free."""

    runs: Runs
    ns: float


class Schedules:
    """The orders that a code can be put in. What they share is worked out once."""

    def __init__(self, code: Code) -> None:
        self.code = code
        outside, times = shared_buffers(code.body), run_counts(code.body)
        self.before = [(block, list(block.nodes)) for block in blocks(code.body)]
        self.runs: list[list[InstructionStep]] = []
        self.parts: list[list[tuple[int, int, SchedulingGraph | None]]] = []      # of each run: from, to
        self.times: list[int] = []                                                # how often each runs
        for block, nodes in self.before:
            for run in runs_of(nodes):
                self.runs.append(run)
                self.parts.append(list(self.graphs(run, outside)))
                self.times.append(times[block])

    def graphs(self, run: list[InstructionStep], outside: set[DeviceBuffer],
               ) -> Iterator[tuple[int, int, SchedulingGraph | None]]:
        """What of a run is ordered by itself; steps that are marked ``nki.no_reorder`` stay where they are."""
        first = 0
        for stays, part in groupby(run, lambda step: NO_REORDER in step.op.extra):
            steps = list(part)
            alone = stays or len(steps) < 2
            yield first, first + len(steps), None if alone else SchedulingGraph(steps, self.code.machine, outside)
            first += len(steps)

    def found(self, order: Order) -> Arrangement:
        runs: list[tuple[int, ...]] = []
        ns = 0.0
        for parts, times in zip(self.parts, self.times):
            made: list[int] = []
            for first, end, graph in parts:
                if graph is None:
                    made += range(first, end)
                else:
                    ordered = _ListScheduler(graph, order)
                    made += [first + k for k in ordered.found]
                    ns += ordered.end * times
            runs.append(tuple(made))
        return Arrangement(tuple(runs), ns)

    def run_on(self, engines: Sequence[Sequence[Engine]]) -> None:
        """Put the steps of each run on engines."""
        for run, parts, chosen in zip(self.runs, self.parts, engines):
            for step, engine in zip(run, chosen):
                if step.op.engine != engine.value:
                    step.op = on_engine(step.op, engine)
            for first, end, graph in parts:
                if graph is not None:
                    graph.run_on(run[first:end])

    def as_written(self) -> Runs:
        """Program order."""
        return tuple(tuple(range(len(run))) for run in self.runs)

    def arrange(self, runs: Runs) -> None:
        """Put the code in an order. Addresses that were allocated for another order go."""
        forget_addresses(self.code)
        number = iter(range(len(self.runs)))
        for block, nodes in self.before:
            block.nodes = []
            for steps, part in groupby(nodes, is_step):
                if steps:
                    at = next(number)
                    block.nodes += [self.runs[at][k] for k in runs[at]]
                else:
                    block.nodes += part


def is_step(node: object) -> bool:
    return isinstance(node, InstructionStep)


def runs_of(nodes: Sequence[Any]) -> Iterator[list[InstructionStep]]:
    """Steps without a loop or branch between them."""
    for steps, part in groupby(nodes, is_step):
        if steps:
            yield list(part)


def run_counts(body: Block, times: int = 1) -> dict[Block, int]:
    """How often each block runs, as far as that is known."""
    found = {body: times}
    for node in body.nodes:
        for inner in sub_blocks(node):
            found |= run_counts(inner, times * len(node.span) if isinstance(node, Loop) else times)
    return found


def shared_buffers(body: Block) -> set[DeviceBuffer]:
    """On-chip buffers that more than one run uses: they are in use throughout."""
    first: dict[DeviceBuffer, int] = {}
    shared: set[DeviceBuffer] = set()
    number = 0
    for block in blocks(body):
        number += 1
        for node in block.nodes:
            number += not isinstance(node, InstructionStep)
            for tile in tiles_of(node):
                if first.setdefault(tile.handle, number) != number:
                    shared.add(tile.handle)
    return shared


class _ListScheduler:
    """One order of a graph. ``found`` are the steps in it, ``end`` when the last is complete."""

    def __init__(self, graph: SchedulingGraph, order: Order) -> None:
        self.steps, self.sbuf, self.psum, self.machine = graph.steps, graph.sbuf, graph.psum, graph.machine
        machine, self.early = graph.machine, order.early
        self.ranks = graph.ranks(order.ahead)
        self.by_rank = [0] * len(self.ranks)
        for k, rank in enumerate(self.ranks):
            self.by_rank[rank] = k
        self.missing = [step.dependences for step in self.steps]
        self.first, self.needed = graph.first, graph.needed
        self.limit = max(machine.sbuf_bytes_per_partition * order.memory // 100, self.needed.peak)
        self.sbuf_room = self.limit - graph.outside[SBUF]
        self.psum_room = machine.psum_banks * order.memory // 100 - graph.outside[PSUM]
        self.early_size = 0                     # of live buffers in SBUF that program order has not come to
        self.uses = list(graph.uses)
        self.released = 0                       # how often memory was given back
        self.refused: dict[Engine, tuple[int, int, int, int, bool, bool]] = {}  # the state in which none had room
        self.live = [False] * len(self.uses)
        self.oldest = 0
        self.started = [False] * len(self.steps)
        self.ready: dict[Engine, list[int]] = {step.engine: [] for step in self.steps}      # ranks, sorted
        self.free = set(self.ready)
        self.events: list[tuple[float, int, int]] = []        # time, kind, step
        self.dma = DmaEngines(machine, Hbm(machine, 1))
        self.port_free = True
        self.table, self.scalar_free = "", 0.0  # the set of functions that the scalar engine has, and when it is free
        self.takes_turns = graph.takes_turns
        self.found: list[int] = []
        self.end = 0.0
        self.run()

    def run(self) -> None:
        for k, step in enumerate(self.steps):
            if not step.dependences:
                insort(self.ready[step.engine], self.ranks[k])
        self.start_all(0.0)
        while self.events:
            now, kind, k = heappop(self.events)
            step = self.steps[k]
            if kind == ENGINE_FREE:
                self.free.add(step.engine)
                self.port_free |= step.port
                changed = True
            else:
                changed = self.complete(k, kind)
                self.end = now
            if changed or not self.events:
                self.start_all(now)

    def complete(self, k: int, kind: int) -> bool:
        """Release who waits: instructions of the same engine see a result before others do. Whether any waited."""
        step = self.steps[k]
        changed = kind == COMPLETE and not self.early
        own = step.engine if step.transfer is None else None
        for user in step.users:
            other = self.steps[user].engine
            if (other is own) == (kind == SEEN_BY_ITSELF):
                self.missing[user] -= 1
                if not self.missing[user]:
                    insort(self.ready[other], self.ranks[user])
                    changed = True
        if kind == COMPLETE and not self.early:
            self.release(step)
        return changed

    def release(self, step: ScheduledStep) -> None:
        """Give back the memory that no other instruction needs."""
        for buffer in step.buffers:
            self.uses[buffer] -= 1
            if not self.uses[buffer]:
                self.sbuf_room += self.sbuf[buffer]
                self.psum_room += self.psum[buffer]
                self.released += 1

    def start_all(self, now: float) -> None:
        """Start on every free engine; again when that has given memory back."""
        progress = True
        while progress:
            progress = False
            for engine, ready in self.ready.items():
                if ready and engine in self.free and (k := self.take(engine, ready)) is not None:
                    self.start(k, now)
                    progress = True

    def take(self, engine: Engine, ready: list[int]) -> int | None:
        """The first ready step that memory allows, which is ready no more."""
        state = ready[0], len(ready), self.oldest, self.released, self.port_free, not self.events
        if self.refused.get(engine) == state:
            return None                         # nothing has changed since none was found
        other = None                            # if none needs the functions that are there
        for at, rank in enumerate(ready[:PASSED_OVER]):
            k = self.by_rank[rank]
            step = self.steps[k]
            if self.can_start(k, step):
                if not self.takes_turns or step.table in ("", self.table):
                    del ready[at]
                    return k
                other = at if other is None else other
        if other is not None:
            return self.by_rank[ready.pop(other)]
        oldest = self.steps[self.oldest]
        if oldest.engine is engine and not self.missing[self.oldest] and self.can_start(self.oldest, oldest):
            ready.remove(self.ranks[self.oldest])
            return self.oldest
        self.refused[engine] = state
        return None

    def can_start(self, k: int, step: ScheduledStep) -> bool:
        """Whether the PSUM port is free and a step's new buffers have room, and what is left could still run in program
        order."""
        if step.port and not self.port_free:
            return False
        sbuf = psum = last = 0
        for buffer in step.buffers:
            if not self.live[buffer]:
                psum += self.psum[buffer]
                if self.sbuf[buffer]:
                    sbuf += self.sbuf[buffer]
                    last = max(last, self.first[buffer])
        if psum and psum > self.psum_room and k != self.oldest:     # sums in use throughout may take more than there is
            return False
        if not sbuf:
            return True
        if sbuf > self.sbuf_room:
            return k == self.oldest and not self.events             # nothing gives room back any more
        return last <= self.oldest or self.needed.most(self.oldest, last) + self.early_size + sbuf <= self.limit

    def begin(self, step: ScheduledStep, now: float) -> float:
        """When a step begins that could now. Functions are loaded once the scalar engine has done its last step."""
        if step.table in ("", self.table):
            return now
        self.table = step.table
        return max(now, self.scalar_free + self.machine.costs.control.table_load_ns)

    def start(self, k: int, now: float) -> None:
        step = self.steps[k]
        self.found.append(k)
        self.started[k] = True
        for buffer in step.buffers:
            if not self.live[buffer]:
                self.live[buffer] = True
                self.sbuf_room -= self.sbuf[buffer]
                self.psum_room -= self.psum[buffer]
                if self.first[buffer] >= self.oldest:
                    self.early_size += self.sbuf[buffer]
        while self.oldest < len(self.started) and self.started[self.oldest]:
            for buffer in self.steps[self.oldest].buffers:
                if self.first[buffer] == self.oldest:
                    self.early_size -= self.sbuf[buffer]
            self.oldest += 1
        if self.early:
            self.release(step)
        self.free.discard(step.engine)
        self.port_free &= not step.port
        free = self.begin(step, now) + step.cost.busy
        if step.engine is Engine.SCALAR:
            self.scalar_free = free
        heappush(self.events, (free, ENGINE_FREE, k))
        heappush(self.events, (free + step.cost.own_result, SEEN_BY_ITSELF, k))
        complete = free + step.cost.result
        if step.transfer is not None:
            dma = self.machine.costs.dma
            moved = now + dma.trigger_ns + step.transfer.under_way
            if not step.transfer.under_way:
                moved = self.dma.move(step.transfer, moved, k)[1]
            complete = moved + dma.notify_ns
        heappush(self.events, (complete, COMPLETE, k))
