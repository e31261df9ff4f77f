# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""schedule-instructions: reorder independent instructions for engines that run in parallel.

before:  load A0; exp A0; store A0; load A1; exp A1; store A1
after:   load A0; load A1; exp A0; store A0; exp A1; store A1

List scheduling (``list_scheduler``) orders the runs of instructions between loops and branches. It also chooses, for
each instruction that several engines may run, the engine that completes it first, and allocates buffers. The pass
neither merges nor drops instructions. Code whose program order takes hardly longer than its chains of dependences may
keep this order (``serial``): no order is much faster, and long code compiles sooner. As a pass it leaves addresses to
``allocate-on-chip``, and drops those that were assigned for the old order.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from math import inf
from typing import Any, NamedTuple

from nki_mlir.dialects.access import HBM, PSUM
from nki_mlir.dialects.instruction_order import NO_REORDER
from nki_mlir.dialects.op import Op, on_engine
from nki_mlir.machine import Engine
from nki_mlir.machine.engine import NAME_OF
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen import records
from nki_mlir.targets.neuron.codegen.dependence_scan import StepEdges
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.list_scheduler import list_schedule_within
from nki_mlir.targets.neuron.codegen.memory_order import ordered_dependences
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph, moving
from nki_mlir.targets.neuron.codegen.scheduling_order import ListSchedule, Order, TooLate
from nki_mlir.targets.neuron.codegen.step_engines import StepChoices
from nki_mlir.targets.neuron.codegen.step_table import SPACES, occupied_bytes
from nki_mlir.targets.neuron.timing.transfers import Transfers


class ScheduleInstructions(RecordsPass, name="schedule-instructions", reads=Level.NISA):
    memory: int = 100           # percent of on-chip memory that buffers may fill
    ahead: int = 0              # an instruction's priority rises by this percent of the time that follows it
    loads: int = 100            # percent of SBUF beyond which no load starts
    unread: int = 0             # loaded tiles that may wait for a step that reads them; 0: any number
    engines: bool = True        # let any engine run instructions that name none, else the first engine of their class
    issuers: bool = True        # let any engine start transfers that name none, else the sync engine
    serial: int = 0             # keep program order if it takes less than this per mille longer than its chains

    def rewritten(self, code: records.Code) -> None:
        order = Order(self.memory, self.ahead, loads=self.loads, unread=self.unread)
        schedule(code, order, EngineChoice(code.machine, self.engines, self.issuers), self.serial)


def schedule(code: records.Code, order: Order = Order(), choice: EngineChoice | None = None, serial: int = 0) -> None:
    """Order the runs of the code, in place. Drop addresses that were allocated for the old order."""
    schedules = Schedules(code, choice)
    in_order = serial > 0 and schedules.is_serial(1 + serial / 1000)
    schedules.arrange(schedules.as_written() if in_order else schedules.arrangement(order))
    records.forget_addresses(code)


class Arrangement(NamedTuple):
    """An order of all runs: of each its steps and their engines, by number; the addresses of its buffers by number, if
    the order has them; its time; and the least ``Order.loads`` that leads to it."""

    runs: tuple[tuple[int, ...], ...]
    engines: tuple[tuple[Engine, ...], ...]
    addresses: tuple[tuple[int, ...], ...] | None
    ns: float
    loads: int = 100


class OrderedRun(NamedTuple):
    """Steps in an order. For each step the positions of the steps that it comes after."""

    steps: list[records.InstructionStep]
    before: StepEdges


class Schedules:
    """The orders of a code's runs. All orders share the dependence graph of each run, and its costs. ``evicts``: some
    results of the kernel move from PSUM to SBUF (``SchedulingGraph.ring``)."""

    def __init__(self, code: records.Code, choice: EngineChoice | None = None, evicts: bool = False) -> None:
        self.code = code
        choice = choice or EngineChoice(code.machine)
        outside, times = shared_buffers(code.body), run_counts(code.body)
        self.before = [(block, list(block.nodes)) for block in records.blocks(code.body)]
        self.runs: list[list[records.InstructionStep]] = []
        self.parts: list[list[tuple[int, int, SchedulingGraph]]] = []       # the first step and the end of each run
        self.times: list[int] = []                                          # the number of times that each runs
        for block, nodes in self.before:
            for run in runs_of(nodes):
                self.runs.append(run)
                self.parts.append([(start, end, SchedulingGraph(run[start:end], code.machine, outside, choice, evicts))
                                   for start, end in parts_of(run)])
                self.times.append(times[block])
        self.fixed = any(buffer.fixed for block in records.blocks(code.body) for buffer in block.buffers)
        unsplit = not self.fixed and all(len(parts) == 1 for parts in self.parts)
        self.outside = self.stacked(outside) if unsplit else None
        self.crowded = any(graph.crowded for parts in self.parts for _, _, graph in parts)
        # Whether program order needs more than half of SBUF at once, so that two iterations do not fit.
        self.half_full = any(2 * graph.changes[0].cumsum().max() > code.machine.sbuf_bytes_per_partition
                             for parts in self.parts for _, _, graph in parts)
        # The bytes of a partition of PSUM that program order needs at once.
        self.most_results = max([graph.outside[PSUM] + int(graph.changes[1].cumsum().max())
                                 for parts in self.parts for _, _, graph in parts], default=0)
        # memo by the bytes that loads leave
        self.arrangements: dict[tuple[object, ...], dict[int, Arrangement]] = {}
        # ranges of ``Order.loads``, with ns that they certainly exceed
        self.too_late: dict[tuple[object, ...], list[tuple[int, int, float]]] = {}
        # memo of operations on one of several engines
        self.moved: dict[tuple[records.InstructionStep, Engine], Op] = {}

    def stacked(self, buffers: set[records.DeviceBuffer]) -> dict[records.DeviceBuffer, int] | None:
        """Return addresses of the buffers that several runs use, one above the other; None if they do not fit in this
        way."""
        machine = self.code.machine
        self.base = dict.fromkeys(SPACES, 0)
        addresses = {}
        for block in records.blocks(self.code.body):
            for buffer in block.buffers:
                if buffer in buffers and buffer.space != HBM:
                    addresses[buffer] = self.base[buffer.space]
                    self.base[buffer.space] += occupied_bytes(buffer, machine)
        limits = machine.sbuf_bytes_per_partition, machine.psum_bytes_per_partition
        return addresses if all(self.base[space] <= limit for space, limit in zip(SPACES, limits)) else None

    def arrangement(self, order: Order) -> Arrangement:
        """Return the arrangement of an order. It is memoized: orders are equal if they differ only in engines that no
        step may choose, or in bytes that loads leave free anyway."""
        arrangement = self.arrangement_within(order, inf)
        assert arrangement is not None
        return arrangement

    def arrangement_within(self, order: Order, most: float) -> Arrangement | None:
        """Return the arrangement of an order; None if it certainly takes more than ``most`` ns, which shows before all
        steps have started."""
        shares = tuple([graph.sharing(order.share, order.issue) for parts in self.parts for _, _, graph in parts])
        key = order._replace(share=0, issue=True, loads=100), *shares
        by_loads, too_late = self.arrangements.setdefault(key, {}), self.too_late.setdefault(key, [])
        for loads, arrangement in by_loads.items():
            if arrangement.loads <= order.loads <= loads:
                return arrangement
        if any([least <= order.loads <= loads and most <= ns for least, loads, ns in too_late]):
            return None
        ordered = self.ordered_runs(order, most)
        if isinstance(ordered, TooLate):
            too_late.append((ordered.loads, order.loads, most))
            return None
        by_loads[order.loads] = ordered
        return ordered

    def ordered_runs(self, order: Order, most: float) -> Arrangement | TooLate:
        addresses: list[tuple[int, ...]] | None = None if self.outside is None else []
        runs: list[tuple[int, ...]] = []
        engines: list[tuple[Engine, ...]] = []
        ns, loads = 0.0, 0
        for parts, times in zip(self.parts, self.times):
            steps: list[int] = []
            chosen: list[Engine] = []
            for start, _, graph in parts:
                schedule = self.ordered(graph, order, None if self.outside is None else self.base,
                                        (most - ns) / times if times else inf)
                if isinstance(schedule, TooLate):
                    return TooLate(max(loads, schedule.loads))
                steps += [start + k for k in schedule.order]
                chosen += schedule.engines
                ns += schedule.ns * times
                loads = max(loads, schedule.loads)
                if schedule.addresses is None:
                    addresses = None
                elif addresses is not None:
                    addresses.append(tuple(schedule.addresses))
            runs.append(tuple(steps))
            engines.append(tuple(chosen))
        return Arrangement(tuple(runs), tuple(engines), None if addresses is None else tuple(addresses), ns, loads)

    def bound(self, first_engine: bool = False, loads: Sequence[Op] = (), balanced: bool = False) -> float:
        """Return the least ns of any order. ``first_engine``: with each step on its class's first engine; ``loads``:
        with these additional loads; ``balanced``: with engines that share steps as program order balances them."""
        return max(self.busy(first_engine, loads, balanced).values(), default=0.0)

    def busiest(self) -> object:
        """Return the part of the machine that is busy longest if engines share steps: an engine, or part of memory."""
        busy = self.busy(balanced=True)
        return max(busy, key=busy.__getitem__, default=None)

    def busy(self, first_engine: bool = False, loads: Sequence[Op] = (), balanced: bool = False) -> dict[object, float]:
        """Return for each part of the machine, as ``bound`` has them, the nanoseconds for which it is busy with the
        code and with ``loads``."""
        transfers = Transfers(self.code.machine)
        total: dict[object, float] = dict(moving([transfers.of(op) for op in loads], self.code.machine))
        for parts, times in zip(self.parts, self.times):
            for _, _, graph in parts:
                for part, ns in graph.busy(first_engine, balanced).items():
                    total[part] = total.get(part, 0.0) + ns * times
        return total

    def traffic(self) -> tuple[float, int]:
        """Return bytes to and from HBM, and bytes of the HBM buffers that steps access."""
        moved = sum(transfer.hbm_bytes * times for parts, times in zip(self.parts, self.times)
                    for _, _, graph in parts for transfer in graph.transfers if transfer is not None)
        buffers = {tile.handle for run in self.runs for step in run for tile in records.tiles_of(step)
                   if tile.space == HBM}
        return moved, sum(buffer.bytes_per_partition for buffer in buffers)

    def in_program_order(self) -> float:
        """Return the least ns of program order, with each step on its class's first engine."""
        return sum(graph.in_program_order * times for parts, times in zip(self.parts, self.times)
                   for _, _, graph in parts)

    def critical_path(self) -> float:
        """Return the least ns of the chains of dependences of all runs."""
        return sum(graph.critical_path * times for parts, times in zip(self.parts, self.times) for _, _, graph in parts)

    def is_serial(self, close: float) -> bool:
        """Return whether program order takes at most ``close`` times as long as the chains of dependences."""
        return self.in_program_order() <= self.critical_path() * close

    @staticmethod
    def ordered(graph: SchedulingGraph, order: Order, base: dict[str, int] | None, most: float
                ) -> ListSchedule | TooLate:
        """Order the steps, except those that are marked ``nki.no_reorder``, unless they take more than ``most`` ns."""
        if NO_REORDER in graph.ops[0].extra:
            return ListSchedule(list(range(len(graph))), [choices[0].engine for choices in graph.choices], None, 0.0)
        return list_schedule_within(graph, order, base, most)

    def as_written(self) -> Arrangement:
        """Return program order, each step on its class's first engine."""
        return Arrangement(tuple(tuple(range(len(run))) for run in self.runs),
                           tuple(tuple(choices[0].engine for _, _, graph in parts for choices in graph.choices)
                                 for parts in self.parts), None, inf)

    def arrange(self, arrangement: Arrangement) -> None:
        """Put the code in an order, on engines, and at the addresses of an arrangement. Drop the addresses of another
        order."""
        records.forget_addresses(self.code)
        for run, parts, chosen in zip(self.runs, self.parts, arrangement.engines):
            several_choices = chain.from_iterable([graph.choices for _, _, graph in parts])
            for step, choices, engine in zip(run, several_choices, chosen):
                self.put_on(step, choices, engine)
        if arrangement.addresses is not None:
            assert self.outside is not None
            for buffer, address in self.outside.items():
                buffer.address = 0, address
            for ((_, _, graph),), addresses in zip(self.parts, arrangement.addresses):
                for buffer, address in zip(graph.buffer_by_number, addresses):
                    buffer.address = 0, address
        number = iter(range(len(self.runs)))
        for block, nodes in self.before:
            block.nodes = []
            for kind, part in groupby(nodes, type):
                if kind is records.InstructionStep:
                    at = next(number)
                    block.nodes += [self.runs[at][k] for k in arrangement.runs[at]]
                else:
                    block.nodes += part

    def put_on(self, step: records.InstructionStep, choices: StepChoices, engine: Engine) -> None:
        """Put a step on one of its engines, with its work there."""
        at = 0
        if len(choices) > 1:
            while choices[at].engine is not engine:
                at += 1
        step.work = choices[at].work
        if step.op.engine != NAME_OF[engine]:
            key = step, engine
            moved = self.moved.get(key)
            if moved is None:
                moved = self.moved[key] = on_engine(step.op, engine)
            step.op = moved

    def dependences(self, arrangement: Arrangement) -> list[OrderedRun]:
        """Return the steps that each step of the arranged code comes after, including earlier users of its memory. All
        buffers have addresses. Return nothing if the kernel chose some of these: its tiles may overlap."""
        if self.fixed:
            return []
        runs = []
        for run, parts, order in zip(self.runs, self.parts, arrangement.runs):
            if len(parts) == 1:
                graph = parts[0][2]
                runs.append(OrderedRun([run[k] for k in order], ordered_dependences(graph, order)))
        return runs


def parts_of(run: Sequence[records.InstructionStep]) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each part of a run that is ordered separately: marked steps stay where they
    are."""
    if not any([NO_REORDER in step.op.extra for step in run]):
        yield 0, len(run)
        return
    start = 0
    for _, part in groupby(run, lambda step: NO_REORDER in step.op.extra):
        count = sum(1 for _ in part)
        yield start, start + count
        start += count


def runs_of(nodes: Sequence[Any]) -> Iterator[list[records.InstructionStep]]:
    """Return the sequences of steps without a loop or branch in between."""
    for kind, part in groupby(nodes, type):
        if kind is records.InstructionStep:
            yield list(part)


def run_counts(body: records.Block, times: int = 1) -> dict[records.Block, int]:
    """Return how often each block runs; where that is unknown, as if once."""
    counts = {body: times}
    for node in body.nodes:
        for inner in records.sub_blocks(node) if type(node) is not records.InstructionStep else ():
            counts |= run_counts(inner, times * len(node.span) if isinstance(node, records.Loop) else times)
    return counts


def shared_buffers(body: records.Block) -> set[records.DeviceBuffer]:
    """Return on-chip buffers that more than one run uses, or one that another block declares: they are live
    throughout."""
    if all([type(node) is records.InstructionStep for node in body.nodes]):
        return set()                            # there is only one run
    first_run: dict[records.DeviceBuffer, int] = {}
    shared: set[records.DeviceBuffer] = set()
    number = 0
    for block in records.blocks(body):
        number += 1
        declared = set(block.buffers)
        for node in block.nodes:
            number += not isinstance(node, records.InstructionStep)
            for tile in records.tiles_of(node):
                if first_run.setdefault(tile.handle, number) != number or (
                        tile.handle not in declared and not isinstance(node, records.InstructionStep)):
                    shared.add(tile.handle)
                elif block is not body and tile.handle not in declared:
                    shared.add(tile.handle)
    return shared
