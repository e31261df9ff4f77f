# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The result of a run of the timed machine: one record that all reports of times read.

docs/timing.md describes its JSON form, which has a version.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, NamedTuple, TypedDict

from nki_mlir.dialects.isa.instruction import TensorLoad
from nki_mlir.machine import ENGINES, Engine
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from nki_mlir.targets.neuron.timing.path_shares import LAUNCH, Share, shares_of
from nki_mlir.targets.neuron.timing.record import (
    BEGIN,
    MEETING,
    ORDER,
    OWN_RESULT,
    PORT,
    SEMAPHORE,
    pieces_of,
)
from nki_mlir.targets.neuron.timing.streams import CONTROL as KIND
from nki_mlir.targets.neuron.timing.streams import TABLE_LOAD, TRANSFER
from nki_mlir.targets.neuron.timing.uncertainty import LEVEL, LawShare, interval, relative_error

VERSION = 1
CONTROL, END, CORES, TABLE = "control", "end", "other cores", "table load"
OWN, PORTS, TRANSFERS, BARRIER = "own result", "port", "dma", "barrier"
ONE_ITERATION = ("numbers in tensors, which the timed machine does not know, decide branches: a loop up to such a "
                 "number is timed with one iteration")
MEETING_POINT = re.compile(r"Barrier|Go[A-Z]\w*")       # names of semaphores by which engines synchronize


class CoreFigures(TypedDict):
    """The figures of one core. Times are ns by engine: ``busy`` with work and with triggering transfers, ``stall`` by
    cause."""

    busy_ns: dict[str, float]
    stall_ns: dict[str, dict[str, float]]
    dma_ns: float
    hbm_bytes: int


class Figures(TypedDict):
    """The JSON form of a timing."""

    version: int
    kernel: str
    target: str
    mode: str
    total_ns: float
    interval_ns: tuple[float, float]
    confidence: float
    launch_ns: float
    busy_ns: dict[str, float]
    stall_ns: dict[str, dict[str, float]]
    dma_ns: float
    hbm_bytes: int
    instructions: int
    instructions_per_engine: dict[str, int]
    critical_path: list[Share]
    laws: list[LawShare]
    cores: list[CoreFigures]
    notes: list[str]


@dataclass(frozen=True)
class CoreTiming:
    """The times of one core, in ns. ``dma_ns``: the mean time that its DMA engines move data."""

    busy_ns: dict[Engine, float]
    stall_ns: dict[Engine, dict[str, float]]
    dma_ns: float
    hbm_bytes: int
    instructions: dict[Engine, int]


@dataclass(frozen=True, repr=False)
class Timing:
    """The time of a kernel. ``total_ns`` is the makespan: the launch, and the time of the streams.

    Busy and stall times of each engine add up to it, and so do the pieces of the critical path.
    """

    kernel: str
    target: str
    total_ns: float
    launch_ns: float
    cores: list[CoreTiming]
    path: list[Share] = field(default_factory=list)
    mode: str = "optimized"
    laws: list[LawShare] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        total, low, high = (f"{ns / 1e3:.4g}" for ns in (self.total_ns, *self.interval_ns))
        cores = f", {len(self.cores)} cores" if len(self.cores) > 1 else ""
        return f"<time of {self.kernel} on {self.target}{cores}: {total} us, {low} to {high}>"

    def _repr_html_(self) -> str:
        from nki_mlir import display  # start-up: needed in a notebook
        rows = [[engine.value, f"{self.slowest.instructions.get(engine, 0)}", f"{busy:.1f}"]
                for engine, busy in self.slowest.busy_ns.items()]
        return display.table([repr(self).strip("<>"), "instructions", "busy ns"], rows)

    @property
    def interval_ns(self) -> tuple[float, float]:
        """Return the interval that contains the times of four of five devices."""
        return interval(self.total_ns, relative_error(self.laws, self.total_ns))

    @property
    def slowest(self) -> CoreTiming:
        """Return the core whose engines are busy longest."""
        return max(self.cores, key=lambda core: max(core.busy_ns.values(), default=0.0))

    @property
    def hbm_bytes(self) -> int:
        """Return the bytes that all cores move to and from HBM."""
        return sum(core.hbm_bytes for core in self.cores)

    @property
    def instructions(self) -> int:
        """Return the number of executed instructions of all cores."""
        return sum(n for core in self.cores for n in core.instructions.values())

    def figures(self) -> Figures:
        """Return the JSON form. For several cores, the engines' figures at the top are the slowest core's."""
        cores = [_figures(core) for core in self.cores]
        top = cores[self.cores.index(self.slowest)]
        counted = {e.value: sum(core.instructions.get(e, 0) for core in self.cores) for e in ENGINES}
        return Figures(version=VERSION, kernel=self.kernel, target=self.target, mode=self.mode,
                       total_ns=self.total_ns, interval_ns=self.interval_ns, confidence=LEVEL,
                       launch_ns=self.launch_ns, busy_ns=top["busy_ns"], stall_ns=top["stall_ns"],
                       dma_ns=top["dma_ns"], hbm_bytes=self.hbm_bytes, instructions=self.instructions,
                       instructions_per_engine=counted, critical_path=self.path, laws=self.laws, cores=cores,
                       notes=self.notes)


def _figures(core: CoreTiming) -> CoreFigures:
    return CoreFigures(busy_ns={e.value: ns for e, ns in core.busy_ns.items()},
                       stall_ns={e.value: causes for e, causes in core.stall_ns.items()},
                       dma_ns=core.dma_ns, hbm_bytes=core.hbm_bytes)


# -- from a run --------------------------------------------------------------------------------------------------------
def timing_of(run: TimedMachine) -> Timing:
    """Return the figures of a finished run."""
    launch, end = float(run.machine.costs.control.launch_ns), run.end
    total = launch + end
    times = _engine_times(run)
    cores = []
    for core in run.cores:
        of_core = [(agent.stream.engine, times[agent.number]) for agent in run.agents if agent.core is core]
        for _, time in of_core:
            time.stalls.update({cause: ns for cause, ns in ((LAUNCH, launch), (END, end - time.end)) if ns > 0.0})
        cores.append(CoreTiming({engine: time.busy for engine, time in of_core},
                                {engine: time.stalls for engine, time in of_core},
                                core.dma_ns, core.hbm_bytes, {engine: time.instructions for engine, time in of_core}))
    program = run.cores[0].program
    path, laws = shares_of(run, pieces_of(run.record))
    return Timing(program.kernel, program.target, total, launch, cores, path, run.mode, laws, notes_of(run))


def notes_of(run: TimedMachine) -> list[str]:
    """Return what a reader of the times must know: whether the run had no numbers for those that engines load."""
    loads = any(isinstance(step.op, TensorLoad) for core in run.cores for stream in core.program.streams.values()
                for step in stream)
    return [ONE_ITERATION] if loads and run.loaded is None else []


class EngineTime(NamedTuple):
    """The time of one engine until its ``end``: busy ns, and stalled ns by cause."""

    busy: float
    end: float
    instructions: int
    stalls: dict[str, float]


def _engine_times(run: TimedMachine) -> list[EngineTime]:
    """Return the times of each agent. Times are added in the order of the run."""
    agents, record, cause_of = run.agents, run.record, StallCauses(run).of
    entries = [agent.stream.entries for agent in agents]
    busy, ends, counts = [0.0] * len(agents), [0.0] * len(agents), [0] * len(agents)
    stalls: list[dict[str, float]] = [{} for _ in agents]
    for number, position, start, end, why, event in zip(record.agent, record.position, record.start, record.end,
                                                        record.why, record.cause):
        gap = start - ends[number]
        if gap > 0.0:
            cause, of_agent = cause_of(why, event), stalls[number]
            of_agent[cause] = of_agent.get(cause, 0.0) + gap
        kind = entries[number][position][0]
        if kind < KIND:
            busy[number] += end - start
        else:
            cause, of_agent = TABLE if kind == TABLE_LOAD else CONTROL, stalls[number]
            of_agent[cause] = of_agent.get(cause, 0.0) + (end - start)
        ends[number] = end
        counts[number] += 1
    return [EngineTime(busy[k], ends[k], counts[k], {cause: ns for cause, ns in stalls[k].items() if ns > 0.0})
            for k in range(len(agents))]


class StallCauses:
    """The causes of waits: names of engines, of parts of transfers, of the cores' barrier ..."""

    BY_REASON: ClassVar = {BEGIN: CONTROL, ORDER: CONTROL, OWN_RESULT: OWN, PORT: PORTS, MEETING: CORES}

    def __init__(self, run: TimedMachine) -> None:
        self.record, self.streams = run.record, [agent.stream for agent in run.agents]
        self.semaphores = [agent.core.program.semaphores for agent in run.agents]

    def of(self, why: int, event: int) -> str:
        """Return the name of the cause of an instruction's wait, by the reason and the event of its record."""
        if why != SEMAPHORE:
            return self.BY_REASON[why]
        number, position = self.record.agent[event], self.record.position[event]
        stream = self.streams[number]
        kind = stream.entries[position][0]
        if kind == TRANSFER:
            return TRANSFERS
        if kind >= KIND and self.at_barrier(number, position):
            return BARRIER
        return stream.engine.value

    def at_barrier(self, number: int, position: int) -> bool:
        """Return whether a control instruction counts a semaphore by which engines synchronize; other semaphores signal
        an engine's progress."""
        update = self.streams[number].instructions[position].update
        return update is None or is_barrier(self.semaphores[number][update.semaphore].name)


@lru_cache
def is_barrier(semaphore: str) -> bool:
    """Return whether engines synchronize by a semaphore of this name."""
    return MEETING_POINT.fullmatch(semaphore) is not None


def duration(ns: float) -> str:
    """Return a time as text, in the unit that suits it."""
    for unit, size in (("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.2f} {unit}"
    return f"{ns:.0f} ns"


def with_interval(ns: float, interval_ns: Sequence[float]) -> str:
    """Return a time with its interval as text, in the unit of the time."""
    text = duration(ns)
    number, unit = text.split()
    size = {"ms": 1e6, "us": 1e3, "ns": 1.0}[unit]
    digits = len(number.partition(".")[2])
    return f"{number} ({'-'.join(f'{bound / size:.{digits}f}' for bound in interval_ns)}) {unit}"
