# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Advice: what would make a kernel faster, and by how much. Each rule is a class in ``rules``.

A rule says which instructions of a run would cost less, and how much less; the timed machine runs the streams again
with these costs. So what a sentence promises is what the whole kernel would gain, not what the instructions take.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, ClassVar, NamedTuple

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.isa.instruction import Control, Instruction
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine, Machine
from nki_mlir.targets.neuron.timing.columns import TRANSFER, WORK, Entry
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from nki_mlir.targets.neuron.timing.result import timing_of
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer

WORTH = 0.03                    # of the time that advice saves at least

Where = tuple[int, int]         # agent and place in its stream


class Costed(NamedTuple):
    """An instruction of a stream: its operation, what it costs, and of a transfer what is moved."""

    where: Where
    instruction: Instruction
    op: Op
    engine: Engine
    entry: Entry
    transfer: TimedTransfer | None

    @property
    def location(self) -> Location | None:
        return self.instruction.location


@dataclass
class Change:
    """What instructions would cost instead, and why: ``text`` is the sentence without what it saves, of source lines
    of which the first is the one to go to. ``end``: when the streams would end, where another order is what changes."""

    text: str
    lines: list[Location]
    entries: dict[Where, Entry] = field(default_factory=dict)
    transfers: dict[Where, TimedTransfer] = field(default_factory=dict)
    end: float | None = None

    def gone(self, where: Where) -> None:
        """The instruction would not be: it takes no time, and its result is there when it was to start."""
        self.entries[where] = (WORK, 0.0, 0.0, 0.0, 0)

    def busy(self, step: Costed, ns: float) -> None:
        """The engine would be taken for so long, and not longer than it is."""
        self.entries[step.where] = (step.entry[0], min(ns, step.entry[1]), *step.entry[2:])


class Evidence:
    """A run that has come to its end, as rules look at it."""

    def __init__(self, run: TimedMachine, total: float, busy: dict[Engine, float]) -> None:
        self.run, self.total, self.busy = run, total, busy
        self.machine: Machine = run.machine
        self.steps: list[Costed] = []
        for agent in run.agents:
            for place, instruction in enumerate(agent.stream.instructions):
                if not isinstance(instruction.op, Control):
                    detail = agent.stream.details.get(place)
                    self.steps.append(Costed((agent.number, place), instruction, instruction.op, agent.stream.engine,
                                           agent.stream.entries[place],
                                           detail if isinstance(detail, TimedTransfer) else None))

    @property
    def transfers(self) -> Iterator[Costed]:
        """Those that the DMA engines move; collectives are not among them."""
        return (s for s in self.steps if s.transfer is not None and s.entry[0] == TRANSFER and not s.transfer.under_way)

    @property
    def work(self) -> Iterator[Costed]:
        return (s for s in self.steps if s.transfer is None)


class Rule(ABC):
    """One piece of advice. ``name`` tells them apart in the JSON form."""

    name: ClassVar[str]
    rules: ClassVar[list[type["Rule"]]] = []

    def __init_subclass__(cls) -> None:
        Rule.rules.append(cls)

    @abstractmethod
    def change(self, seen: Evidence) -> Change | None:
        """What would be otherwise, if there is something to say."""


def advice(run: TimedMachine) -> list[dict[str, Any]]:
    """What would save at least ``WORTH`` of the time of a run that has come to its end, the largest first."""
    from nki_mlir.targets.neuron.profile import rules  # circle: they derive from Rule
    assert rules
    programs, timing = [core.columns.program for core in run.cores], timing_of(run)
    total, busy = timing.total_ns, timing.slowest.busy_ns
    seen, found = Evidence(run, total, busy), []
    for rule in Rule.rules:
        change = rule().change(seen)
        if change is None or not change.lines:
            continue
        saved = run.end - end_with(programs, change)
        if saved >= WORTH * total:
            where = change.lines[0]
            found.append({"rule": rule.name, "file": where.file, "line": where.line, "saves_ns": saved,
                          "ratio": total / (total - saved),
                          "text": f"{change.text}: {total / (total - saved):.2f}x ({saved / total:.0%} of the time)"})
    return sorted(found, key=lambda one: -float(one["saves_ns"]))


def end_with(programs: Sequence[Program], change: Change) -> float:
    """When the programs would end."""
    if change.end is not None:
        return change.end
    again = TimedMachine(programs)
    for (agent, place), entry in change.entries.items():
        again.agents[agent].stream.entries[place] = entry
    for (agent, place), transfer in change.transfers.items():
        again.agents[agent].stream.details[place] = transfer
    again.run()
    return again.end


def lines_of(steps: Sequence[Costed]) -> list[Location]:
    """The source lines of instructions, those with most time first."""
    found: dict[tuple[str, int], tuple[float, Location]] = {}
    for step in steps:
        if step.location is not None:
            key = step.location.file, step.location.line
            took = step.entry[1] + (max(step.transfer.parts) if step.transfer else 0.0)
            found[key] = found.get(key, (0.0, step.location))[0] + took, step.location
    return [location for _, location in sorted(found.values(), key=lambda item: -item[0])]


def named(lines: Sequence[Location]) -> str:
    """Lines in a sentence: the first three."""
    texts = [f"{PurePath(at.file).name}:{at.line}" for at in lines[:3]]
    return ", ".join(texts) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
