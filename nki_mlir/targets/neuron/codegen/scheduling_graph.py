# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The data that all orders of a run of steps share, in columns by the step's number in program order.

The columns say on which engines each step may run and at what cost, which steps it waits for, and which buffers it
uses.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nki_mlir.dialects.access import SBUF
from nki_mlir.machine import Engine, Machine
from nki_mlir.targets.neuron.codegen.chain_times import RESTS, TIMES, ChainTimes, LeastRests, summed
from nki_mlir.targets.neuron.codegen.dependence_scan import StepEdges
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer, InstructionStep
from nki_mlir.targets.neuron.codegen.spread_steps import spread_steps
from nki_mlir.targets.neuron.codegen.step_engines import FIRST, StepChoices, StepEngines
from nki_mlir.targets.neuron.codegen.step_table import SPACES, occupied_bytes
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer
from nki_mlir.targets.runtime.compiled_class import float_array, int_array, unset_array

TRIGGERS = "triggers"           # the engines that may trigger transfers, as a part of the machine that is busy


class SchedulingGraph:
    """The steps of a run, in arrays. By step: ``choice_numbers``, on which engines it may run, the class's first;
    ``tables``, the number of the set of functions that it needs (0: none); ``stores``, whether it writes HBM;
    ``transfer_numbers`` (-1: none). ``before`` and ``users``: the steps that each depends on, and the steps that
    depend on it.

    Buffers on chip, only of this run, have numbers in the order of their first uses. By number: ``buffer_by_number``,
    the buffers; ``space``, the memory, as its index in ``SPACES``; ``size``, the bytes of a partition that each keeps
    from others; ``first`` and ``last``: the steps that use it first and last in program order; ``uses``: how many do.
    ``buffer_edges``: the buffers of each step. ``changes``, by memory, has the change at each step of the bytes that
    program order needs; ``outside``: the bytes of each memory that buffers of several runs take; ``outside_users``: the
    steps that use these. ``crowded``: SBUF has no room for all of them at once. ``ring``: results take PSUM in program
    order, as with the vendor's compiler (``result_ring.py``). This is not known for programs that evict results because
    PSUM is full: only our compiler has these copies.
    """

    def __init__(self, steps: Sequence[InstructionStep], machine: Machine, outside: set[DeviceBuffer],
                 choice: EngineChoice, evicts: bool = False) -> None:
        self.machine, self.ring = machine, choice.as_written and not evicts
        self.dependences, self.distinct, self.table = choice.dependences, choice.distinct, choice.steps
        self.ops = [step.op for step in steps]
        columns = self.table.of(self.ops)
        self.choice_numbers, self.tables, self.stores, self.transfer_numbers, *used = columns
        self.is_transfer = self.transfer_numbers >= 0
        self.number_buffers(StepEdges(*used), outside)
        self.crowded = self.outside[SBUF] + int(self.size[self.space == SPACES.index(SBUF)].sum()) > (
            machine.sbuf_bytes_per_partition)
        # whether the steps need several sets of functions
        self.takes_turns = len({*self.tables.tolist()} - {0}) > 1
        self.changes = self.changes_of_bytes()
        self.sharings: list[Any] = []
        self.sharing_numbers: dict[tuple[int, bool], int] = {}
        self.known_engines: dict[int, StepEngines] = {}         # by the number of the choices that an order may make
        self.known_ranks: dict[tuple[int, bool], Any] = {}      # by how early long chains start
        self.known_busy: dict[tuple[bool, bool], dict[object, float]] = {}
        self.columns: dict[str, Any] = {}       # more columns, computed when they are needed (``graph_columns.py``)
        self.known_rests: dict[int, Any] = {}   # by the number of the choices that an order may make

    def __len__(self) -> int:
        return len(self.ops)

    def number_buffers(self, used: StepEdges, outside: set[DeviceBuffer]) -> None:
        """Give numbers to buffers that steps have ``used``, except those ``outside``, in the order of their first uses.
        """
        steps, buffers = used.by_user()
        table = self.table.buffers
        self.outside, self.outside_users = dict.fromkeys(SPACES, 0), dict[DeviceBuffer, list[int]]()
        if outside:
            numbers = self.table.buffer_numbers
            is_outside = np.isin(buffers, [numbers[buffer] for buffer in outside if buffer in numbers])
            for k, number in zip(steps[is_outside].tolist(), buffers[is_outside].tolist()):
                self.outside_users.setdefault(table[number], []).append(k)
            for buffer in self.outside_users:
                self.outside[buffer.space] += occupied_bytes(buffer, self.machine)
            steps, buffers = steps[~is_outside], buffers[~is_outside]
        distinct, first, at = np.unique(buffers, return_index=True, return_inverse=True)
        by_first_use = np.argsort(first)
        number_of = unset_array(len(distinct))
        number_of[by_first_use] = np.arange(len(distinct))
        self.buffer_by_number = [table[number] for number in distinct[by_first_use].tolist()]
        self.space, self.size = (int_array(column)[distinct[by_first_use]] for column in self.table.buffer_columns)
        numbers_of_steps = number_of[at]
        self.first = steps[first[by_first_use]]
        self.last = self.first.copy()
        np.maximum.at(self.last, numbers_of_steps, steps)
        self.uses = np.bincount(numbers_of_steps, minlength=len(distinct))
        starts = unset_array(len(self) + 1)
        starts[0] = 0
        np.cumsum(np.bincount(steps, minlength=len(self)), out=starts[1:])
        self.buffer_edges = StepEdges(starts, numbers_of_steps)

    @cached_property
    def choices(self) -> list[StepChoices]:
        """The engines on which each step may run, the class's first."""
        return self.choices_of(self.choice_numbers)

    def choices_of(self, numbers: Any) -> list[StepChoices]:
        numbered = self.distinct.numbered
        return [numbered[number] for number in numbers.tolist()]

    @cached_property
    def transfers(self) -> list[TimedTransfer | None]:
        """The transfer of each step, None of others."""
        transfers = [*self.table.transfers, None]
        return [transfers[number] for number in self.transfer_numbers.tolist()]

    @property
    def buffers(self) -> list[list[int]]:
        """The buffers of each step."""
        return self.buffer_edges.lists

    @cached_property
    def edges(self) -> StepEdges:
        """The steps that each step depends on, without implied ones. Computed on first use: some graphs only serve to
        tell how long engines are busy."""
        return self.dependences.of(self.ops).direct

    @cached_property
    def buffer_users(self) -> StepEdges:
        """The steps that use each buffer, by its number."""
        return self.buffer_edges.users_of(len(self.size))

    @property
    def before(self) -> list[list[int]]:
        """The steps that each depends on."""
        return self.edges.lists

    @property
    def users(self) -> list[list[int]]:
        """The steps that depend on each step."""
        return self.edges.users.lists

    def changes_of_bytes(self) -> Any:
        """Return by memory the bytes that each step in program order, and the end, allocates, less the bytes that the
        previous step freed. The first step also counts bytes that are in use throughout."""
        changes = np.zeros((len(SPACES), len(self) + 1), np.int64)
        changes[:, 0] = [self.outside[space] for space in SPACES]
        np.add.at(changes, (self.space, self.first), self.size)
        np.subtract.at(changes, (self.space, self.last + 1), self.size)
        return changes

    def shared(self, share: int, issue: bool) -> list[StepChoices]:
        """Return the choices that an order may make (``Order.share``, ``Order.issue``)."""
        return self.choices_of(self.sharings[self.sharing(share, issue)])

    def sharing(self, share: int, issue: bool) -> int:
        """Return a number for the choices that an order may make; orders with the same choices have the same number."""
        number = self.sharing_numbers.get((share, issue))
        if number is None:
            shares = self.instructions_shared(share)
            if not issue:
                shares = np.where(self.is_transfer, self.distinct.derived(shares, self.distinct.one), shares)
            number = next((n for n, other in enumerate(self.sharings) if np.array_equal(shares, other)),
                          len(self.sharings))
            if number == len(self.sharings):
                self.sharings.append(shares)
            self.sharing_numbers[share, issue] = number
        return number

    def step_engines(self, share: int, issue: bool) -> StepEngines:
        """Return the engines on which steps may start (``shared``), as numbers."""
        return self.engines_of(self.sharing(share, issue))

    def engines_of(self, number: int) -> StepEngines:
        if number not in self.known_engines:
            self.known_engines[number] = StepEngines(self.sharings[number], self.distinct)
        return self.known_engines[number]

    def instructions_shared(self, share: int) -> Any:
        """Return the numbers of the choices that an order may make; transfers keep all of theirs (``share`` 0: the
        first)."""
        numbers, distinct = self.choice_numbers, self.distinct
        if share == 0:
            return distinct.derived(numbers, distinct.one)
        if share == 1:
            without = distinct.derived(numbers, lambda choices: distinct.without(choices, Engine.GPSIMD))
            return np.where(self.is_transfer, numbers, without)
        return self.spread if share == 3 else numbers

    @cached_property
    def spread(self) -> Any:
        """For each step, the number of the engine that completes it first if steps wait only for their engine and the
        port of PSUM; for a transfer, the number of all of its choices."""
        return spread_steps(self.choice_numbers, self.is_transfer, self.distinct)

    def latency(self, k: int) -> float:
        """Return ns from the start of a step on its class's first engine until all see its result."""
        moving, choice, dma = float(self.moving_times[k]), self.choices[k][0], self.machine.costs.dma
        return choice.busy + choice.result if moving < 0.0 else float(dma.trigger_ns) + moving + float(dma.notify_ns)

    def busy(self, first_engine: bool, balanced: bool = False) -> dict[object, float]:
        """Return ns for which parts of the machine are busy in any order: the DMA engines, HBM, and each engine with
        the steps that no other engine may run (``first_engine``: with all steps on their first engine; ``balanced``:
        with the steps that ``spread`` gives it). Without ``first_engine`` the part ``TRIGGERS`` is the average of the
        engines that share transfers."""
        totals = self.known_busy.get((first_engine, balanced))
        if totals is None:
            numbers = self.spread if balanced else self.choice_numbers
            firsts = self.distinct.firsts
            if not first_engine:
                numbers = numbers[firsts.is_only[numbers]]
            ns = np.bincount(firsts.engine[numbers], firsts.busy[numbers], len(FIRST)).tolist()
            totals = dict.fromkeys(Engine, 0.0) | dict(zip(FIRST, ns)) | self.moving
            if not first_engine:
                totals[TRIGGERS] = self.triggering(totals)
            self.known_busy[first_engine, balanced] = totals
        return totals

    def triggering(self, totals: dict[object, float]) -> float:
        """Return ns for which the engines that may trigger transfers of several engines are busy on average, with
        these and with what the ``totals`` have for each."""
        numbers, counts = np.unique(self.choice_numbers[self.is_transfer], return_counts=True)
        ns, engines = 0.0, dict[Engine, None]()
        for number, count in zip(numbers.tolist(), counts.tolist()):
            choices = self.distinct.numbered[number]
            if len(choices) > 1:
                ns += min([choice.busy for choice in choices]) * count
                engines |= dict.fromkeys([choice.engine for choice in choices])
        return (ns + sum([totals[engine] for engine in engines])) / max(len(engines), 1)

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
        times = float_array([*[transfer.under_way or max(transfer.parts) for transfer in self.table.transfers], -1.0])
        return times[self.transfer_numbers]

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
    def ranks(self, ahead: int, after: bool = False) -> Any:
        """Return the rank of each step: the smallest starts first. The rank is the time at which the busiest engine
        reaches the step in program order, less ``ahead`` percent of the time from the step's start, or with ``after``
        from its end, to the end of all steps that wait for it, with each step on its class's first engine. With
        ``ring``, ready steps of the tensor engine stay in program order."""
        key = ahead, after
        if key not in self.known_ranks:
            self.known_ranks[key] = self.ranked(ahead, after) if ahead else np.arange(len(self))
        return self.known_ranks[key]

    def ranked(self, ahead: int, after: bool) -> Any:
        ranks, rests = unset_array(len(self)), self.path_lengths
        if after:
            busy = self.distinct.firsts.busy[self.choice_numbers]
            rests = rests - np.where(self.is_transfer, self.moving_times, busy)
        ranks[np.argsort(self.program_times - ahead / 100 * rests, kind="stable")] = np.arange(len(self))
        if self.ring:
            of_tensor = self.distinct.firsts.engine[self.choice_numbers] == FIRST.index(Engine.TENSOR)
            ranks[of_tensor] = np.sort(ranks[of_tensor])
        return ranks

    @cached_property
    def path_lengths(self) -> Any:
        """Ns from the start of each step to the end of the longest chain after it, each step on its first choice."""
        return float_array(summed(TIMES, "to_the_end", self.chains(self.edges.users)).times)

    @cached_property
    def program_times(self) -> Any:
        """Ns for which the busiest engine works before each step, each step on its first choice."""
        firsts = self.distinct.firsts
        engines, busy = firsts.engine[self.choice_numbers], firsts.busy[self.choice_numbers]
        used, first = np.unique(engines, return_index=True)
        used = used[np.argsort(first)]                  # of equally busy ones, the engine of the earliest step
        most = used[np.argmax(np.bincount(engines, busy)[used])]
        times = np.zeros(len(self))
        np.cumsum(np.where(engines == most, busy, 0.0)[:-1], out=times[1:])
        return times


def moving(transfers: Sequence[TimedTransfer], machine: Machine) -> dict[object, float]:
    """Return ns that the DMA engines and HBM are busy with transfers."""
    return {"dma": sum([sum(transfer.parts) for transfer in transfers]) / machine.dma_engines,
            "hbm": sum([transfer.hbm_bytes for transfer in transfers]) / machine.hbm_bytes_per_ns(1)}
