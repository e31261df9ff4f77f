# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all orders of a run of steps share: what each costs, what it waits for, which buffers it needs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Cost, Engine, Machine
from nki_mlir.targets.neuron.codegen.dependences import Dependences, memory_sizes, own_memory, touched
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer, InstructionStep
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer, Transfers


@dataclass(slots=True)
class ScheduledStep:
    """One step. ``port``: it takes PSUM for itself; ``buffers``: on chip, of this run alone, by number; ``table``: the
    set of functions that it needs; ``users``: the steps that depend on it; ``dependences``: on how many it depends."""

    engine: Engine
    cost: Cost
    transfer: TimedTransfer | None
    port: bool
    buffers: list[int]
    table: str
    users: list[int] = field(default_factory=list)
    dependences: int = 0


class Needed:
    """What program order needs of SBUF at each step, and the most of it in any range of steps."""

    def __init__(self, changes: Sequence[int], outside: int) -> None:
        level = list(accumulate(changes, initial=outside))[1:]
        self.peak = max(level)
        self.levels = [level]                   # of each the maxima of twice as many steps as of the one before
        width = 1
        while 2 * width <= len(level):
            before = self.levels[-1]
            self.levels.append(list(map(max, before, before[width:])))
            width *= 2

    def most(self, first: int, end: int) -> int:
        """In steps from ``first`` to before ``end``, of which there is one at least."""
        power = (end - first).bit_length() - 1
        level = self.levels[power]
        return max(level[first], level[end - (1 << power)])


class SchedulingGraph:
    """The steps of a run by number, in program order. By number of a buffer: ``sbuf``, its bytes there, ``psum``, its
    banks; ``uses``: how many steps need it; ``first``: which step does first. ``outside``: what buffers of several runs
    take."""

    def __init__(self, steps: Sequence[InstructionStep], machine: Machine, outside: set[DeviceBuffer]) -> None:
        self.machine = machine
        self.numbers: dict[DeviceBuffer, int] = {}
        self.sbuf: list[int] = []
        self.psum: list[int] = []
        self.outside = {SBUF: 0, PSUM: 0}
        for buffer in {t.handle: None for step in steps for _, t in step.op.operands()}:
            if buffer in outside and buffer.space != HBM:
                self.outside[buffer.space] += self.size(buffer)
        transfers = Transfers(machine)
        self.steps = [self.scheduled(step, outside, transfers) for step in steps]
        self.takes_turns = len({step.table for step in self.steps} - {""}) > 1      # several sets of functions
        self.uses, self.first = [0] * len(self.sbuf), [-1] * len(self.sbuf)
        last = list(self.first)
        for k, one in enumerate(self.steps):
            for number in one.buffers:
                self.uses[number] += 1
                self.first[number] = k if self.first[number] < 0 else self.first[number]
                last[number] = k
        self.needed = Needed(self.changes(last), self.outside[SBUF])
        regions = touched(steps, own_memory)
        dependences = Dependences(memory_sizes(regions))
        for k, (reads, writes) in enumerate(regions):
            before = dependences.add(k, k, reads, writes)
            self.steps[k].dependences = len(before)
            for other in before:
                self.steps[other].users.append(k)

    def scheduled(self, step: InstructionStep, outside: set[DeviceBuffer], transfers: Transfers) -> ScheduledStep:
        op = step.op
        buffers = {t.handle: None for _, t in op.operands() if t.space != HBM and t.handle not in outside}
        numbers = [self.number(buffer) for buffer in buffers]
        return ScheduledStep(op.runs_on, self.cost(step), transfers.of(op) if op.queued else None,
                             self.takes_port(op), numbers, op.function_set)

    def run_on(self, steps: Sequence[InstructionStep]) -> None:
        """Take over the engines of the steps, which are others now."""
        for one, step in zip(self.steps, steps):
            if one.engine is not step.op.runs_on:
                one.engine, one.cost, one.port = step.op.runs_on, self.cost(step), self.takes_port(step.op)

    def cost(self, step: InstructionStep) -> Cost:
        step.work = step.op.work()
        return self.machine.cost(step.op.runs_on, step.work)

    def takes_port(self, op: Op) -> bool:
        return self.machine.costs.psum_port_shared and op.runs_on in (Engine.VECTOR, Engine.SCALAR) and any(
            t.space == PSUM for _, t in op.operands())

    def changes(self, last: Sequence[int]) -> list[int]:
        """What each step in program order takes of SBUF, less what the one before it gave back."""
        found = [0] * (len(self.steps) + 1)
        for size, first, end in zip(self.sbuf, self.first, last):
            found[first] += size
            found[end + 1] -= size
        return found[:-1]

    def number(self, buffer: DeviceBuffer) -> int:
        found = self.numbers.get(buffer)
        if found is None:
            found = self.numbers[buffer] = len(self.numbers)
            size = self.size(buffer)
            self.sbuf.append(size if buffer.space == SBUF else 0)
            self.psum.append(size if buffer.space == PSUM else 0)
        return found

    def size(self, buffer: DeviceBuffer) -> int:
        size = buffer.bytes_per_partition
        return size if buffer.space == SBUF else -(-size // self.machine.psum_bank_bytes)

    # -- ranks ---------------------------------------------------------------------------------------------------------
    def ranks(self, ahead: int) -> list[int]:
        """The rank of each step: the smallest starts first. It is when the busiest engine comes to it in program
        order, less ``ahead`` percent of what it takes from its start to the end of all that waits for it."""
        if not ahead:
            return list(range(len(self.steps)))
        when, rest = self.program_times(), self.rests()
        ordered = sorted(range(len(self.steps)), key=lambda k: (when[k] - ahead / 100 * rest[k], k))
        ranks = [0] * len(ordered)
        for rank, k in enumerate(ordered):
            ranks[k] = rank
        return ranks

    def program_times(self) -> list[float]:
        """How long the busiest engine works before each step."""
        busy: dict[Engine, float] = {}
        for step in self.steps:
            busy[step.engine] = busy.get(step.engine, 0.0) + step.cost.busy
        most = max(busy, key=lambda engine: busy[engine])
        return list(accumulate((s.cost.busy if s.engine is most else 0.0 for s in self.steps), initial=0.0))

    def rests(self) -> list[float]:
        """From the start of each step to the end of the longest chain behind it."""
        dma = self.machine.costs.dma
        rests = [0.0] * len(self.steps)
        for k in range(len(self.steps) - 1, -1, -1):
            step = self.steps[k]
            transfer, (busy, result, own_result) = step.transfer, step.cost
            if transfer is not None:
                result = dma.trigger_ns + (transfer.under_way or max(transfer.parts)) + dma.notify_ns - busy
            longest = result
            for user in step.users:
                same = transfer is None and self.steps[user].engine is step.engine
                longest = max(longest, (own_result if same else result) + rests[user])
            rests[k] = busy + longest
        return rests
