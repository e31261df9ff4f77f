# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""assign-engines: give each instruction whose engine is open to one of the engines that may have it.

before:  copy a = p {engine = "unknown"}                 after:  copy a = p {engine = "scalar"}
         copy b = q {engine = "unknown"}                         copy b = q {engine = "vector"}

An engine may have an instruction if the class names it, the target has it there, and the values stay the same. Each
goes to the engine that has it done first, by the machine's costs. That is kept where a list of the instructions then
takes less time; else all go to the first engine that their classes name: where instructions wait for results more than
for engines, spreading them gains nothing.
"""

from collections.abc import Sequence

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import PSUM
from nki_mlir.dialects.op import NisaOp, Op, on_engine
from nki_mlir.dialects.target_rules import NotOnTarget, findings
from nki_mlir.dialects.verifier import verify
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep
from nki_mlir.targets.neuron.codegen.schedule_instructions import Order, Schedules

ON_PORT = (Engine.VECTOR, Engine.SCALAR)        # take turns on PSUM where a machine has one port for both


class AssignEngines(RecordsPass, name="assign-engines", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        assign_engines(Schedules(code))


def assign_engines(schedules: Schedules) -> None:
    """Name the engine of each instruction but for transfers, of which another pass says who triggers them."""
    choice = EngineChoice(schedules.code.machine)
    engines = [[choice.of(step.op) for step in run] for run in schedules.runs]
    first = [[some[0] for some in run] for run in engines]
    if any(len(some) > 1 for run in engines for some in run):
        ns = schedules.found(Order()).ns
        spread = [choice.spread(run, some) for run, some in zip(schedules.runs, engines)]
        schedules.run_on(spread)
        if schedules.found(Order()).ns < ns:
            return
    schedules.run_on(first)


class EngineChoice:
    """The engines that may have an instruction; those of each form of instruction are worked out once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[object, tuple[Engine, ...]] = {}

    def of(self, op: Op) -> tuple[Engine, ...]:
        """The class's choice first; that alone where the kernel or the class names it."""
        chosen = Engine(op.engine) if op.queued else op.runs_on
        if op.engine != Engine.UNKNOWN.value or chosen not in op.shared_engines:
            return (chosen,)
        key = op.form_of(op.outline())
        if key not in self.known:
            self.known[key] = chosen, *(e for e in op.shared_engines if e is not chosen and self.may_have(e, op))
        return self.known[key]

    def may_have(self, engine: Engine, op: Op) -> bool:
        """Whether the instruction is the same there. What newer documents alone take from the target counts as had;
        where two engines share a port, work that goes from one to the other gains nothing."""
        assert isinstance(op, NisaOp)
        if not op.same_on(engine) or (engine is Engine.GPSIMD and self.machine.costs.sbuf_port_shared):
            return False
        there = on_engine(op, engine)
        try:
            verify(there)
        except NkiMlirError:
            return False
        return all(f.contested and isinstance(f.error, NotOnTarget) for f in findings(there, self.machine))

    def spread(self, run: Sequence[InstructionStep], engines: Sequence[tuple[Engine, ...]]) -> list[Engine]:
        """For each instruction the engine that has done it first if none waits for anything but the port of PSUM."""
        busy = dict.fromkeys(Engine, 0.0)
        port = 0.0
        found = []
        for step, some in zip(run, engines):
            shared = self.machine.costs.psum_port_shared and any(t.space == PSUM for _, t in step.op.operands())
            ends = {}
            for engine in some:
                ns = self.ns(step.op, engine)
                ends[engine] = max(busy[engine], port if shared and engine in ON_PORT else 0.0) + ns
            best = min(some, key=ends.__getitem__)
            busy[best] = ends[best]
            port = ends[best] if shared and best in ON_PORT else port
            found.append(best)
        return found

    def ns(self, op: Op, engine: Engine) -> float:
        there = op if op.runs_on is engine else on_engine(op, engine)
        return self.machine.cost(there.runs_on, there.work()).busy
