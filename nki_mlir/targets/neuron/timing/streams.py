# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The streams of a program as plain numbers, which the timed machine reads; each distinct instruction is costed once.

An entry of a stream is a tuple: its kind; the ns that it occupies the engine; the ns after that until other
engines see the result, and until the engine itself may read it; the ports that it holds. Instructions of equal cost
share a tuple. ``details`` has what else a kind needs.
"""

from typing import NamedTuple

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.launch_members import PROGRAMS
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.dialects.op import Op
from nki_mlir.machine import ENGINES, Cost, Engine, Machine, Work
from nki_mlir.targets.neuron.timing.ramp import share_of_rows
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer, Transfers

WORK, TRANSFER, MEETING, CONTROL, TABLE_LOAD = range(5)         # kinds
PSUM_PORT, SBUF_PORT = 1, 2
# number of latest instructions of an engine that may be incomplete when its next one starts
NEAR = 4

Entry = tuple[int, float, float, float, int]


class Synchronization(NamedTuple):
    """A synchronization of several cores: the cores, and a key that distinguishes it from their others."""

    members: tuple[int, ...]
    key: object


# Control with further effects.
WITH_DETAILS = (isa.Move, isa.RegisterAlu, isa.CompareBranch, isa.TensorLoad, isa.RangeClear)
Detail = (TimedTransfer | isa.Move | isa.RegisterAlu | isa.CompareBranch | isa.TensorLoad | isa.RangeClear
          | Synchronization)


class Stream:
    """The stream of one engine. ``entries``, ``details`` and ``meetings`` are by position. ``waits_for_itself``:
    instructions may have to wait for a result of the same engine. ``shares``: of an engine with a ramp, the share
    of its rows that each instruction needs; else empty."""

    def __init__(self, engine: Engine, instructions: list[isa.Instruction], waits_for_itself: bool) -> None:
        self.engine, self.instructions, self.waits_for_itself = engine, instructions, waits_for_itself
        self.entries: list[Entry] = []
        self.details: dict[int, Detail] = {}
        self.meetings: dict[int, Synchronization] = {}
        self.shares: list[float] = []


def streams_of(program: Program, machine: Machine, number: int, cores: int) -> list[Stream]:
    """Return the streams of core ``number`` of ``cores`` as numbers."""
    builder = _Builder(program, machine, number, cores)
    return [builder.stream(engine, program.streams[engine]) for engine in ENGINES if program.streams[engine]]


# The costs of an instruction on an engine, in any program: its entry without ports, its
# details (``Stream.details``), and the share of the engine's rows that it needs, if the engine has a ramp.
TimedInstruction = tuple[Machine, Engine, Entry, Detail | None, float]


class _Builder:
    def __init__(self, program: Program, machine: Machine, number: int, cores: int) -> None:
        self.machine, self.number, self.cores = machine, number, cores
        self.transfers = Transfers(machine)
        self.controls: dict[type[isa.Control], Entry] = {}
        self.works: dict[tuple[Work, float], TimedInstruction] = {}         # memo of the stream's engine
        self.holding: dict[tuple[Entry, int], Entry] = {}                   # memo of entries with ports
        costs = machine.costs
        self.psum_engines = (Engine.VECTOR, Engine.SCALAR) if costs.psum_port_shared else ()
        self.sbuf_engines = (Engine.VECTOR, Engine.GPSIMD) if costs.sbuf_port_shared and any(
            isinstance(i.op, Op) and not i.op.queued for i in program.streams[Engine.GPSIMD]) else ()
        self.issue = self.entry(TRANSFER, Cost(float(costs.dma.issue_ns), 0.0, 0.0))

    def stream(self, engine: Engine, instructions: list[isa.Instruction]) -> Stream:
        machine = self.machine
        self.works = {}
        stream = Stream(engine, instructions, bool(machine.costs.engines[engine].result_in_engine_ns))
        entries, details, shares = stream.entries, stream.details, stream.shares
        ramp = machine.costs.engines[engine].ramp is not None
        for at, instruction in enumerate(instructions):
            timed: TimedInstruction | None = instruction.timed
            if timed is None or timed[0] is not machine or timed[1] is not engine:
                timed = instruction.timed = self.timed(instruction, engine, ramp)
            _, _, entry, detail, share = timed
            entries.append(entry)
            if detail is not None:
                details[at] = detail
            if ramp:
                shares.append(share)
        if engine in self.psum_engines or engine in self.sbuf_engines:
            stream.entries = [self.with_ports(entry, instruction, engine)
                              for entry, instruction in zip(entries, instructions)]
        if self.cores > 1:
            self.add_meetings(stream)
        return stream

    def timed(self, instruction: isa.Instruction, engine: Engine, ramp: bool) -> TimedInstruction:
        """Return the numbers that the machine reads of an instruction. The instruction keeps them, because a search,
        its result and profiles time the same program."""
        op = instruction.op
        if instruction.queue is not None:
            assert isinstance(op, Op)
            return self.machine, engine, self.issue, self.transfers.of(op), 0.0
        if isinstance(op, isa.Control):
            entry = self.controls.get(type(op)) or self.control(type(op))
            return self.machine, engine, entry, op if isinstance(op, WITH_DETAILS) else None, 0.0
        key = instruction.work or instruction.work_of(op), share_of_rows(op, self.machine) if ramp else 0.0
        timed = self.works.get(key)
        if timed is None:
            entry = self.entry(WORK, self.machine.cost(engine, key[0]))
            timed = self.works[key] = self.machine, engine, entry, None, key[1]
        return timed

    def add_meetings(self, stream: Stream) -> None:
        """Mark the instructions of a stream by which its core synchronizes with others."""
        for at, instruction in enumerate(stream.instructions):
            op = instruction.op
            if isinstance(op, Meeting) and (synchronization := self.synchronization(op)) is not None:
                if instruction.queue is not None:
                    stream.meetings[at] = synchronization
                else:
                    stream.details[at] = synchronization
                    stream.entries[at] = MEETING, *stream.entries[at][1:]

    def with_ports(self, entry: Entry, instruction: isa.Instruction, engine: Engine) -> Entry:
        """Return an entry of a stream with the ports that its instruction holds."""
        if entry[0] != WORK or not isinstance(instruction.op, Op):
            return entry
        key = entry, self.ports(instruction.op, engine)
        holding = self.holding.get(key)
        if holding is None:
            holding = self.holding[key] = *entry[:4], key[1]
        return holding

    # -- kinds ---------------------------------------------------------------------------------------------------------
    def entry(self, kind: int, cost: Cost, port: int = 0) -> Entry:
        """Return the entry of a cost. An instruction occupies its engine at least as long as the fetch of an
        instruction takes."""
        busy = max(cost.busy, float(self.machine.costs.control.fetch_ns))
        return kind, busy, cost.result, cost.result_in_engine, port

    def ports(self, op: Op, engine: Engine) -> int:
        port = 0
        if engine in self.psum_engines and any([t.space == PSUM for _, t in op.operands()]):
            port = PSUM_PORT
        if engine in self.sbuf_engines and any([t.space == SBUF for _, t in op.operands()]):
            port |= SBUF_PORT
        return port

    def control(self, kind: type[isa.Control]) -> Entry:
        costs = self.machine.costs.control
        ns = {isa.EventSemaphore: costs.event_ns, isa.RangeClear: costs.event_ns, isa.ActTableLoad: costs.table_load_ns,
              isa.TensorLoad: costs.load_ns}.get(kind, costs.register_ns)
        entry = self.controls[kind] = self.entry(TABLE_LOAD if kind is isa.ActTableLoad else CONTROL,
                                                 Cost(float(ns), float(costs.signal_ns), 0.0))
        return entry

    def synchronization(self, op: Meeting) -> Synchronization | None:
        """Return the synchronization with other timed cores, or None. The model assumes that ranks arrive at the
        same time, because they run equal programs."""
        members = tuple(op.members(self.number)) if op.between == PROGRAMS else ()
        if self.number not in members or len(members) < 2:
            return None
        return Synchronization(members, op.exchange_key())
