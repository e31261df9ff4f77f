# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""assign-issuers: let two engines trigger the transfers for which the kernel names none.

before:  dma_copy a = x {engine = "unknown"}             after:  dma_copy a = x {engine = "sync"}
         dma_copy b = y {engine = "unknown"}                     dma_copy b = y {engine = "scalar"}

Each transfer takes the engine that triggers it. In program order one goes to the engine that has less to do so far: the
sync engine, whose stream holds nothing else, or the scalar engine. That is kept where a list of the instructions then
takes less time; else the sync engine triggers all: a trigger that waits in a stream holds up what stands behind it.
"""

from collections.abc import Sequence

from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep
from nki_mlir.targets.neuron.codegen.schedule_instructions import Order, Schedules

ISSUERS = (Engine.SYNC, Engine.SCALAR)          # drive the hardware's generators of descriptors
FEW = 8                         # transfers that one engine triggers
BUSY = 0.2                      # of the time that one issuer triggers at least, for two to be tried
SHORTER = 0.98                  # of the list's time, for two to be taken


class AssignIssuers(RecordsPass, name="assign-issuers", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        assign_issuers(Schedules(code))


def assign_issuers(schedules: Schedules) -> None:
    """Name the engine that triggers each transfer."""
    machine, runs = schedules.code.machine, schedules.runs
    first = [[step.op.runs_on for step in run] for run in runs]
    triggers = sum(times * sum(is_open(step.op) for step in run) for run, times in zip(runs, schedules.times))
    if triggers > FEW:
        ns = schedules.found(Order()).ns
        if triggers * machine.costs.dma.issue_ns > BUSY * ns:
            schedules.run_on([shared_out(machine, run) for run in runs])
            if schedules.found(Order()).ns < SHORTER * ns:
                return
    schedules.run_on(first)


def is_open(op: Op) -> bool:
    """Whether an operation is a transfer that any issuer may trigger."""
    return op.queued and op.engine == Engine.UNKNOWN.value and set(ISSUERS) <= set(op.engines)


def shared_out(machine: Machine, run: Sequence[InstructionStep]) -> list[Engine]:
    """The engines of steps: of open transfers the one that has less to do so far."""
    busy = dict.fromkeys(Engine, 0.0)
    found = []
    for step in run:
        engine = min(ISSUERS, key=busy.__getitem__) if is_open(step.op) else step.op.runs_on
        busy[engine] += machine.cost(engine, step.op.work()).busy
        found.append(engine)
    return found
