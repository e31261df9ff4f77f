# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The timed machine executes streams in order, event by event, without values: semaphores, ports, transfers, meetings.

``engine_run.py`` has the rules of engines, semaphores, ports and transfers; this module has the cores, and what they do
when they synchronize. The machine computes registers, so loops run their actual number of iterations. It does not know
numbers in memory, unless the caller passes them: if a branch depends on one, the engine does not take the branch the
first time, takes it the second time, and so on in turn, so that a run-time loop has one iteration.
"""

from collections.abc import Mapping, Sequence
from math import inf

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program
from nki_mlir.machine import Engine, Machine, Ramp, machine_named
from nki_mlir.targets.neuron.control import computed, control_step
from nki_mlir.targets.neuron.deadlock import Deadlock, Waiter, deadlock
from nki_mlir.targets.neuron.timing.engine_run import CODE, DIVIDES, EXCEEDS, MEETS, ROOM, SHARES, EngineRun
from nki_mlir.targets.neuron.timing.ramp import RampSpeed, RampState
from nki_mlir.targets.neuron.timing.record import MEETING, Record
from nki_mlir.targets.neuron.timing.streams import Stream, Synchronization, streams_of
from nki_mlir.targets.runtime.compiled_class import with_lists

EVENT_LIMIT = 50_000_000
NOTED = 8_192                   # events after which the run pauses to record them
Loaded = Mapping[tuple[int, Engine], Sequence[int]]     # values that an engine of a core loads into registers, in order


class TimedCore:
    """A core: its program; the bytes that it has moved to and from HBM, and the mean ns that its DMA engines did."""

    def __init__(self, number: int, program: Program, first_semaphore: int) -> None:
        self.number, self.program, self.first_semaphore = number, program, first_semaphore
        self.hbm_bytes, self.dma_ns = 0, 0.0


class Agent:
    """An engine of a core, with its stream. ``ramp``: the numbers of its ramp, if it has one."""

    def __init__(self, number: int, core: TimedCore, stream: Stream, ramp: Ramp | None) -> None:
        self.number, self.core, self.stream, self.ramp = number, core, stream, ramp


def computed_if_known(name: str, lhs: int | None, rhs: int | None) -> int | None:
    """Return the result of an operator on registers; None if one of them was loaded from memory."""
    return computed(name, lhs, rhs) if lhs is not None and rhs is not None else None


class Gathering:
    """The engines that have reached a synchronization of cores, and the transfers that other cores' parts complete."""

    def __init__(self) -> None:
        self.engines: list[int] = []
        self.transfers: list[tuple[int, int, int]] = []         # agent, position, event


class EventLimit(NkiMlirError):
    code = "NKI-EVENT-LIMIT"
    message = "the program has not ended after {limit} instructions"
    fix = "check the conditions of its branches"


class TimedMachine:
    """Run programs once, each on a separate core. ``record`` has the executed instructions, unless ``records`` is
    false; ``end`` is the time at which the last one is complete.

    ``mode`` names how the programs were compiled. More than ``limit`` instructions raise ``EventLimit``. Without
    ``ramps`` each engine always works at full speed.
    """

    def __init__(self, programs: Sequence[Program], loaded: Loaded | None = None, mode: str = "optimized",
                 limit: int | None = None, ramps: bool = True, records: bool = True) -> None:
        self.mode, self.limit, self.loaded = mode, EVENT_LIMIT if limit is None else limit, loaded
        self.records, self.record, self.end = records, Record(), 0.0
        self.machine: Machine = machine_named(programs[0].target)
        if programs[0].static_descriptors:
            self.machine = self.machine.with_static_descriptors
        self.cores: list[TimedCore] = []
        self.agents: list[Agent] = []
        semaphores = 0
        for number, program in enumerate(programs):
            self.cores.append(TimedCore(number, program, semaphores))
            semaphores += len(program.semaphores)
            for stream in streams_of(program, self.machine, number, len(programs)):
                ramp = self.machine.costs.engines[stream.engine].ramp if ramps else None
                self.agents.append(Agent(len(self.agents), self.cores[-1], stream, ramp))
        self.gatherings: dict[object, Gathering] = {}
        self.counts: dict[object, int] = {}

    def run(self) -> Record:
        """Run all engines to the ends of their streams. Raise ``Deadlock`` if some cannot get there."""
        length = sum(len(agent.stream.entries) for agent in self.agents)
        is_code = CODE.is_ready(length)
        self.state = state = self.engine_run(min(NOTED, 2 * length + ROOM) if self.records else 0)
        if not is_code:
            with_lists(state)
        runs = True
        while runs:
            state.make_room(is_code)
            CODE.call("run", state, is_code, len(state.times))
            state.notes.move_to(self.record)
            runs = state.stopped >= 0
            if runs:
                self.go_on(state, is_code)
        self.record.finish()
        self.end = state.end
        for core in self.cores:
            core.hbm_bytes = int(state.dma.moved_bytes[core.number])
            core.dma_ns = float(state.dma.moving_ns[core.number])
        if any(map(self.waits, self.agents)):
            raise self.deadlock()
        return self.record

    def engine_run(self, notes: int) -> EngineRun:
        loaded = self.loaded or {}
        return EngineRun([agent.stream for agent in self.agents], [agent.core.number for agent in self.agents],
                         [len(core.program.semaphores) for core in self.cores], self.machine,
                         [loaded.get((agent.core.number, agent.stream.engine)) for agent in self.agents],
                         [RampSpeed(agent.ramp) if agent.ramp is not None else None for agent in self.agents],
                         self.limit, notes)

    def ramp_states(self) -> dict[int, RampState]:
        """Return, by the numbers of the engines with a ramp, when these had less than full speed."""
        states = {agent.number: RampState(agent.ramp) for agent in self.agents if agent.ramp is not None}
        for number, position, start in zip(self.record.agent, self.record.position, self.record.start):
            stream = self.agents[number].stream
            if number in states and stream.shares[position]:
                states[number].end(start, stream.entries[position][1], stream.shares[position])
        return states

    # -- where the run stops -------------------------------------------------------------------------------------------
    def go_on(self, state: EngineRun, is_code: bool) -> None:
        """Handle the reason for which the run has stopped, so that it can continue."""
        agent = self.agents[state.stopped]
        if state.stop_reason == MEETS:
            self.arrive(agent, state)
        elif state.stop_reason == SHARES:
            self.share_transfer(agent, state, is_code)
        elif state.stop_reason == DIVIDES:
            self.divide(agent, state)
        elif state.stop_reason == EXCEEDS:
            raise EventLimit(limit=self.limit)

    def position(self, agent: Agent, state: EngineRun) -> int:
        """Return the position of an engine in its stream."""
        return int(state.at[agent.number] - state.first[agent.number])

    def divide(self, agent: Agent, state: EngineRun) -> None:
        """Raise the error of a division by 0."""
        position = self.position(agent, state)
        op, registers = agent.stream.details[position], state.registers[agent.number * isa.REGISTERS:]
        assert isinstance(op, isa.Control)
        try:
            control_step(op, list(map(int, registers)), computed, lambda _: 0, bool, lambda *_: None)
        except NkiMlirError as error:
            raise error.located(agent.stream.instructions[position].location) from None

    # -- meetings of cores ---------------------------------------------------------------------------------------------
    def gathering(self, agent: Agent, synchronization: Synchronization) -> Gathering:
        """Return the next synchronization of this kind that the agent's core has not attended."""
        met = self.counts[agent.core, synchronization] = self.counts.get((agent.core, synchronization), 0) + 1
        return self.gatherings.setdefault((synchronization, met), Gathering())

    def arrive(self, agent: Agent, state: EngineRun) -> None:
        """Let an engine reach a synchronization of cores. It waits until all have reached it; the last one resumes the
        others."""
        synchronization = agent.stream.details[self.position(agent, state)]
        assert isinstance(synchronization, Synchronization)
        gathering = self.gathering(agent, synchronization)
        if len(gathering.engines) + 1 < len(synchronization.members):
            gathering.engines.append(agent.number)
            state.due[agent.number], state.stopped = inf, -1
            return
        state.met[agent.number] = 1
        for waiting in gathering.engines:
            state.met[waiting] = 1
            state.schedule_attempt(waiting, state.stop_time, MEETING, state.executed)

    def share_transfer(self, agent: Agent, state: EngineRun, is_code: bool) -> None:
        """Trigger a core's part of a transfer of several cores, which begins when the last core has triggered its part.
        """
        synchronization, event = agent.stream.meetings[self.position(agent, state) - 1], state.executed - 1
        gathering = self.gathering(agent, synchronization)
        gathering.transfers.append((agent.number, int(state.at[agent.number]) - 1, event))
        if len(gathering.transfers) == len(synchronization.members):
            for number, at, triggered in gathering.transfers:
                state.make_room(is_code)
                CODE.call("carry_out", state, is_code, number, at, state.triggered_at, triggered, event)
            state.notes.move_to(self.record)

    # -- standstill ----------------------------------------------------------------------------------------------------
    def waits(self, agent: Agent) -> bool:
        """Return whether an engine has not reached the end of its stream."""
        return self.position(agent, self.state) < len(agent.stream.entries)

    def deadlock(self) -> Deadlock:
        """Return the error for engines that wait for each other for ever."""
        return deadlock([self.waiter(agent) for agent in self.agents if self.waits(agent)],
                        [core.program for core in self.cores])

    def waiter(self, agent: Agent) -> Waiter:
        number, value, shown, position = -1, 0, 0, self.position(agent, self.state)
        for wait in agent.stream.instructions[position].waits:
            number, value = wait.semaphore, wait.value
            shown = int(self.state.values[agent.core.first_semaphore + number])
            if shown < value:
                break
        return Waiter(agent.core.number, agent.stream.engine, position, number, value, shown)
