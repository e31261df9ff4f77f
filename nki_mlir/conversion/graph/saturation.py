# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Floats that an integer type does not hold: the nearest integer of the type, and 0 for NaN, as XLA and the engines have it.

before:  %n = arith.fptosi %x : f32 to i8            (undefined outside of -129 < %x < 128)
after:   the same between comparisons of %x with the ends of the type, which choose -128, 127 or 0
"""

from typing import Any

from nki_mlir.bindings import ir, load
from nki_mlir.conversion.graph.upstream import operations_of

UNORDERED, NOT_BELOW, BELOW = 14, 3, 4          # predicates of arith.cmpf


def saturate_conversions(module: Any) -> None:
    """Rewrite ``arith.fptosi`` and ``arith.fptoui``."""
    arith = load("dialects.arith")
    for op in operations_of(module, lambda name: name in ("arith.fptosi", "arith.fptoui")):
        x, kind = op.operands[0], op.results[0].type
        if not isinstance(x.type, ir.FloatType) or not isinstance(kind, ir.IntegerType):
            continue
        bits, signed = kind.width, op.name == "arith.fptosi"
        low, end = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
        with ir.InsertionPoint(op), op.location:
            def number(value: int) -> Any:
                wrapped = value - (1 << bits) if value >= 1 << (bits - 1) else value
                return arith.constant(kind, ir.IntegerAttr.get(kind, wrapped))

            def limit(value: int) -> Any:
                return arith.constant(x.type, ir.FloatAttr.get(x.type, float(value)))
            made = ir.Operation.create(op.name, operands=[x], results=[kind]).results[0]
            inside = made
            for predicate, other, instead in ((NOT_BELOW, limit(end), end - 1), (BELOW, limit(low), low),
                                              (UNORDERED, x, 0)):
                inside = arith.select(arith.cmpf(predicate, x, other), number(instead), inside)
        op.results[0].replace_all_uses_with(inside)
        op.erase()
