# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One core as the simulator models it: memories, engines, queues of transfers, and the steps that are ready."""

import itertools
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.lib.array_utils import byte_bounds

from nki_mlir.diagnostics import KernelError, Location, NkiMlirError
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Tile
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program, Variable
from nki_mlir.dialects.launch_members import MEMBERS, PROGRAMS
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine, machine_named
from nki_mlir.targets.interpreter.unwritten_hbm import tracked
from nki_mlir.targets.mesh import Exchange, Exchanges, waiting_text
from nki_mlir.targets.neuron.control import computed, control_step
from nki_mlir.targets.neuron.deadlock import Waiter, described
from nki_mlir.targets.neuron.execution import Executors, element
from nki_mlir.targets.neuron.order import EngineStep

T = TypeVar("T")
POISON = 0xFF
ALL_ENGINES = (1 << isa.COMPLETIONS) - 1        # a bit for each DMA engine
OF_COMPILER = re.compile(r"internal(_\d+)?")       # names of HBM variables that the compiler adds
Agent = tuple[int, Engine | int]    # the number of a core, and one of its engines or the number of one of its queues


class SemaphoreRange(NkiMlirError):
    code = "NKI-SEMAPHORE-RANGE"
    message = "semaphore {number} ({name}) would become {value}{where}"
    why = "a semaphore counts from 0 to {limit}"


class WrongArrays(NkiMlirError):
    code = "NKI-ARRAYS"
    message = "the program has {variables} {kind}s ({names}), but is given {arrays} arrays as {kind}s"
    fix = "give one array for each variable, in the order of their numbers"


class WrongArray(WrongArrays):
    message = "{name} takes a contiguous array {dtype}{shape}, got {dtype_given}{shape_given}{layout}"
    fix = "give np.ascontiguousarray(x, np.{numpy}) with the shape {shape}"


class SharedMemory(WrongArrays):
    message = "the arrays of {names} share memory, and the kernel writes to it"
    why = "instruction streams are ordered for arrays in separate memory"
    fix = "pass a copy of one of them: np.array(x)"


@dataclass(eq=False)
class Transfer:
    """A triggered DMA: the instruction with the starts of its tiles, and its state. It may wait for other cores.

    ``reported`` has a bit for each DMA engine that has finished its part, possibly before others start.
    """

    instruction: isa.Instruction
    starts: list[int]
    meeting: "ExchangeIncomplete | None" = None
    moved: bool = False
    reported: int = 0

    @property
    def free(self) -> bool:
        """Whether its data can move: it waits for no other core."""
        return self.meeting is None or self.meeting.exchange.complete


class ExchangeIncomplete(Exception):
    """An instruction exchanges data with other cores that have not arrived yet."""

    def __init__(self, exchange: Exchange, operation: str) -> None:
        self.exchange, self.operation = exchange, operation


class Core:
    """The state of a core, and the steps of its engines and queues. ``memory`` maps on-chip spaces and HBM variables to
    arrays.

    ``exchanges`` has the exchanges with the other cores; it is None for a single core.
    """

    def __init__(self, program: Program, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], number: int = 0,
                 exchanges: Exchanges | None = None, executors: Executors | None = None) -> None:
        self.program, self.number, self.exchanges = program, number, exchanges
        machine = machine_named(program.target)
        self.executors = executors or Executors()
        self.memory: dict[object, np.ndarray] = self.executors.memories(
            machine, POISON, {SBUF: program.sbuf_bytes, PSUM: program.psum_bytes})
        for kind, arrays in (("input", inputs), ("output", outputs)):
            variables = program.of_kind(kind)
            if len(variables) != len(arrays):
                raise WrongArrays(variables=len(variables), arrays=len(arrays), kind=kind,
                                  names=", ".join(v.name for v in variables) or "none")
            self.memory |= {v: checked(v, a) for v, a in zip(variables, arrays)}
        self.check_apart([v for v in self.memory if isinstance(v, Variable)])
        for v in program.of_kind("internal") + program.of_kind("constant"):
            raw = np.zeros(v.nbytes, np.uint8) if v.kind == "internal" else np.frombuffer(v.data, np.uint8).copy()
            array = raw.view(v.dtype.numpy).reshape(v.shape)
            of_kernel = v.kind == "internal" and not OF_COMPILER.fullmatch(v.name)
            self.memory[v] = tracked(array, v.name) if of_kernel else array
        self.semaphores = [0] * len(program.semaphores)
        self.streams = {e: s for e, s in program.streams.items() if s}
        self.pc = dict.fromkeys(self.streams, 0)
        self.registers = {e: [0] * isa.REGISTERS for e in self.streams}
        # values that each engine has loaded, in order
        self.loaded: dict[Engine, list[int]] = {e: [] for e in self.streams}
        self.queues: list[list[Transfer]] = [[] for _ in program.queues]
        self.executed = 0
        self.waiting_transfers = 0                               # transfers that wait for other cores
        self.meetings: dict[Engine, tuple[ExchangeIncomplete, Location | None]] = {}   # what engines wait for

    def release_memory(self) -> None:
        """Make the on-chip memories available to another run of the program."""
        self.executors.spare.append({space: self.memory.pop(space) for space in (SBUF, PSUM)})

    def check_apart(self, variables: Sequence[Variable]) -> None:
        """Raise ``SharedMemory`` if two variables share memory that the program writes."""
        spans = sorted((*byte_bounds(self.memory[v]), number) for number, v in enumerate(variables)
                       if self.memory[v].size)
        if all(first[1] <= then[0] for first, then in itertools.pairwise(spans)):
            return
        written = {tile.handle for stream in self.program.streams.values() for step in stream
                   if isinstance(step.op, Op) for _, tile in step.op.targets()}
        # the last end of the spans so far, and the number of its variable
        latest, latest_written = (0, -1), (0, -1)
        for low, high, number in spans:
            is_written = variables[number] in written
            end, other = latest if is_written else latest_written
            if low < end:
                names = " and ".join(variables[k].name for k in sorted((other, number)))
                raise SharedMemory(names=names).here()
            latest = max(latest, (high, number))
            latest_written = max(latest_written, (high, number)) if is_written else latest_written

    # -- engines -------------------------------------------------------------------------------------------------------
    def can_start(self, engine: Engine) -> bool:
        """Return whether the engine's next instruction can start."""
        at, stream = self.pc[engine], self.streams[engine]
        if self.meetings and engine in self.meetings:
            return self.meetings[engine][0].exchange.complete
        if at >= len(stream):
            return False
        for wait in stream[at].waits:
            if self.semaphores[wait.semaphore] < wait.value:
                return False
        return True

    def blocking_reason(self, step: EngineStep) -> str:
        """Return why the engine cannot execute that instruction now, or "" if it can."""
        at = self.pc.get(step.engine)
        if at != step.number:
            return f"{step.engine.asm} is at {'its end' if at is None else f'{at:04d}'}"
        if not self.can_start(step.engine):
            return next((described(w, self.program) for w in self.waiters() if w.engine is step.engine), "it has ended")
        return ""

    def step(self, engine: Engine) -> None:
        """Execute the engine's next instruction."""
        instruction = self.streams[engine][self.pc[engine]]
        self.pc[engine] += 1
        self.executed += 1
        op = instruction.op
        if isinstance(op, isa.Control):
            try:
                self.control(op, engine)
            except NkiMlirError as error:
                raise error.located(instruction.location) from None
        else:
            registers = self.registers[engine]
            try:
                starts = self.executors.starts(op, [registers[s.number] for s in op.symbols])
            except KernelError as error:
                raise error.located(instruction.location) from None
            if instruction.queue is not None:
                self.queues[instruction.queue].append(Transfer(instruction, starts))
                return
            try:
                self.operation(op, starts, instruction.location)
            except ExchangeIncomplete as meeting:
                self.meetings[engine] = meeting, instruction.location
                self.pc[engine] -= 1
                return
            self.meetings.pop(engine, None)
        if instruction.update is not None:
            self.update(instruction.update)

    def array(self, tile: Tile) -> np.ndarray:
        return self.memory[tile.handle if tile.space == HBM else tile.space]

    def operation(self, op: Op, starts: list[int], location: Location | None) -> None:
        arrays = [self.array(tile) for _, tile in op.operands()]
        token = None
        if self.exchanges is not None and isinstance(op, Meeting):
            token = MEMBERS[PROGRAMS].set(self)
        try:
            self.executors.run(op, arrays, starts, location)
        except NkiMlirError as error:
            raise error.located(location) from None
        finally:
            if token is not None:
                MEMBERS[PROGRAMS].reset(token)

    def exchange(self, members: tuple[int, ...], key: Hashable, value: T, operation: str) -> list[T]:
        """Exchange a value with other cores. Raise ``ExchangeIncomplete`` unless all have arrived; the instruction is
        tried again later."""
        assert self.exchanges is not None
        exchange = self.exchanges.contribute(self.number, members, key, value)
        if not exchange.complete:
            raise ExchangeIncomplete(exchange, operation)
        return self.exchanges.collect(self.number, key, exchange)

    def control(self, op: isa.Control, engine: Engine) -> None:
        def load(op: isa.TensorLoad) -> int:
            self.loaded[engine].append(isa.signed(element(op.src, self.array(op.src))))
            return self.loaded[engine][-1]

        target = control_step(op, self.registers[engine], computed, load, bool, self.clear)
        if target is not None:
            self.pc[engine] = target

    def clear(self, low: int, high: int) -> None:
        """Set the semaphores ``low`` to ``high`` to 0."""
        self.semaphores[low:high + 1] = [0] * (high + 1 - low)

    def update(self, update: isa.Update) -> None:
        value = self.semaphores[update.semaphore] + update.amount
        if not 0 <= value <= isa.SEMAPHORE_MAX:
            raise SemaphoreRange(number=update.semaphore, name=self.program.semaphores[update.semaphore].name,
                                 value=value, limit=isa.SEMAPHORE_MAX, where="")
        self.semaphores[update.semaphore] = value

    # -- queues --------------------------------------------------------------------------------------------------------
    def transfer_data(self, transfer: Transfer) -> bool:
        """Move the data of a transfer. Return False if it has to wait for other cores."""
        op = transfer.instruction.op
        assert isinstance(op, Op)
        try:
            self.operation(op, transfer.starts, transfer.instruction.location)
        except ExchangeIncomplete as meeting:
            self.waiting_transfers += transfer.meeting is None
            transfer.meeting = meeting
            return False
        self.waiting_transfers -= transfer.meeting is not None
        transfer.meeting, transfer.moved = None, True
        return True

    def report(self, queue: int, engine: int) -> None:
        """Let a DMA engine report its part of its first unreported transfer. The report of the last engine moves the
        data."""
        transfer = self.unreported(queue, engine)
        assert transfer is not None and transfer.instruction.update is not None
        reported = transfer.reported | 1 << engine
        if reported == ALL_ENGINES and not transfer.moved and not self.transfer_data(transfer):
            return
        transfer.reported = reported
        update = transfer.instruction.update
        if update.amount == isa.COMPLETIONS:
            self.update(isa.Update(update.semaphore, 1))
        elif reported == ALL_ENGINES:
            self.update(update)
        if reported == ALL_ENGINES:
            self.queues[queue].remove(transfer)

    def report_moved(self, queue: int) -> None:
        """Report the leading transfers of a queue that have moved, for all DMA engines."""
        entries = self.queues[queue]
        while entries and entries[0].moved:
            update = entries.pop(0).instruction.update
            assert update is not None
            self.update(update)

    def unreported(self, queue: int, engine: int) -> Transfer | None:
        """Return the transfer that a DMA engine reports next, in the order of the queue."""
        return next((t for t in self.queues[queue] if not t.reported >> engine & 1), None)

    def movable(self, queue: int) -> list[Transfer]:
        """Return the transfers of a queue whose data can be moved."""
        return [t for t in self.queues[queue] if not t.moved and t.free]

    def reporting(self, queue: int) -> list[int]:
        """Return the DMA engines that can report a transfer of a queue."""
        transfers = ((engine, self.unreported(queue, engine)) for engine in range(isa.COMPLETIONS))
        return [engine for engine, transfer in transfers if transfer is not None and transfer.free]

    def agents(self) -> list[Agent]:
        """Return the engines and queues that are ready."""
        engines: list[Agent] = [(self.number, e) for e in self.streams if self.can_start(e)]
        return engines + [(self.number, q) for q, entries in enumerate(self.queues)
                        if entries and (not self.waiting_transfers or self.movable(q) or self.reporting(q))]

    # -- complete runs -------------------------------------------------------------------------------------------------
    def execute_ready_steps(self) -> bool:
        """Execute a step of each engine and queue that is ready. Return whether any was ready."""
        before, moved = self.executed, False
        for engine in self.streams:
            if self.can_start(engine):
                self.step(engine)
        for queue, entries in enumerate(self.queues):
            movable = self.movable(queue) if self.waiting_transfers else entries
            if movable:
                self.transfer_data(movable[0])
                self.report_moved(queue)
                moved = True
        return moved or self.executed > before

    @property
    def ended(self) -> bool:
        return all(self.pc[e] >= len(s) for e, s in self.streams.items()) and not any(self.queues)

    def waiting(self) -> str:
        """Describe the waits for other cores; if there are none, those for semaphores."""
        lines = [waiting_text(meeting.exchange, meeting.operation, location) for meeting, location in self.absent()]
        if lines:
            return " and ".join(lines)
        return "; ".join(described(w, self.program) for w in self.waiters())

    def waiters(self) -> list[Waiter]:
        """Return the engines whose next instruction waits for a semaphore, with the first such semaphore."""
        return [Waiter(self.number, engine, at, w.semaphore, w.value, self.semaphores[w.semaphore])
                for engine, stream in self.streams.items() if (at := self.pc[engine]) < len(stream)
                for w in [w for w in stream[at].waits if self.semaphores[w.semaphore] < w.value][:1]]

    def absent(self) -> list[tuple[ExchangeIncomplete, Location | None]]:
        """Return the instructions that wait for other cores."""
        meetings = [*self.meetings.values(),
                 *((t.meeting, t.instruction.location) for queue in self.queues for t in queue if t.meeting)]
        return [(meeting, location) for meeting, location in meetings if not meeting.exchange.complete]


def checked(variable: Variable, array: np.ndarray) -> np.ndarray:
    if array.shape != variable.shape or array.dtype != variable.dtype.numpy or not array.flags.c_contiguous:
        layout = "" if array.flags.c_contiguous else f" with strides {array.strides}"
        raise WrongArray(name=variable.name, dtype=variable.dtype, shape=list(variable.shape), dtype_given=array.dtype,
                         shape_given=list(array.shape), layout=layout, numpy=variable.dtype.numpy)
    return array
