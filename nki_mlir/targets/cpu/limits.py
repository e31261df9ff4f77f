# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bounds that are checked before an operation runs, where a mask decides which elements count.

Only the axes that the forms move along are walked, which are few: the other elements repeat the same values.
"""

from dataclasses import dataclass
from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Linear, Mask
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value

SITE_BITS, MOST_EXCESS = 15, 65535          # of a status: which check, and by how much it failed


@dataclass(frozen=True)
class Limits:
    """Every ``limits`` form is ``>= 0`` at all elements where ``mask`` holds. The last argument is the site."""

    extents: tuple[int, ...]
    mask: Mask
    limits: Mask
    symbols: int

    @property
    def title(self) -> str:
        return f"limits_{'x'.join(map(str, self.extents))}"

    def emit(self, code: FunctionEmitter, arguments: list[Value]) -> Value:
        """The status: 0, or how far the lowest form is below zero, and the site."""
        *symbols, site = arguments
        forms = [c.form for c in (*self.mask, *self.limits)]
        axes = sorted({axis for form in forms for axis, _ in form.axes})
        worst = self._walk(code, axes, {}, symbols, code.i64(0))
        excess = code.minsi(code.sub(code.i64(0), worst), MOST_EXCESS)
        failed = code.or_(code.shl(excess, SITE_BITS), site)
        return code.select(code.cmp("slt", worst, 0), failed, code.i64(0))

    def _walk(self, code: FunctionEmitter, axes: list[int], positions: dict[int, Value], symbols: list[Value],
              worst: Value) -> Value:
        if not axes:
            return self._worse(code, positions, symbols, worst)
        op = code.scf.ForOp(code.i64(0), code.i64(self.extents[axes[0]]), code.i64(1), [worst])
        with ir.InsertionPoint(op.body):
            inner = {**positions, axes[0]: op.induction_variable}
            code.scf.YieldOp([self._walk(code, axes[1:], inner, symbols, op.inner_iter_args[0])])
        return op.results[0]

    def _worse(self, code: FunctionEmitter, positions: dict[int, Value], symbols: list[Value], worst: Value) -> Value:
        """The lesser of ``worst`` and the forms at one element, if that is active."""
        def value(form: Linear) -> Any:
            return code.linear(form.const, [*((symbols[p], c) for p, c in form.symbols),
                                            *((positions[a], c) for a, c in form.axes)])
        lowest = worst
        for constraint in self.limits:
            lowest = code.minsi(lowest, value(constraint.form))
        for constraint in self.mask:
            active = code.cmp("eq" if constraint.equal else "sge", value(constraint.form), 0)
            lowest = code.select(active, lowest, worst)
        return lowest
