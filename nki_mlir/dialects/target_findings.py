# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the rules of a target that one operation breaks.

Builders check the operations that a kernel emits, the pass ``verify-target`` checks them before they become
instruction streams. Transfers, to or from HBM, have no rules of partitions and sizes.
"""

from collections.abc import Sequence

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM, PSUM
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.target_rules import Finding, MemoryOfEngine, TargetCheck
from nki_mlir.dialects.verification import verify
from nki_mlir.machine import Engine, Machine


def is_transfer(op: Op) -> bool:
    """Return whether an instruction moves data to or from HBM or by DMA, which may begin at any partition."""
    return op.queued or any(tile.space == HBM for _, tile in op.operands())


def may_replace(new: Op, old: Sequence[Op], machine: Machine) -> bool:
    """Return whether an instruction is correct, and breaks no rule of the target that none of the ``old`` ones breaks.
    """
    try:
        verify(new)
    except NkiMlirError:
        return False
    broken = {str(f.error) for f in findings(new, machine)}
    return not broken or broken <= {str(f.error) for op in old for f in findings(op, machine)}


def findings(op: Op, machine: Machine) -> tuple[Finding, ...]:
    """Return the rules of a target that an instruction breaks. A masked instruction may be split into several: only
    rules that each of them breaks count."""
    check = TargetCheck(op, machine)
    check.need(op.since, f"'{op.name}'", "use instructions that the target has, or another target")
    op.verify_target(check)
    if op.engines and not is_transfer(op):
        engine = op.runs_on
        open_ended = bool(op.mask or op.limits)
        for field, tile in op.operands():
            if tile.space == PSUM and engine is Engine.GPSIMD and not machine.gpsimd_sees_psum:
                # Where the kernel left the engine open, the compiler copies the operand.
                check.broken(MemoryOfEngine, op.engine == Engine.UNKNOWN.value, operand=field.name)
            if tile.on_chip and not open_ended:
                check.partitions(field.name, tile, engine)
                check.size(field.name, tile)
    return tuple(check.findings)


def newly_broken(broken: Sequence[Finding], replaced: Op | None, machine: Machine) -> Sequence[Finding]:
    """Return the broken rules of an instruction without those that the instruction breaks which it replaces."""
    if not broken or replaced is None:
        return broken
    earlier = {str(finding.error) for finding in findings(replaced, machine)}
    return [finding for finding in broken if str(finding.error) not in earlier]
