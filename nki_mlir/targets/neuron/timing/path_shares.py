# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The critical path by instruction and source line, and by law."""

from collections.abc import Sequence
from typing import TypedDict

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.isa.instruction import ActTableLoad, Control, EventSemaphore, RangeClear, TensorLoad
from nki_mlir.machine.cited import Cited
from nki_mlir.machine.costs import ISSUE, ControlCosts, Costs, Work
from nki_mlir.machine.engine import Engine
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from nki_mlir.targets.neuron.timing.record import RESULT
from nki_mlir.targets.neuron.timing.uncertainty import LAUNCH_LAW, LawShare

LAUNCH = "launch"


class Share(TypedDict):
    """The part of the critical path that one instruction of one source line takes."""

    ns: float
    engine: str
    instruction: str
    what: str
    location: str


def shares_of(run: TimedMachine, pieces: Sequence[tuple[int, str, float, float]]) -> tuple[list[Share], list[LawShare]]:
    """Return the shares of a critical path by instruction and source line, and by law, with the launch, the largest
    share first."""
    by_line: dict[tuple[str, str, str, str], float] = {}
    by_work: dict[tuple[str, Work | type[Control], str], float] = {}
    agents, positions = run.record.agent, run.record.position
    streams = [(agent.stream.engine.value, agent.stream.instructions) for agent in run.agents]
    texts: dict[Location | None, str] = {None: ""}
    for event, phase, begin, end in pieces:
        number = agents[event]
        engine, instructions = streams[number]
        instruction = instructions[positions[event]]
        op, location = instruction.op, instruction.location
        text = texts.get(location)
        if text is None:
            assert location is not None
            text = texts[location] = f"{location.file}:{location.line}"
        line = engine, op.mnemonic, phase, text
        by_line[line] = by_line.get(line, 0.0) + end - begin
        if instruction.queue is not None:
            work: Work | type[Control] = ISSUE
        else:
            work = type(op) if isinstance(op, Control) else instruction.work or instruction.work_of(op)
        key = engine, work, phase
        by_work[key] = by_work.get(key, 0.0) + end - begin
    shares = [Share(ns=ns, engine=engine, instruction=mnemonic, what=phase, location=text)
              for (engine, mnemonic, phase, text), ns in by_line.items()]
    shares.append(Share(ns=float(run.machine.costs.control.launch_ns), engine="", instruction="", what=LAUNCH,
                        location=""))
    return sorted(shares, key=lambda share: -share["ns"]), _laws(run.machine.costs, by_work)


def _laws(costs: Costs, by_work: dict[tuple[str, Work | type[Control], str], float]) -> list[LawShare]:
    """Return the shares of laws, from those of work."""
    sums: dict[str, tuple[float, float]] = {}
    for (engine, work, phase), duration in by_work.items():
        if isinstance(work, type):
            law, residual = f"{engine} {work.mnemonic}", _control(costs.control, work, phase).residual
        else:
            law = f"transfer {phase}" if work is ISSUE else f"{engine} {work.law} {phase}"
            residual = costs.residual(Engine(engine), work, phase)
        ns, error = sums.get(law, (0.0, 0.0))
        sums[law] = ns + duration, error + duration * residual
    launch = costs.control.launch_ns
    sums[LAUNCH_LAW] = float(launch), launch * launch.residual
    shares = [LawShare(law=law, ns=ns, residual=error / ns) for law, (ns, error) in sums.items() if ns]
    return sorted(shares, key=lambda share: -share["ns"])


def _control(costs: ControlCosts, kind: type[Control], phase: str) -> Cited:
    """Return the constant of the machine that is a control instruction's time."""
    if phase == RESULT:
        return costs.signal_ns
    return {EventSemaphore: costs.event_ns, RangeClear: costs.event_ns, ActTableLoad: costs.table_load_ns,
            TensorLoad: costs.load_ns}.get(kind, costs.register_ns)
