# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a run of the timed machine says: one record, which everything that reports times is made from.

docs/timing.md has its JSON form, which has a version.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.isa.instruction import ActTableLoad
from nki_mlir.machine import ENGINES, Engine
from nki_mlir.targets.neuron.timing.columns import CONTROL as KIND
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from nki_mlir.targets.neuron.timing.path import Piece, critical_path
from nki_mlir.targets.neuron.timing.record import MEETING, ORDER, OWN_RESULT, PORT, SEMAPHORE

VERSION = 1
LAUNCH, CONTROL, END, CORES, TABLE = "launch", "control", "end", "other cores", "table load"
OWN, PORTS, TRANSFERS, BARRIER = "own result", "port", "dma", "barrier"


class Share(TypedDict):
    """A part of the critical path: what one source line's instruction had of it."""

    ns: float
    engine: str
    instruction: str
    what: str
    location: str


class CoreFigures(TypedDict):
    """One core. ns by engine: ``busy`` with work and with triggering transfers, ``stall`` by cause."""

    busy_ns: dict[str, float]
    stall_ns: dict[str, dict[str, float]]
    dma_ns: float
    hbm_bytes: int


class Figures(TypedDict):
    """The JSON form."""

    version: int
    kernel: str
    target: str
    mode: str
    total_ns: float
    launch_ns: float
    busy_ns: dict[str, float]
    stall_ns: dict[str, dict[str, float]]
    dma_ns: float
    hbm_bytes: int
    instructions: int
    instructions_per_engine: dict[str, int]
    critical_path: list[Share]
    cores: list[CoreFigures]


@dataclass(frozen=True)
class CoreTiming:
    """What ran on one core, in ns. ``dma_ns``: the mean of what its DMA engines moved data."""

    busy_ns: dict[Engine, float]
    stall_ns: dict[Engine, dict[str, float]]
    dma_ns: float
    hbm_bytes: int
    instructions: dict[Engine, int]


@dataclass(frozen=True)
class Timing:
    """The time of a kernel. ``total_ns`` is the makespan: the launch, and what the streams take.

    Busy and stall times of each engine add up to it, and so do the pieces of the critical path.
    """

    kernel: str
    target: str
    total_ns: float
    launch_ns: float
    cores: list[CoreTiming]
    path: list[Share] = field(default_factory=list)
    mode: str = "optimized"

    @property
    def slowest(self) -> CoreTiming:
        """The core whose engines are busy longest."""
        return max(self.cores, key=lambda core: max(core.busy_ns.values(), default=0.0))

    @property
    def hbm_bytes(self) -> int:
        """Bytes that all cores move to and from HBM."""
        return sum(core.hbm_bytes for core in self.cores)

    @property
    def instructions(self) -> int:
        """How many were executed, on all cores."""
        return sum(n for core in self.cores for n in core.instructions.values())

    def figures(self) -> Figures:
        """The JSON form. Of several cores, engines' figures at the top are those of the slowest."""
        cores = [_figures(core) for core in self.cores]
        top = cores[self.cores.index(self.slowest)]
        counted = {e.value: sum(core.instructions.get(e, 0) for core in self.cores) for e in ENGINES}
        return Figures(version=VERSION, kernel=self.kernel, target=self.target, mode=self.mode,
                       total_ns=self.total_ns, launch_ns=self.launch_ns, busy_ns=top["busy_ns"],
                       stall_ns=top["stall_ns"], dma_ns=top["dma_ns"], hbm_bytes=self.hbm_bytes,
                       instructions=self.instructions, instructions_per_engine=counted, critical_path=self.path,
                       cores=cores)


def _figures(core: CoreTiming) -> CoreFigures:
    return CoreFigures(busy_ns={e.value: ns for e, ns in core.busy_ns.items()},
                       stall_ns={e.value: causes for e, causes in core.stall_ns.items()},
                       dma_ns=core.dma_ns, hbm_bytes=core.hbm_bytes)


# -- from a run --------------------------------------------------------------------------------------------------------
def timing_of(run: TimedMachine) -> Timing:
    """The figures of a run that has come to its end."""
    launch, end = float(run.machine.costs.control.launch_ns), run.end
    total = launch + end
    sums = {agent.number: _Sums() for agent in run.agents}
    _add_up(run, sums)
    cores = []
    for core in run.cores:
        own = [agent for agent in run.agents if agent.core is core]
        for agent in own:
            sums[agent.number].stall(LAUNCH, launch)
            sums[agent.number].stall(END, end - sums[agent.number].end)
        cores.append(CoreTiming({a.stream.engine: sums[a.number].busy for a in own},
                                {a.stream.engine: sums[a.number].stalls for a in own},
                                core.dma.busy, core.hbm_bytes, {a.stream.engine: sums[a.number].count for a in own}))
    program = run.cores[0].columns.program
    path = _shares(run, critical_path(run.record))
    path.append(Share(ns=launch, engine="", instruction="", what=LAUNCH, location=""))
    return Timing(program.kernel, program.target, total, launch, cores, sorted(path, key=lambda s: -s["ns"]), run.mode)


class _Sums:
    """What one engine's time went to."""

    def __init__(self) -> None:
        self.busy = self.end = 0.0
        self.count = 0
        self.stalls: dict[str, float] = {}

    def stall(self, cause: str, ns: float) -> None:
        if ns > 0.0:
            self.stalls[cause] = self.stalls.get(cause, 0.0) + ns


def _add_up(run: TimedMachine, sums: dict[int, _Sums]) -> None:
    record = run.record
    whose, positions = np.array(record.agent), np.array(record.position)
    starts, ends = np.array(record.start), np.array(record.end)
    for agent in run.agents:
        own, events = sums[agent.number], np.flatnonzero(whose == agent.number)
        own.count = len(events)
        if not own.count:
            continue
        start, end = starts[events], ends[events]
        gaps = start - np.concatenate(([0.0], end[:-1]))
        controls = np.array([entry[0] == KIND for entry in agent.stream.entries])[positions[events]]
        taken = end - start
        own.busy, own.end = in_turn(taken[~controls]), float(end[-1])
        waited = np.flatnonzero((gaps > 0.0) | controls)
        for event, gap, control, ns in zip(*(a[waited].tolist() for a in (events, gaps, controls, taken))):
            if gap > 0.0:
                own.stall(stall_cause(run, event), gap)
            if control:
                op = agent.stream.instructions[record.position[event]].op
                own.stall(TABLE if isinstance(op, ActTableLoad) else CONTROL, ns)


def in_turn(values: np.ndarray) -> float:
    """Their sum, added one after the other."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def stall_cause(run: TimedMachine, event: int) -> str:
    """What an event waited for, in a word: an engine's name, transfers, the cores' barrier ..."""
    record = run.record
    why, cause = record.why[event], record.cause[event]
    if why == SEMAPHORE:
        if cause in record.movements:
            return TRANSFERS
        stream = run.agents[record.agent[cause]].stream
        return BARRIER if stream.entries[record.position[cause]][0] == KIND else stream.engine.value
    return {OWN_RESULT: OWN, PORT: PORTS, MEETING: CORES, ORDER: CONTROL}.get(why, CONTROL)


def _shares(run: TimedMachine, pieces: Sequence[Piece]) -> list[Share]:
    """Pieces of one instruction of one source line as one."""
    found: dict[tuple[str, str, str, str], float] = {}
    engines, agents, positions = [a.stream.engine.value for a in run.agents], run.record.agent, run.record.position
    texts: dict[int, str] = {}                      # of locations, by identity: instructions keep them
    for event, what, begin, end in pieces:
        agent = agents[event]
        instruction = run.agents[agent].stream.instructions[positions[event]]
        text = texts.get(id(instruction.location))
        if text is None:
            text = texts[id(instruction.location)] = _text_of(instruction.location)
        key = engines[agent], instruction.op.mnemonic, what, text
        found[key] = found.get(key, 0.0) + end - begin
    return [Share(ns=ns, engine=engine, instruction=mnemonic, what=what, location=where)
            for (engine, mnemonic, what, where), ns in found.items()]


def _text_of(location: Location | None) -> str:
    return f"{location.file}:{location.line}" if location is not None else ""
