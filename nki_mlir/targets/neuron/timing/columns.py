# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program's streams as plain numbers: what the timed machine reads, worked out once for each distinct instruction.

An entry of a stream is a tuple: its kind; ns that the engine is taken; ns behind that until other engines see the
result, and until the engine itself may read it; how many instructions before it on the engine is the one whose result
it reads (0: none near); the ports that it holds; waits as (semaphore, value); the semaphore that it changes (-1: none)
and by how much. What else a kind needs is beside it in ``details``.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from nki_mlir.dialects.access import PSUM, SBUF, Tile
from nki_mlir.dialects.isa.instruction import (
    ActTableLoad,
    CompareBranch,
    Control,
    EventSemaphore,
    Instruction,
    Move,
    RangeClear,
    RegisterAlu,
    TensorLoad,
)
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.meeting import PROGRAMS
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.dialects.op import Op
from nki_mlir.machine import ENGINES, Cost, Engine, Machine, Work
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer, Transfers

WORK, TRANSFER, CONTROL, MEETING = range(4)         # kinds
PSUM_PORT, SBUF_PORT = 1, 2
NEAR = 4                        # instructions further back are complete before the next can start

Waits = tuple[tuple[int, int], ...]
Entry = tuple[int, float, float, float, int, int, Waits, int, int]


class Occasion(NamedTuple):
    """Where several cores meet: which ones, and what tells their meetings apart."""

    members: tuple[int, ...]
    key: object


Detail = TimedTransfer | Move | RegisterAlu | CompareBranch | TensorLoad | RangeClear | Occasion
Span = tuple[str, int, int, int, int]               # memory, first and last partition, first byte and the one behind
NOWHERE: Span = ("", 0, -1, 1, 0)                   # of tiles in HBM, and those that are absent


@dataclass
class Stream:
    """One engine's stream. ``details`` and ``meetings`` are by place."""

    engine: Engine
    instructions: list[Instruction]
    entries: list[Entry] = field(default_factory=list)
    details: dict[int, Detail] = field(default_factory=dict)
    meetings: dict[int, Occasion] = field(default_factory=dict)


@dataclass
class Columns:
    """A program of one core. ``semaphores``: how many there are."""

    program: Program
    machine: Machine
    streams: list[Stream]
    semaphores: int


def columns_of(program: Program, machine: Machine, number: int, cores: int) -> Columns:
    """The streams of core ``number`` of ``cores`` as numbers."""
    made = _Builder(program, machine, number, cores)
    streams = [made.stream(engine, program.streams[engine]) for engine in ENGINES if program.streams[engine]]
    return Columns(program, machine, streams, len(program.semaphores))


class _Builder:
    def __init__(self, program: Program, machine: Machine, number: int, cores: int) -> None:
        self.machine, self.number, self.cores = machine, number, cores
        self.transfers = Transfers(machine)
        self.costs: dict[Engine, dict[Work, Cost]] = {engine: {} for engine in ENGINES}
        self.reaches: dict[object, tuple[int, int]] = {}        # bytes of a pattern, from its start
        self.spans = {id(None): NOWHERE}                        # of tiles, by identity: the program keeps them
        self.fields: dict[type, tuple[list[str], list[str]]] = {}       # of a class: what is read, what is written
        costs = machine.costs
        with_gpsimd = any(isinstance(i.op, Op) and not i.op.queued for i in program.streams[Engine.GPSIMD])
        self.psum_engines = (Engine.VECTOR, Engine.SCALAR) if costs.psum_port_shared else ()
        self.sbuf_engines = (Engine.VECTOR, Engine.GPSIMD) if costs.sbuf_port_shared and with_gpsimd else ()
        self.fetch = float(costs.control.fetch_ns)

    def stream(self, engine: Engine, instructions: list[Instruction]) -> Stream:
        made = Stream(engine, instructions)
        near: deque[list[Span]] = deque(maxlen=NEAR)            # what the last instructions wrote, the latest first
        shows = bool(self.machine.costs.engines[engine].own_result_ns)
        add = made.entries.append
        for at, instruction in enumerate(instructions):
            op = instruction.op
            written: list[Span] = []
            if isinstance(op, Control):
                add(self.control(made, at, op, instruction))
            elif instruction.queue is not None:
                add(self.transfer(made, at, op, instruction))
            else:
                after = 0
                if shows:
                    read, written = self.touched(op)
                    after = self.nearest(read, near)
                add(self.work(made, at, op, instruction, after))
            if shows:
                near.appendleft(written)
        return made

    # -- kinds ---------------------------------------------------------------------------------------------------------
    def entry(self, kind: int, cost: Cost, instruction: Instruction, after: int = 0, port: int = 0) -> Entry:
        update = instruction.update
        waits = instruction.waits
        return (kind, cost.busy if cost.busy > self.fetch else self.fetch, cost.result, cost.own_result, after, port,
                tuple([(w.semaphore, w.value) for w in waits]) if waits else (),
                update.semaphore if update is not None else -1, update.amount if update is not None else 0)

    def work(self, made: Stream, at: int, op: Op, instruction: Instruction, after: int) -> Entry:
        engine = made.engine
        work, costs = instruction.work or op.work(), self.costs[engine]
        cost = costs.get(work)
        if cost is None:
            cost = costs[work] = self.machine.cost(engine, work)
        kind = WORK
        if isinstance(op, Meeting) and (occasion := self.occasion(op)) is not None:
            made.details[at] = occasion
            kind = MEETING
        return self.entry(kind, cost, instruction, after, self.ports(op, engine))

    def ports(self, op: Op, engine: Engine) -> int:
        port = 0
        if engine in self.psum_engines and any([t.space == PSUM for _, t in op.operands()]):
            port = PSUM_PORT
        if engine in self.sbuf_engines and any([t.space == SBUF for _, t in op.operands()]):
            port |= SBUF_PORT
        return port

    def transfer(self, made: Stream, at: int, op: Op, instruction: Instruction) -> Entry:
        made.details[at] = self.transfers.of(op)
        if isinstance(op, Meeting) and (occasion := self.occasion(op)) is not None:
            made.meetings[at] = occasion
        return self.entry(TRANSFER, Cost(float(self.machine.costs.dma.issue_ns), 0.0, 0.0), instruction)

    def control(self, made: Stream, at: int, op: Control, instruction: Instruction) -> Entry:
        costs = self.machine.costs.control
        signal = float(costs.signal_ns)
        if isinstance(op, EventSemaphore):
            return self.entry(CONTROL, Cost(float(costs.event_ns), signal, 0.0), instruction)
        if isinstance(op, ActTableLoad):
            return self.entry(CONTROL, Cost(float(costs.table_load_ns), signal, 0.0), instruction)
        if isinstance(op, Move | RegisterAlu | CompareBranch | TensorLoad | RangeClear):
            made.details[at] = op
        taken = costs.load_ns if isinstance(op, TensorLoad) else (
            costs.event_ns if isinstance(op, RangeClear) else costs.register_ns)
        return self.entry(CONTROL, Cost(float(taken), signal, 0.0), instruction)

    def occasion(self, op: Meeting) -> Occasion | None:
        """The meeting, where it is with other cores that are timed as well. Ranks are alike and come at one time."""
        members = tuple(op.members(self.number)) if op.between == PROGRAMS else ()
        if self.cores < 2 or self.number not in members or len(members) < 2:
            return None
        return Occasion(members, op.occasion())

    # -- results that are read at once ---------------------------------------------------------------------------------
    @staticmethod
    def nearest(read: list[Span], near: Iterable[list[Span]]) -> int:
        """How far back the latest instruction is that wrote what is read; 0: not among the last."""
        back = 0
        for written in near:
            back += 1
            for space, first, last, low, high in written:
                for b in read:
                    if low < b[4] and b[3] < high and space == b[0] and first <= b[2] and b[1] <= last:
                        return back
        return 0

    def touched(self, op: Op) -> tuple[list[Span], list[Span]]:
        """What an operation reads and what it writes on chip."""
        names = self.fields.get(type(op))
        if names is None:
            names = self.fields[type(op)] = ([f.name for f in op.tiles if f.reads],
                                             [f.name for f in op.tiles if f.writes])
        own, spans = op.__dict__, self.spans
        try:
            return [spans[id(own[name])] for name in names[0]], [spans[id(own[name])] for name in names[1]]
        except KeyError:
            spans |= {id(tile): self.span(tile) for _, tile in op.operands() if id(tile) not in spans}
            return self.touched(op)

    def span(self, tile: Tile) -> Span:
        """Bytes between the ends of a tile on chip. Where registers are part of its start they count as 0."""
        access = tile.access
        if access.partition is None:
            return NOWHERE
        key = access.dims, access.dtype.itemsize
        reach = self.reaches.get(key)
        if reach is None:
            low, high = access.reach()
            reach = self.reaches[key] = low * access.dtype.itemsize, (high + 1) * access.dtype.itemsize
        start, first = access.free.const * access.dtype.itemsize, access.partition.const
        return tile.space, first, first + access.dims[0][1] - 1, start + reach[0], start + reach[1]
