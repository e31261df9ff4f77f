# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations between the programs of a grid."""

from math import prod

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT32

from ..beta import MEETINGS, BetaWriter, kind, rule
from ..writer import Facts
from .operands import token


@rule(rules=MEETINGS)
def all_reduce(w: BetaWriter):
    if not w.grid:
        return False
    op = w.pick("add", "maximum", "minimum")
    axes = w.pick(*range(len(w.grid)), list(range(len(w.grid))))
    count = prod(w.grid[k] for k in (axes if isinstance(axes, list) else [axes]))
    a = w.operand(None, (FLOAT32, BFLOAT16, INT32), lambda t: op != "add" or t.facts.sums_exactly(count), "small")
    if op == "add" and not a.facts.sums_exactly(count):
        return False
    w.note("nl.all_reduce")
    text = f"nl.all_reduce({a.text}, op={token(op)}, program_axes={axes})"
    facts = Facts(a.facts.bound * count, a.facts.unit) if op == "add" else a.facts
    if op == "add" and a.dtype.is_float:                # the sign of a sum that is 0 is not fixed
        text = f"nl.add({text}, 0.0, dtype={kind(a.dtype)})"
    return w.let(text, a.shape, a.dtype, facts.cast(a.dtype))
