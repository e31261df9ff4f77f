# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Floats that an integer type does not hold become the nearest that it does, NaN 0, as XLA and the engines have it.

before:  %n = arith.fptosi %x : f32 to i8            (undefined outside of -129 < %x < 128)
after:   the same between comparisons of %x with the ends of the type, which choose -128, 127 or 0
"""


from nki_mlir.bindings import Module, Operation, Value, ir, load, operations_of
from nki_mlir.dialects.creation import value_of

UNORDERED, NOT_BELOW, BELOW = 14, 3, 4          # predicates of arith.cmpf


def saturate_conversions(module: Module) -> None:
    """Rewrite ``arith.fptosi`` and ``arith.fptoui``."""
    for op in operations_of(module, lambda name: name in ("arith.fptosi", "arith.fptoui")):
        if isinstance(op.operands[0].type, ir.FloatType):
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(_saturated(op))
            op.erase()


def _saturated(op: Operation) -> Value:
    arith, x, kind = load("dialects.arith"), op.operands[0], op.results[0].type
    bits = kind.width
    low, end = (-(1 << (bits - 1)), 1 << (bits - 1)) if op.name == "arith.fptosi" else (0, 1 << bits)
    value = value_of(op.name, kind, x)
    for predicate, other, chosen in ((NOT_BELOW, end, end - 1), (BELOW, low, low), (UNORDERED, None, 0)):
        limit = x if other is None else arith.constant(x.type, ir.FloatAttr.get(x.type, float(other)))
        bits_of = chosen - (1 << bits) if chosen >> (bits - 1) == 1 else chosen         # as a signed number
        instead = arith.constant(kind, ir.IntegerAttr.get(kind, bits_of))
        value = arith.select(arith.cmpf(predicate, x, limit), instead, value)
    return value
