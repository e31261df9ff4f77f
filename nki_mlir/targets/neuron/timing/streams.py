# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The streams of a program as plain numbers, which the timed machine reads; each distinct instruction is costed once.

An entry of a stream is a tuple: its kind; the ns that it occupies the engine; the ns behind that until other
engines see the result, and until the engine itself may read it; the ports that it holds. Instructions of equal cost
share a tuple. ``details`` has what else a kind needs.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nki_mlir.dialects.access import HBM, PSUM, SBUF
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
from nki_mlir.dialects.launch_members import PROGRAMS
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.dialects.op import Op
from nki_mlir.machine import ENGINES, Cost, Engine, Machine, Work
from nki_mlir.targets.neuron.timing.ramp import share_of_rows
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer, Transfers
from nki_mlir.waist.overlap import Box

WORK, TRANSFER, MEETING, CONTROL, TABLE_LOAD = range(5)         # kinds
PSUM_PORT, SBUF_PORT = 1, 2
NEAR = 4                        # instructions further back are complete before the next can start

Entry = tuple[int, float, float, float, int]


class Occasion(NamedTuple):
    """A meeting of several cores: the cores, and a key that distinguishes their meetings."""

    members: tuple[int, ...]
    key: object


WITH_DETAILS = (Move, RegisterAlu, CompareBranch, TensorLoad, RangeClear)      # control with further effects
Detail = TimedTransfer | Move | RegisterAlu | CompareBranch | TensorLoad | RangeClear | Occasion


def boxes_of(instruction: Instruction, fields: Sequence[str]) -> list[Box]:
    """Return the on-chip boxes of these operands of an instruction that its engine executes."""
    if instruction.queue is not None:
        return []
    operands = [tile for name in fields if (tile := instruction.op.__dict__[name]) is not None]
    return [(tile.space, tile._bounds or tile.bounds) for tile in operands if tile.space != HBM]


class Stream:
    """The stream of one engine. ``entries``, ``details`` and ``meetings`` are by position. ``waits_for_itself``:
    instructions may have to wait for a result of the same engine. ``shares``: of an engine with a ramp, the share
    of its rows that each instruction needs; else empty."""

    def __init__(self, engine: Engine, instructions: list[Instruction], waits_for_itself: bool) -> None:
        self.engine, self.instructions, self.waits_for_itself = engine, instructions, waits_for_itself
        self.entries: list[Entry] = []
        self.details: dict[int, Detail] = {}
        self.meetings: dict[int, Occasion] = {}
        self.shares: list[float] = []


def streams_of(program: Program, machine: Machine, number: int, cores: int) -> list[Stream]:
    """Return the streams of core ``number`` of ``cores`` as numbers."""
    builder = _Builder(program, machine, number, cores)
    return [builder.stream(engine, program.streams[engine]) for engine in ENGINES if program.streams[engine]]


class _Builder:
    def __init__(self, program: Program, machine: Machine, number: int, cores: int) -> None:
        self.machine, self.number, self.cores = machine, number, cores
        self.transfers = Transfers(machine)
        self.controls: dict[type[Control], Entry] = {}
        costs = machine.costs
        self.psum_engines = (Engine.VECTOR, Engine.SCALAR) if costs.psum_port_shared else ()
        self.sbuf_engines = (Engine.VECTOR, Engine.GPSIMD) if costs.sbuf_port_shared and any(
            isinstance(i.op, Op) and not i.op.queued for i in program.streams[Engine.GPSIMD]) else ()
        self.issue = self.entry(TRANSFER, Cost(float(costs.dma.issue_ns), 0.0, 0.0))

    def stream(self, engine: Engine, instructions: list[Instruction]) -> Stream:
        stream = Stream(engine, instructions, bool(self.machine.costs.engines[engine].own_result_ns))
        entries: dict[tuple[Work, int], Entry] = {}
        shares = engine in self.psum_engines or engine in self.sbuf_engines
        add = stream.entries.append
        for at, instruction in enumerate(instructions):
            op = instruction.op
            if instruction.queue is not None:
                assert isinstance(op, Op)
                add(self.issue)
                stream.details[at] = self.transfer(instruction, op)
                if isinstance(op, Meeting) and (occasion := self.occasion(op)) is not None:
                    stream.meetings[at] = occasion
            elif isinstance(op, Control):
                add(self.controls.get(type(op)) or self.control(type(op)))
                if isinstance(op, WITH_DETAILS):
                    stream.details[at] = op
            else:
                key = instruction.work_of(op), self.ports(op, engine) if shares else 0
                entry = entries.get(key)
                if entry is None:
                    entry = entries[key] = self.entry(WORK, self.machine.cost(engine, key[0]), key[1])
                if isinstance(op, Meeting) and (occasion := self.occasion(op)) is not None:
                    stream.details[at] = occasion
                    entry = MEETING, *entry[1:]
                add(entry)
        if self.machine.costs.engines[engine].ramp is not None:
            stream.shares = [self.share(instruction) for instruction in instructions]
        return stream

    # -- kinds ---------------------------------------------------------------------------------------------------------
    def entry(self, kind: int, cost: Cost, port: int = 0) -> Entry:
        """Return the entry of a cost; an engine is never faster than the fetch of its instructions."""
        return kind, max(cost.busy, float(self.machine.costs.control.fetch_ns)), cost.result, cost.own_result, port

    def transfer(self, instruction: Instruction, op: Op) -> TimedTransfer:
        """Return the transfer of an instruction, memoized: a search, its result and profiles time the same program."""
        timed = instruction.timed
        if timed is None or timed[0] is not self.machine:
            timed = instruction.timed = self.machine, self.transfers.of(op)
        transfer: TimedTransfer = timed[1]
        return transfer

    def share(self, instruction: Instruction) -> float:
        """Return the share of the engine's rows that an instruction needs, memoized as above."""
        op = instruction.op
        if instruction.queue is not None or isinstance(op, Control):
            return 0.0
        timed = instruction.timed
        if timed is None or timed[0] is not self.machine:
            timed = instruction.timed = self.machine, share_of_rows(op, self.machine)
        share: float = timed[1]
        return share

    def ports(self, op: Op, engine: Engine) -> int:
        port = 0
        if engine in self.psum_engines and any([t.space == PSUM for _, t in op.operands()]):
            port = PSUM_PORT
        if engine in self.sbuf_engines and any([t.space == SBUF for _, t in op.operands()]):
            port |= SBUF_PORT
        return port

    def control(self, kind: type[Control]) -> Entry:
        costs = self.machine.costs.control
        ns = {EventSemaphore: costs.event_ns, RangeClear: costs.event_ns, ActTableLoad: costs.table_load_ns,
              TensorLoad: costs.load_ns}.get(kind, costs.register_ns)
        entry = self.controls[kind] = self.entry(TABLE_LOAD if kind is ActTableLoad else CONTROL,
                                                 Cost(float(ns), float(costs.signal_ns), 0.0))
        return entry

    def occasion(self, op: Meeting) -> Occasion | None:
        """Return the meeting with other timed cores, or None. Ranks are alike, and the model has them arrive at one
        time."""
        members = tuple(op.members(self.number)) if op.between == PROGRAMS else ()
        if self.cores < 2 or self.number not in members or len(members) < 2:
            return None
        return Occasion(members, op.occasion())
