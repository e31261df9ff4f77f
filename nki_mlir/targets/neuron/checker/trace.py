# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Follow one order in which streams can run, without values: registers are computed, semaphores count, no data move.

An engine runs until a semaphore blocks it; a transfer completes as soon as it is triggered, unless it synchronizes with
other cores, or is in its queue behind one that does. Registers that data decide are unknowns; ``Choices`` decides a
branch on one of them, equally for all engines that compare the same number.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.launch_members import PROGRAMS
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.checker.exchanged_operands import check_exchange
from nki_mlir.targets.neuron.checker.loaded_numbers import LoadedNumbers
from nki_mlir.targets.neuron.checker.register_numbers import (
    UNSET,
    DataDependent,
    Number,
    computed,
    limits_of,
    registers_read,
)
from nki_mlir.targets.neuron.control import control_step
from nki_mlir.targets.neuron.deadlock import Waiter, deadlock
from nki_mlir.targets.neuron.simulated_core import SemaphoreRange

SEEN_TWICE = 2                  # iterations that are followed of a loop whose number of iterations data decide


@dataclass(slots=True, eq=False)
class Event:
    """One execution of an instruction: number ``index`` (from 1) on the lane of its engine. A transfer also is number
    ``queue_index`` on the lane of its queue, where it completes; ``met``: it meets other cores in a ``CoreMeeting``;
    ``later``: it completes at a ``CoreMeeting``, its own or that of an earlier transfer of its queue."""

    instruction: isa.Instruction
    core: int
    engine: Engine
    pc: int
    lane: int
    index: int
    values: tuple[Number, ...] = ()         # values of the operation's symbols
    queue_lane: int = -1
    queue_index: int = 0
    met: bool = False
    later: bool = False
    clock: tuple[int, ...] = ()             # filled by ``happens_before``: the events that are complete when it starts
    # for an event that synchronizes with other cores, the clock at its completion
    done: tuple[int, ...] = ()

    @property
    def site(self) -> "Site":
        return self.core, self.engine, self.pc


Site = tuple[int, Engine, int]              # the site of an instruction: its core, its stream, its index in the stream


@dataclass(slots=True, eq=False)
class CoreMeeting:
    """The events of several cores that wait for each other, at the point where the last one arrives.

    ``completed`` has the events that complete there in their order: these, and transfers that waited behind them."""

    events: list[Event]
    completed: list[Event] = field(default_factory=list)


class UnsetRegister(NkiMlirError):
    code = "NKI-STREAM-REGISTER"
    message = "{event} reads r{number}, which no instruction of this engine has set"
    why = "a register has what an earlier program left in it"
    fix = "set it with a MOVE first, or read another one"


class EndlessLoop(NkiMlirError):
    code = "NKI-STREAM-ENDLESS"
    message = "{event} branches to {target} again, with no register changed since the last time"
    why = "the engine repeats these instructions for ever"
    fix = "let an instruction of the loop change a register that the branch compares"


class TooLong(Exception):
    """The streams execute more instructions than the checker follows."""


class Choices:
    """Chooses the sides of branches that data decide.

    ``script`` are the first decisions. After that a branch is not taken the first two times, so that a loop runs twice,
    and then taken."""

    def __init__(self, script: Sequence[bool] = ()) -> None:
        self.script = script
        self.decided: dict[object, bool] = {}
        self.sites: list[tuple[object, bool]] = []
        self.left = Counter[object]()           # how often the branch of each site was not taken
        self.of_core: dict[int, dict[object, bool]] = defaultdict(dict)
        self.cut = False

    def is_taken(self, key: object, core: int, branch: object) -> bool:
        if key not in self.decided:
            number, site = len(self.sites), (core, branch)
            choice = self.script[number] if number < len(self.script) else self.left[site] >= SEEN_TWICE
            self.decided[key] = choice
            self.sites.append((site, choice))
            self.left[site] += not choice
        self.of_core[core][key] = self.decided[key]
        return self.decided[key]

    def differ(self, cores: int) -> bool:
        """Return whether some cores took different sides. The checker cannot tell whether they do so in a run, since
        numbers that cores load from different tiles may or may not be equal."""
        sides = [list(self.of_core[core].values()) for core in range(cores)]
        return any(of_core != sides[0] for of_core in sides)

    @property
    def of_several_cores(self) -> bool:
        """Whether several cores have branches that depend on data. The checker assumes that these cores take the same
        branches, though their data may differ."""
        return len(self.of_core) > 1

    def alternatives(self, most: int) -> list[list[bool]]:
        """Return scripts for other runs. Each differs from this run in one decision after the script; at most ``most``
        are returned, for the last decisions. In no run, a branch is left untaken more than twice."""
        ends, not_taken = [], Counter[object]()
        for k, (site, branched) in enumerate(self.sites):
            if k >= len(self.script):
                if not_taken[site] >= SEEN_TWICE:
                    self.cut = True
                else:
                    ends.append(k)
            not_taken[site] += not branched
        choices = [branched for _, branched in self.sites]
        return [[*choices[:k], not choices[k]] for k in ends[-most:]]


@dataclass
class CoreProgress:
    """The state of a core: the next instructions of its engines, its registers and semaphores."""

    program: Program
    pc: dict[Engine, int]
    registers: dict[Engine, list[Number]]
    semaphores: list[int]
    loaded: LoadedNumbers
    waiting: dict[int, list[Engine]] = field(default_factory=lambda: defaultdict(list))
    meetings: dict[object, int] = field(default_factory=lambda: defaultdict(int))
    blocked: set[Engine] = field(default_factory=set)       # engines that wait for other cores
    # By branch, the registers of its engine when it last branched back, if the engine has loaded none since
    loop_registers: dict[Engine, dict[int, list[Number]]] = field(default_factory=lambda: defaultdict(dict))
    # By lane, the transfers of a queue from the first one on that waits for other cores
    behind: dict[int, deque[Event]] = field(default_factory=lambda: defaultdict(deque))


class StreamTrace:
    """The events in order; ``lanes`` has those of each engine and queue. Raises ``Deadlock`` and ``TooLong``."""

    def __init__(self, programs: Sequence[Program], choices: Choices, limit: int) -> None:
        self.programs, self.choices, self.limit = programs, choices, limit
        self.steps: list[Event | CoreMeeting] = []
        self.lane_of: dict[tuple[int, Engine | int], int] = {}
        for core, program in enumerate(programs):
            keys = [*(e for e, s in program.streams.items() if s), *range(len(program.queues))]
            for key in keys:
                self.lane_of[core, key] = len(self.lane_of)
        self.lanes: list[list[Event]] = [[] for _ in self.lane_of]
        self.is_queue = [isinstance(key, int) for _, key in self.lane_of]
        self.alone: set[str] = set()            # mnemonics of waits for cores without a program
        self.executed = 0
        self.cores = [CoreProgress(p, {e: 0 for e, s in p.streams.items() if s},
                                {e: [UNSET] * isa.REGISTERS for e, s in p.streams.items() if s},
                                [0] * len(p.semaphores), LoadedNumbers(core, p))
                      for core, p in enumerate(programs)]
        self.gatherings: dict[tuple[object, int], list[Event]] = {}
        self.unmet: dict[Event, None] = {}      # transfers that wait for other cores
        self.exchanged = set[object]()          # operations that exchange data and whose operands fit each other
        self.ready: deque[tuple[int, Engine]] = deque(
            (core, engine) for core, state in enumerate(self.cores) for engine in state.pc)
        while self.ready:
            self.advance(*self.ready.popleft())
        self.check_ended()

    def check_ended(self) -> None:
        """Raise ``Deadlock`` unless all streams have ended and no core waits for others."""
        waiters = [Waiter(event.core, event.engine, event.pc, -1, 0, 0) for event in self.unmet]
        for core, state in enumerate(self.cores):
            for engine, pc in state.pc.items():
                stream = state.program.streams[engine]
                if engine in state.blocked:
                    waiters.append(Waiter(core, engine, pc - 1, -1, 0, 0))
                elif pc < len(stream):
                    short = [w for w in stream[pc].waits if state.semaphores[w.semaphore] < w.value]
                    wait = short[0] if short else None
                    waiters.append(Waiter(core, engine, pc, wait.semaphore if wait else -1, wait.value if wait else 0,
                                          state.semaphores[wait.semaphore] if wait else 0))
        if waiters:
            raise deadlock(waiters, self.programs)

    def advance(self, core: int, engine: Engine) -> None:
        """Run an engine until its stream ends or it blocks."""
        state = self.cores[core]
        stream = state.program.streams[engine]
        while (pc := state.pc[engine]) < len(stream) and engine not in state.blocked:
            instruction = stream[pc]
            for wait in instruction.waits:
                if state.semaphores[wait.semaphore] < wait.value:
                    state.waiting[wait.semaphore].append(engine)
                    return
            event = self.begin(instruction, core, engine, pc)
            try:
                if isinstance(instruction.op, isa.Control):
                    self.steps.append(event)
                    self.control(instruction.op, core, engine, pc)
                    self.update(event)
                elif not self.meets_others(event):
                    self.perform(event)
            except NkiMlirError as error:
                raise error.located(instruction.location) from None

    def begin(self, instruction: isa.Instruction, core: int, engine: Engine, pc: int) -> Event:
        """Return the next event of an engine, with the values of its operation's symbols, and add it to its lanes."""
        self.executed += 1
        if self.executed > self.limit:
            raise TooLong
        state, op, lane = self.cores[core], instruction.op, self.lane_of[core, engine]
        event = Event(instruction, core, engine, pc, lane, len(self.lanes[lane]) + 1)
        self.lanes[lane].append(event)
        state.pc[engine] = pc + 1
        registers = state.registers[engine]
        unset = next((r.number for r in registers_read(op) if registers[r.number] is UNSET), None)
        if unset is not None:
            label = f"{engine.asm} {pc:04d} {op.mnemonic}"
            raise UnsetRegister(event=label, number=unset).located(instruction.location)
        if isinstance(op, isa.Control):
            return event
        if op.symbols:
            event.values = tuple([registers[s.number] for s in op.symbols])
        if state.loaded.writes:
            state.loaded.note_writes(op, event.values, (engine, pc))
        if instruction.queue is not None:
            event.queue_lane = self.lane_of[core, instruction.queue]
            self.lanes[event.queue_lane].append(event)
            event.queue_index = len(self.lanes[event.queue_lane])
        return event

    def meets_others(self, event: Event) -> bool:
        """Return whether an event synchronizes with other cores. If so, record its arrival."""
        op = event.instruction.op
        if not isinstance(op, Meeting) or op.between != PROGRAMS:
            return False
        if len(self.programs) == 1:
            self.alone.add(op.mnemonic)
            return False
        members = tuple(op.members(event.core))
        if event.core not in members:
            return False
        self.arrive(members, op.exchange_key(), event)
        return True

    def perform(self, event: Event) -> None:
        """Complete an event that synchronizes with no other core, unless it is behind a transfer of its queue that
        does."""
        self.steps.append(event)
        if event.queue_lane >= 0 and (waiting := self.cores[event.core].behind[event.queue_lane]):
            event.later = True
            waiting.append(event)
        else:
            self.update(event)

    def update(self, event: Event) -> None:
        update, core = event.instruction.update, event.core
        if update is None:
            return
        state = self.cores[core]
        value = state.semaphores[update.semaphore] + update.amount
        if not 0 <= value <= isa.SEMAPHORE_MAX:
            where = f" at {event.engine.asm} {event.pc:04d} {event.instruction.op.mnemonic}"
            raise SemaphoreRange(number=update.semaphore, name=state.program.semaphores[update.semaphore].name,
                                 value=value, limit=isa.SEMAPHORE_MAX, where=where
                                 ).located(event.instruction.location)
        state.semaphores[update.semaphore] = value
        if update.amount > 0 and (engines := state.waiting.pop(update.semaphore, None)):
            self.ready.extend((core, engine) for engine in engines)

    def arrive(self, members: tuple[int, ...], key: Hashable, event: Event) -> None:
        """Record that an event has arrived at a synchronization of cores, whose events match by ``key`` and order. An
        engine then blocks; a transfer does not block its engine. The last arrival completes all."""
        state = self.cores[event.core]
        event.met = event.later = True
        if event.queue_lane >= 0:
            self.steps.append(event)
            state.behind[event.queue_lane].append(event)
            self.unmet[event] = None
        else:
            state.blocked.add(event.engine)
        exchange_key = members, key
        number = state.meetings[exchange_key]
        state.meetings[exchange_key] += 1
        present = self.gatherings.setdefault((exchange_key, number), [])
        present.append(event)
        if len(present) < len(members):
            return
        instructions = {arrived.core: arrived.instruction for arrived in present}
        checked = tuple((core, instruction.op) for core, instruction in instructions.items())
        if checked not in self.exchanged:
            check_exchange(instructions)
            self.exchanged.add(checked)
        meeting = CoreMeeting(present)
        self.steps.append(meeting)
        for arrived in present:
            self.unmet.pop(arrived, None)
        for arrived in present:
            meeting.completed += self.completed_with(arrived)
        for completed in meeting.completed:
            self.update(completed)
        for arrived in present:
            if arrived.queue_lane < 0:
                self.cores[arrived.core].blocked.discard(arrived.engine)
                self.ready.append((arrived.core, arrived.engine))

    def completed_with(self, event: Event) -> list[Event]:
        """Return the events that complete when an event has synchronized with the other cores. A transfer behind an
        earlier one of its queue completes with that one."""
        if event.queue_lane < 0:
            return [event]
        waiting, completed = self.cores[event.core].behind[event.queue_lane], list[Event]()
        while waiting and waiting[0] not in self.unmet:
            completed.append(waiting.popleft())
        return completed

    # -- registers -----------------------------------------------------------------------------------------------------
    def control(self, op: isa.Control, core: int, engine: Engine, pc: int) -> None:
        state = self.cores[core]

        def load(op: isa.TensorLoad) -> Number:
            state.loop_registers[engine].clear()
            return DataDependent(state.loaded.key(op), *limits_of(op.src.dtype))

        def is_taken(holds: Number) -> bool:
            if isinstance(holds, DataDependent):
                return self.choices.is_taken(holds.key, core, (engine, pc))
            return bool(holds)

        def clear(low: int, high: int) -> None:
            for number in range(low, high + 1):
                state.semaphores[number] = 0
        target = control_step(op, state.registers[engine], computed, load, is_taken, clear)
        if target is not None:
            state.pc[engine] = target
            if target <= pc:
                registers = state.registers[engine]
                if state.loop_registers[engine].get(pc) == registers:
                    raise EndlessLoop(event=f"{engine.asm} {pc:04d} {op.mnemonic}", target=f"{target:04d}")
                state.loop_registers[engine][pc] = registers[:]
