# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which engines may have an instruction or trigger a transfer, and its time on each.

An engine may have an instruction that the kernel left open if the class names it, the target has it there, and the
values stay the same. A transfer that is left open may be triggered by each engine that can.
"""

from typing import Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.op import NisaOp, Op, on_engine
from nki_mlir.dialects.target_findings import findings
from nki_mlir.dialects.target_rules import NotOnTarget
from nki_mlir.dialects.verification import verify
from nki_mlir.machine import Engine, Machine

ISSUERS = (Engine.SYNC, Engine.GPSIMD, Engine.SCALAR)
ANY_ISSUER = {Engine.SYNC, Engine.SCALAR}           # the engines of a transfer that any issuer may trigger


class EngineChoice:
    """``balanced``: instructions may go to any engine that has them; ``issued``: transfers, too. Without, each has its
    class's first. ``written``: as the vendor's compiler evidently chooses, which gives the GpSimd engine nothing that
    the kernel does not, has the sync engine trigger transfers, and orders products as if the tensor engine had its full
    speed. The engines of each form of instruction are worked out once, and its ``forms``."""

    def __init__(self, machine: Machine, balanced: bool = True, issued: bool = True,
                 written: bool = False) -> None:
        self.machine, self.balanced, self.ramps = machine, balanced, not written
        self.issued = issued and not written
        self.gpsimd = not written and not machine.costs.sbuf_port_shared
        self.engines: dict[object, tuple[Engine, ...]] = {}
        self.forms: dict[object, Any] = {}      # what steps of a form have in common (``scheduling_graph.py``)

    def of(self, op: Op) -> tuple[Engine, ...]:
        """Return the engines that may run an operation, the class's choice first; that one alone where the kernel or
        the class names it."""
        chosen = op.runs_on
        if op.engine != Engine.UNKNOWN.value:
            return (chosen,)
        if op.queued:
            issuers = ISSUERS if self.issued and ANY_ISSUER <= set(op.engines) else ()
            return chosen, *[engine for engine in issuers if engine is not chosen and engine in op.engines]
        if chosen not in op.shared_engines or not self.balanced:
            return (chosen,)
        key = op.form()
        if key not in self.engines:
            self.engines[key] = chosen, *(e for e in op.shared_engines if e is not chosen and self.may_have(e, op))
        return self.engines[key]

    def may_have(self, engine: Engine, op: Op) -> bool:
        """Return whether the instruction is the same there. What newer documents alone take from the target counts as
        had; where two engines share a port, work that goes from one to the other gains nothing."""
        assert isinstance(op, NisaOp)
        if not op.same_on(engine) or (engine is Engine.GPSIMD and not self.gpsimd):
            return False
        moved = on_engine(op, engine)
        try:
            verify(moved)
        except NkiMlirError:
            return False
        return all(f.contested and isinstance(f.error, NotOnTarget) for f in findings(moved, self.machine))
