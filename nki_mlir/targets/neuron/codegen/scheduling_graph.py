# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The data that all orders of a run of steps share, in columns by the step's number in program order.

These are the engines on which each step may run and its costs there, the steps that it waits for, and its buffers.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.op import Op, on_engine
from nki_mlir.machine import Engine, Machine
from nki_mlir.targets.neuron.codegen.chain_times import RESTS, TIMES, ChainTimes, LeastRests, summed
from nki_mlir.targets.neuron.codegen.dependence_scan import StepEdges, joined
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer, InstructionStep
from nki_mlir.targets.neuron.codegen.step_engines import Choice, StepChoices, StepEngines
from nki_mlir.targets.neuron.timing.ramp import share_of_rows
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer, Transfers
from nki_mlir.targets.runtime.compiled_class import float_array

SPACES = SBUF, PSUM
GRAIN = 32                      # bytes: rows that start at a multiple are read without partial sectors


class StepForm(NamedTuple):
    """The common data of all operations of a form: the engines on which each may run, the class's first; the set of
    functions that it needs; whether it writes HBM; and the names of its tiles on chip."""

    choices: StepChoices
    table: str
    stores: bool
    on_chip: tuple[str, ...]


class StepData(NamedTuple):
    """What graphs need to know of an operation: its form, its transfer, and its buffers on chip."""

    form: StepForm
    transfer: TimedTransfer | None
    buffers: tuple[DeviceBuffer, ...]


class StepForms:
    """The forms of operations, each worked out once."""

    def __init__(self, machine: Machine, choice: EngineChoice) -> None:
        self.machine, self.choice = machine, choice
        self.transfers = Transfers(machine)

    def of_steps(self, ops: Sequence[Op]) -> list[StepData]:
        """Return the data of operations, which the codes of a search share."""
        steps: dict[Op, StepData] = self.choice.steps
        return [steps.get(op) or self.new_step(op) for op in ops]

    def new_step(self, op: Op) -> StepData:
        form, values = self.of(op), op.__dict__
        step = self.choice.steps[op] = StepData(form, self.transfers.of(op) if op.queued else None, tuple(
            dict.fromkeys([values[name].handle for name in form.on_chip])))
        return step

    def of(self, op: Op) -> StepForm:
        key = op.form()
        form: StepForm | None = self.choice.forms.get(key)
        if form is None:
            operands = op.operands()
            form = self.choice.forms[key] = StepForm(
                self.choice.distinct.of([self.on(op, engine) for engine in self.choice.of(op)]), op.function_set,
                any(field.writes and tile.space == HBM for field, tile in operands),
                tuple([field.name for field, tile in operands if tile.space != HBM]))
        return form

    def on(self, op: Op, engine: Engine) -> Choice:
        moved_op = op if op.runs_on is engine else on_engine(op, engine)
        work = moved_op.work()
        cost = self.machine.cost(engine, work)
        fetch = float(self.machine.costs.control.fetch_ns)
        port = self.machine.costs.psum_port_shared and engine in (Engine.VECTOR, Engine.SCALAR) and any(
            t.space == PSUM for _, t in op.operands())
        ramp = self.choice.ramps and self.machine.costs.engines[engine].ramp is not None
        share = share_of_rows(op, self.machine) if ramp else 0.0
        return Choice(engine, max(cost.busy, fetch), cost.result, cost.result_in_engine, port, share, work)


class SchedulingGraph:
    """The steps of a run. ``choices``: on which engines each may run, the class's first; ``before`` and ``users``: the
    steps that each depends on, and the steps that depend on it; ``buffers``: on chip, only of this run, by number.

    By number of a buffer: ``buffer_by_number``, the buffers; ``size``, the bytes of a partition that each keeps from
    others; ``first`` and ``last``: the steps that use it first and last in program order. ``changes``, by memory, has
    the change at each step of the bytes that program order needs; ``outside``: the bytes of each memory that buffers of
    several runs take; ``outside_users``: the steps that use these. ``crowded``: SBUF has no room for all of them at
    once. ``ring``: results take PSUM in program order, as with the vendor's compiler (``result_ring.py``). This is not
    known for programs that evict results because PSUM is full: only our compiler has these copies.
    """

    def __init__(self, steps: Sequence[InstructionStep], machine: Machine, outside: set[DeviceBuffer],
                 choice: EngineChoice, evicts: bool = False) -> None:
        self.machine, self.ring = machine, choice.as_written and not evicts
        self.dependences = choice.dependences
        self.ops = [step.op for step in steps]
        forms, self.transfers, several_buffers = zip(*StepForms(machine, choice).of_steps(self.ops))
        self.choices, self.tables, self.stores, _ = map(list, zip(*forms))
        self.numbers: dict[DeviceBuffer, int] = {}
        self.size: list[int] = []
        self.first: list[int] = []
        self.last: list[int] = []
        self.uses: list[int] = []
        self.outside = {SBUF: 0, PSUM: 0}
        self.outside_users: dict[DeviceBuffer, list[int]] = {}
        self.buffers: list[list[int]] = []
        numbers_of, last, uses = self.numbers, self.last, self.uses
        for k, buffers in enumerate(several_buffers):
            numbers: list[int] = []
            for buffer in buffers:
                number = numbers_of.get(buffer)
                if number is None:
                    if buffer in outside:
                        self.outside_users.setdefault(buffer, []).append(k)
                        continue
                    number = self.number(buffer, k)
                numbers.append(number)
                uses[number] += 1
                last[number] = k
            self.buffers.append(numbers)
        for buffer in self.outside_users:
            self.outside[buffer.space] += room(buffer, machine)
        self.buffer_by_number = list(self.numbers)
        self.crowded = self.outside[SBUF] + sum([size for buffer, size in zip(self.buffer_by_number, self.size)
                                                 if buffer.space == SBUF]) > machine.sbuf_bytes_per_partition
        self.takes_turns = len(set(self.tables) - {""}) > 1         # several sets of functions
        self.changes = self.changes_of_bytes()
        self.sharings: list[list[StepChoices]] = []
        self.sharing_numbers: dict[tuple[int, bool], int] = {}
        self.distinct = choice.distinct
        self.known_engines: dict[int, StepEngines] = {}         # by the number of the choices that an order may make
        self.known_ranks: dict[int, list[int]] = {}     # by how early long chains start
        self.known_busy: dict[tuple[bool, bool], dict[object, float]] = {}
        self.columns: dict[str, Any] = {}       # the same data as arrays, once they are needed (``graph_columns.py``)
        self.known_rests: dict[int, Any] = {}   # by the number of the choices that an order may make

    def __len__(self) -> int:
        return len(self.ops)

    def number(self, buffer: DeviceBuffer, k: int) -> int:
        number = self.numbers[buffer] = len(self.numbers)
        self.size.append(room(buffer, self.machine))
        self.first.append(k)
        self.last.append(k)
        self.uses.append(0)
        return number

    @cached_property
    def edges(self) -> StepEdges:
        """The steps that each depends on, without implied ones. They are found on first use: some graphs tell only how
        long engines are busy."""
        return self.dependences.of(self.ops).direct

    @cached_property
    def buffer_users(self) -> StepEdges:
        """The steps that use each buffer, by its number."""
        return StepEdges(*joined(self.buffers)).users_of(len(self.size))

    @property
    def before(self) -> list[list[int]]:
        """The steps that each depends on."""
        return self.edges.lists

    @property
    def users(self) -> list[list[int]]:
        """The steps that depend on each step."""
        return self.edges.users.lists

    @cached_property
    def space(self) -> list[int]:
        """The memory of each buffer, as its index in ``SPACES``."""
        return [SPACES.index(buffer.space) for buffer in self.buffer_by_number]

    def changes_of_bytes(self) -> dict[str, list[int]]:
        """Return by memory the bytes that each step in program order, and the end, allocates, less the bytes that the
        previous step freed. The first step also counts bytes that are in use throughout."""
        changes = {space: [self.outside[space]] + [0] * len(self.ops) for space in SPACES}
        for buffer, size, start, end in zip(self.buffer_by_number, self.size, self.first, self.last):
            of_space = changes[buffer.space]
            of_space[start] += size
            of_space[end + 1] -= size
        return changes

    def shared(self, share: int, issue: bool) -> list[StepChoices]:
        """Return the choices that an order may make (``Order.share``, ``Order.issue``)."""
        return self.sharings[self.sharing(share, issue)]

    def sharing(self, share: int, issue: bool) -> int:
        """Return a number for the choices that an order may make; orders with the same choices have the same number."""
        number = self.sharing_numbers.get((share, issue))
        if number is None:
            shares = self.instructions_shared(share)
            if not issue:
                shares = [choices if transfer is None else self.distinct.one(choices, 0)
                          for choices, transfer in zip(shares, self.transfers)]
            if shares not in self.sharings:
                self.sharings.append(shares)
            number = self.sharing_numbers[share, issue] = self.sharings.index(shares)
        return number

    def step_engines(self, share: int, issue: bool) -> StepEngines:
        """Return the engines on which steps may start (``shared``), as numbers."""
        return self.engines_of(self.sharing(share, issue))

    def engines_of(self, number: int) -> StepEngines:
        if number not in self.known_engines:
            self.known_engines[number] = StepEngines(self.sharings[number])
        return self.known_engines[number]

    def instructions_shared(self, share: int) -> list[StepChoices]:
        if share == 0:
            return [self.distinct.one(choices, 0) for choices in self.choices]
        if share == 1:
            return [choices if transfer is not None else self.distinct.without(choices, Engine.GPSIMD)
                    for choices, transfer in zip(self.choices, self.transfers)]
        return self.spread if share == 3 else self.choices

    @cached_property
    def spread(self) -> list[StepChoices]:
        """Return for each step the engine that completes it first if steps wait only for their engine and the port of
        PSUM. Which engine triggers a transfer stays open."""
        busy = dict.fromkeys(Engine, 0.0)
        port = 0.0
        chosen = []
        for choices, transfer in zip(self.choices, self.transfers):
            if transfer is not None:
                chosen.append(choices)
                busy[choices[0].engine] += choices[0].busy if len(choices) == 1 else 0.0
                continue
            ends = [max(busy[c.engine], port if c.port else 0.0) + c.busy for c in choices]
            at = ends.index(min(ends)) if len(ends) > 1 else 0
            busy[choices[at].engine] = ends[at]
            port = ends[at] if choices[at].port else port
            chosen.append(self.distinct.one(choices, at))
        return chosen

    def takes(self, k: int) -> float:
        """Return ns from the start of a step on its class's first engine until all see its result."""
        moving, choice, dma = float(self.moving_times[k]), self.choices[k][0], self.machine.costs.dma
        return choice.busy + choice.result if moving < 0.0 else float(dma.trigger_ns) + moving + float(dma.notify_ns)

    def busy(self, first_engine: bool, balanced: bool = False) -> dict[object, float]:
        """Return ns for which parts of the machine are busy in any order: the DMA engines, HBM, and each engine with
        the steps that no other engine may run (``first_engine``: with all steps on their first engine; ``balanced``:
        with the steps that ``spread`` gives it)."""
        totals = self.known_busy.get((first_engine, balanced))
        if totals is None:
            totals = dict.fromkeys(Engine, 0.0)
            for choices in self.spread if balanced else self.choices:
                if first_engine or len(choices) == 1:
                    totals[choices[0].engine] += choices[0].busy
            totals |= self.moving
            self.known_busy[first_engine, balanced] = totals
        return totals

    @cached_property
    def moving(self) -> dict[object, float]:
        """Ns for which the DMA engines and HBM are busy with the transfers."""
        return moving([transfer for transfer in self.transfers if transfer is not None], self.machine)

    @cached_property
    def in_program_order(self) -> float:
        """The least ns from the start of the first step to the end of the last if each step runs on its first choice of
        engine, in program order: an engine waits for operands, but not for memory, queues and DMA engines."""
        return float(summed(TIMES, "in_program_order", self.chains(self.edges)).end)

    def chains(self, related: StepEdges) -> ChainTimes:
        """Return the chains of steps, each on its first choice of engine."""
        dma = self.machine.costs.dma
        return ChainTimes(self.step_engines(0, False), related, self.moving_times, float(dma.trigger_ns),
                          float(dma.notify_ns))

    @cached_property
    def moving_times(self) -> Any:
        """Ns that each transfer is under way; -1.0 for other steps."""
        return float_array([-1.0 if transfer is None else transfer.under_way or max(transfer.parts)
                            for transfer in self.transfers])

    @cached_property
    def critical_path(self) -> float:
        """Ns that the longest chain of dependences takes in any order, each step on its fastest engine."""
        return float(max(self.least_rests(2, True), default=0.0))

    def least_rests(self, share: int, issue: bool) -> Any:
        """Return in an array a lower bound for each step: the ns from its start to the end of the longest chain after
        it, with each step on the fastest of the engines among which an order may choose (``shared``)."""
        number = self.sharing(share, issue)
        if number not in self.known_rests:
            self.known_rests[number] = self.fastest_rests(self.engines_of(number))
        return self.known_rests[number]

    def fastest_rests(self, engines: StepEngines) -> Any:
        until, complete = [float_array(times)[engines.forms] for times in zip(*[
            (min([c.busy + min(c.result, c.result_in_engine) for c in choices]),
             min([c.busy + c.result for c in choices])) for choices in engines.choices])]
        dma, moving = self.machine.costs.dma, self.moving_times
        until = np.where(moving < 0.0, until, float(dma.trigger_ns) + moving + float(dma.notify_ns))
        return float_array(summed(RESTS, "add", LeastRests(
            self.edges.users, until, np.where(moving < 0.0, complete, 0.0))).rests)

    # -- ranks ---------------------------------------------------------------------------------------------------------
    def ranks(self, ahead: int) -> list[int]:
        """Return the rank of each step: the smallest starts first. The rank is the time at which the busiest engine
        reaches the step in program order, less ``ahead`` percent of the time from the step's start to the end of all
        steps that wait for it, with each step on its class's first engine. With ``ring``, ready steps of the tensor
        engine stay in program order."""
        if ahead not in self.known_ranks:
            self.known_ranks[ahead] = self.ranked(ahead) if ahead else list(range(len(self.ops)))
        return self.known_ranks[ahead]

    def ranked(self, ahead: int) -> list[int]:
        keys = [start - ahead / 100 * after for start, after in zip(self.program_times, self.rests)]
        ranks = [0] * len(keys)
        for rank, k in enumerate(sorted(range(len(keys)), key=keys.__getitem__)):
            ranks[k] = rank
        if self.ring:
            of_tensor = [k for k, choices in enumerate(self.choices) if choices[0].engine is Engine.TENSOR]
            for k, rank in zip(of_tensor, sorted([ranks[k] for k in of_tensor])):
                ranks[k] = rank
        return ranks

    @cached_property
    def rests(self) -> list[float]:
        """Ns from the start of each step to the end of the longest chain after it, each step on its first choice."""
        times: list[float] = float_array(summed(TIMES, "to_the_end", self.chains(self.edges.users)).times).tolist()
        return times

    @cached_property
    def program_times(self) -> list[float]:
        """Ns for which the busiest engine works before each step, each step on its first choice."""
        busy: dict[Engine, float] = {}
        engines = [choices[0] for choices in self.choices]
        for choice in engines:
            busy[choice.engine] = busy.get(choice.engine, 0.0) + choice.busy
        most = max(busy, key=lambda engine: busy[engine])
        return list(accumulate((c.busy if c.engine is most else 0.0 for c in engines), initial=0.0))


def moving(transfers: Sequence[TimedTransfer], machine: Machine) -> dict[object, float]:
    """Return ns that the DMA engines and HBM are busy with transfers."""
    return {"dma": sum([sum(transfer.parts) for transfer in transfers]) / machine.dma_engines,
            "hbm": sum([transfer.hbm_bytes for transfer in transfers]) / machine.hbm_bytes_per_ns(1)}


def room(buffer: DeviceBuffer, machine: Machine) -> int:
    """Return bytes of a partition that a buffer keeps from others: in PSUM it does not cross banks without need, in
    SBUF its address is a multiple of ``GRAIN``."""
    size, bank = buffer.bytes_per_partition, machine.psum_bank_bytes
    if buffer.space == PSUM and 2 * size > bank:
        return -(-size // bank) * bank
    return -(-size // GRAIN) * GRAIN
