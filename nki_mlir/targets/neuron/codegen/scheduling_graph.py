# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The data that all orders of a run of steps share, in columns by the step's number in program order.

These are the engines on which each step may run and its costs there, the steps that it waits for, and its buffers.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.op import Op, on_engine
from nki_mlir.machine import Engine, Machine
from nki_mlir.targets.neuron.codegen.dependence_scan import StepEdges, joined
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer, InstructionStep
from nki_mlir.targets.neuron.codegen.step_engines import Choice, Choices, StepEngines
from nki_mlir.targets.neuron.timing.ramp import share_of_rows
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer, Transfers

SPACES = SBUF, PSUM
GRAIN = 32                      # bytes: rows that start at a multiple are read without partial sectors


class StepForm(NamedTuple):
    """The common data of all operations of a form: the engines on which each may run, the class's first; the set of
    functions that it needs; whether it writes HBM; and the names of its tiles on chip."""

    choices: Choices
    table: str
    stores: bool
    on_chip: tuple[str, ...]


class StepForms:
    """The forms of operations, each worked out once."""

    def __init__(self, machine: Machine, choice: EngineChoice) -> None:
        self.machine, self.choice = machine, choice

    def of(self, op: Op) -> StepForm:
        key = op.form()
        form: StepForm | None = self.choice.forms.get(key)
        if form is None:
            operands = op.operands()
            form = self.choice.forms[key] = StepForm(
                tuple([self.on(op, engine) for engine in self.choice.of(op)]), op.function_set,
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
        forms = StepForms(machine, choice)
        step_forms = [forms.of(op) for op in self.ops]
        transfers = Transfers(machine)
        self.choices = [form.choices for form in step_forms]
        self.tables = [form.table for form in step_forms]
        self.stores = [form.stores for form in step_forms]
        self.transfers = [transfers.of(op) if op.queued else None for op in self.ops]
        self.numbers: dict[DeviceBuffer, int] = {}
        self.size: list[int] = []
        self.first: list[int] = []
        self.last: list[int] = []
        self.uses: list[int] = []
        self.outside = {SBUF: 0, PSUM: 0}
        self.outside_users: dict[DeviceBuffer, list[int]] = {}
        self.buffers: list[list[int]] = []
        numbers_of, last, uses = self.numbers, self.last, self.uses
        for k, (op, form) in enumerate(zip(self.ops, step_forms)):
            values = op.__dict__
            numbers: list[int] = []
            for name in form.on_chip:
                buffer = values[name].handle
                number = numbers_of.get(buffer)
                if number is None:
                    if buffer in outside:
                        self.outside_users.setdefault(buffer, []).append(k)
                        continue
                    number = self.number(buffer, k)
                if number not in numbers:
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
        self.changes = {space: self.changes_of(space) for space in SPACES}
        self.sharings: list[list[Choices]] = []
        self.sharing_numbers: dict[tuple[int, bool], int] = {}
        self.alternatives: dict[Choices, Choices] = {}
        self.known_engines: dict[int, StepEngines] = {}         # by the number of the choices that an order may make
        self.known_ranks: dict[int, list[int]] = {}     # by how early long chains start
        self.known_busy: dict[tuple[bool, bool], dict[object, float]] = {}
        self.columns: dict[str, Any] = {}       # the same data as arrays, once they are needed (``graph_columns.py``)
        self.chains: tuple[list[float], list[float]] | None = None
        self.known_rests: dict[int, list[float]] = {}   # by the number of the choices that an order may make

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

    def changes_of(self, space: str) -> list[int]:
        """Return the bytes of a memory that each step in program order, and the end, allocates, less the bytes that the
        previous step freed. The first step also counts bytes that are in use throughout."""
        changes = [self.outside[space]] + [0] * len(self.ops)
        for buffer, size, start, end in zip(self.buffer_by_number, self.size, self.first, self.last):
            if buffer.space == space:
                changes[start] += size
                changes[end + 1] -= size
        return changes

    def shared(self, share: int, issue: bool) -> list[Choices]:
        """Return the choices that an order may make (``Order.share``, ``Order.issue``)."""
        return self.sharings[self.sharing(share, issue)]

    def sharing(self, share: int, issue: bool) -> int:
        """Return a number for the choices that an order may make; orders with the same choices have the same number."""
        number = self.sharing_numbers.get((share, issue))
        if number is None:
            shares = self.instructions_shared(share)
            if not issue:
                shares = [choices if transfer is None else self.one(choices, 0)
                          for choices, transfer in zip(shares, self.transfers)]
            if shares not in self.sharings:
                self.sharings.append(shares)
            number = self.sharing_numbers[share, issue] = self.sharings.index(shares)
        return number

    def step_engines(self, share: int, issue: bool) -> StepEngines:
        """Return the engines on which steps may start (``shared``), as numbers."""
        number = self.sharing(share, issue)
        if number not in self.known_engines:
            self.known_engines[number] = StepEngines(self.sharings[number])
        return self.known_engines[number]

    def one(self, choices: Choices, at: int) -> Choices:
        """Return a tuple with only one of several choices."""
        one = choices[at],
        return choices if len(choices) == 1 else self.alternatives.setdefault(one, one)

    def instructions_shared(self, share: int) -> list[Choices]:
        if share == 0:
            return [self.one(choices, 0) for choices in self.choices]
        if share == 1:
            return [choices if len(choices) == 1 or transfer is not None else self.without_gpsimd(choices)
                    for choices, transfer in zip(self.choices, self.transfers)]
        return self.spread if share == 3 else self.choices

    def without_gpsimd(self, choices: Choices) -> Choices:
        other_choices = tuple([c for n, c in enumerate(choices) if not n or c.engine is not Engine.GPSIMD])
        return choices if other_choices == choices else self.alternatives.setdefault(other_choices, other_choices)

    @cached_property
    def spread(self) -> list[Choices]:
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
            at = ends.index(min(ends))
            busy[choices[at].engine] = ends[at]
            port = ends[at] if choices[at].port else port
            chosen.append(self.one(choices, at))
        return chosen

    def takes(self, k: int) -> float:
        """Return ns from the start of a step on its class's first engine until all see its result."""
        transfer, choice, dma = self.transfers[k], self.choices[k][0], self.machine.costs.dma
        if transfer is None:
            return choice.busy + choice.result
        return dma.trigger_ns + (transfer.under_way or max(transfer.parts)) + dma.notify_ns

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
        dma = self.machine.costs.dma
        free = dict.fromkeys(Engine, 0.0)
        visible: list[tuple[Engine | None, float, float]] = []     # for each step: engine, end for it, for others
        for choices, transfer, before in zip(self.choices, self.transfers, self.before):
            engine, busy, result, result_in_engine = choices[0][:4]
            start = free[engine]
            for other in before:
                issuer, end_for_issuer, end_for_others = visible[other]
                visible_at = end_for_issuer if issuer is engine else end_for_others
                if visible_at > start:
                    start = visible_at
            free[engine] = end = start + busy
            if transfer is None:
                visible.append((engine, end + result_in_engine, end + result))
            else:
                moved = start + dma.trigger_ns + (transfer.under_way or max(transfer.parts)) + dma.notify_ns
                visible.append((None, moved, moved))
        return max(*free.values(), *[end_for_others for _, _, end_for_others in visible])

    @cached_property
    def critical_path(self) -> float:
        """Ns that the longest chain of dependences takes in any order, each step on its fastest engine."""
        return max(self.least_rests(2, True), default=0.0)

    def least_rests(self, share: int, issue: bool) -> list[float]:
        """Return a lower bound for each step: the ns from its start to the end of the longest chain after it, with each
        step on the fastest of the engines among which an order may choose (``shared``)."""
        number = self.sharing(share, issue)
        if number not in self.known_rests:
            self.known_rests[number] = self.fastest_rests(self.sharings[number])
        return self.known_rests[number]

    def fastest_rests(self, shares: Sequence[Choices]) -> list[float]:
        dma = self.machine.costs.dma
        shortest: dict[Choices, tuple[float, float]] = {}       # ns until the engine, and until others, see the result
        rests, users = [0.0] * len(self.ops), self.users
        for k in range(len(self.ops) - 1, -1, -1):
            after, transfer, choices = 0.0, self.transfers[k], shares[k]
            for user in users[k]:
                if rests[user] > after:
                    after = rests[user]
            if transfer is not None:
                rests[k] = dma.trigger_ns + (transfer.under_way or max(transfer.parts)) + dma.notify_ns + after
                continue
            if (times := shortest.get(choices)) is None:
                times = shortest[choices] = (min([c.busy + min(c.result, c.result_in_engine) for c in choices]),
                                             min([c.busy + c.result for c in choices]))
            rests[k] = max(times[0] + after, times[1])
        return rests

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
        if self.chains is None:
            firsts = [choices[0] for choices in self.choices]
            self.chains = self.program_times(firsts), self.rests(firsts)
        starts, rests = self.chains
        keys = [start - ahead / 100 * after for start, after in zip(starts, rests)]
        ranks = [0] * len(keys)
        for rank, k in enumerate(sorted(range(len(keys)), key=keys.__getitem__)):
            ranks[k] = rank
        if self.ring:
            of_tensor = [k for k, choices in enumerate(self.choices) if choices[0].engine is Engine.TENSOR]
            for k, rank in zip(of_tensor, sorted([ranks[k] for k in of_tensor])):
                ranks[k] = rank
        return ranks

    @staticmethod
    def program_times(engines: Sequence[Choice]) -> list[float]:
        """Return the time for which the busiest engine works before each step."""
        busy: dict[Engine, float] = {}
        for choice in engines:
            busy[choice.engine] = busy.get(choice.engine, 0.0) + choice.busy
        most = max(busy, key=lambda engine: busy[engine])
        return list(accumulate((c.busy if c.engine is most else 0.0 for c in engines), initial=0.0))

    def rests(self, engines: Sequence[Choice]) -> list[float]:
        """Return the time from the start of each step to the end of the longest chain after it."""
        dma = self.machine.costs.dma
        rests, users = [0.0] * len(self.ops), self.users
        for k in range(len(self.ops) - 1, -1, -1):
            transfer, (engine, busy, result, result_in_engine) = self.transfers[k], engines[k][:4]
            if transfer is not None:
                result = dma.trigger_ns + (transfer.under_way or max(transfer.parts)) + dma.notify_ns - busy
            longest = result
            for user in users[k]:
                same_engine = transfer is None and engines[user].engine is engine
                after_user = (result_in_engine if same_engine else result) + rests[user]
                if after_user > longest:
                    longest = after_user
            rests[k] = busy + longest
        return rests


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
