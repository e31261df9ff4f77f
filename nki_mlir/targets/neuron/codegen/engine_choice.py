# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Determines the engines that may run an instruction or trigger a transfer, and its time on each engine.

An engine may run an instruction for which the kernel chose none if the class names the engine, the target has the
instruction there, and the values stay the same. Any engine of the class may trigger such a transfer, unless it
exchanges data with other programs.
"""

from collections.abc import Sequence

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.op import NisaOp, Op, on_engine
from nki_mlir.dialects.target_findings import findings
from nki_mlir.dialects.target_rules import NotOnTarget
from nki_mlir.dialects.verification import verify
from nki_mlir.machine import Engine, Machine
from nki_mlir.targets.neuron.codegen.dependences import RunDependences
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from nki_mlir.targets.neuron.codegen.step_engines import DistinctChoices
from nki_mlir.targets.neuron.codegen.step_table import StepTable

ISSUERS = (Engine.SYNC, Engine.GPSIMD, Engine.SCALAR)


class EngineChoice:
    """Chooses engines. ``balanced``: instructions may go to any engine that has them; ``issued``: transfers, too.
    Without these options each gets the first engine of its class. ``written``: choose as the vendor's compiler
    evidently does: the GpSimd engine runs only instructions for which the kernel names it, the sync engine triggers
    transfers, products are ordered as if the tensor engine had its full speed, and results take PSUM in program order
    (``result_ring.py``). Engines are memoized for each form of instruction, ``steps`` for each operation,
    ``dependences`` for each run."""

    def __init__(self, machine: Machine, balanced: bool = True, issued: bool = True,
                 written: bool = False) -> None:
        self.machine, self.balanced, self.as_written, self.ramps = machine, balanced, written, not written
        self.issued = issued and not written
        self.gpsimd = not written and not machine.costs.sbuf_port_shared
        self.engines: dict[object, tuple[Engine, ...]] = {}
        self.distinct = DistinctChoices()
        self.steps = StepTable(machine, self.of, self.distinct, self.ramps)
        self.dependences = RunDependences()

    def of(self, op: Op) -> tuple[Engine, ...]:
        """Return the engines that may run an operation, the class's choice first; only one engine if the kernel or the
        class names it."""
        chosen = op.runs_on
        if op.engine != Engine.UNKNOWN.value:
            return (chosen,)
        if op.queued:
            issuers = ISSUERS if self.issued and not op.acts_outside else ()
            return chosen, *[engine for engine in issuers if engine is not chosen and engine in op.engines]
        if chosen not in op.shared_engines or not self.balanced:
            return (chosen,)
        key = op.form()
        if key not in self.engines:
            self.engines[key] = chosen, *(e for e in op.shared_engines if e is not chosen and self.may_have(e, op))
        return self.engines[key]

    def canonical(self, order: Order) -> Order:
        """Return an order that is equal for all orders that choose the same engines."""
        return order._replace(issue=order.issue and self.issued,
                              share=2 if order.share == 1 and not self.gpsimd else order.share)

    def different(self, orders: Sequence[Order]) -> tuple[Order, ...]:
        """Return the orders except those that choose the same engines as an earlier one."""
        chosen: dict[Order, Order] = {}
        for order in orders:
            chosen.setdefault(self.canonical(order), order)
        return tuple(chosen.values())

    def may_have(self, engine: Engine, op: Op) -> bool:
        """Return whether the instruction has the same values on an engine. An instruction that only newer documents
        deny to the target counts as supported. If two engines share a port, moving work between them gains nothing."""
        assert isinstance(op, NisaOp)
        if not op.same_on(engine) or (engine is Engine.GPSIMD and not self.gpsimd):
            return False
        moved = on_engine(op, engine)
        try:
            verify(moved)
        except NkiMlirError:
            return False
        return all(f.uncertain and isinstance(f.error, NotOnTarget) for f in findings(moved, self.machine))
