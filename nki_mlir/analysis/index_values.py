# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes the values that index values can have at an operation, from loop bounds, grids and enclosing conditions."""

from collections.abc import Mapping, Sequence

from nki_mlir.analysis.effects import defining
from nki_mlir.analysis.mask_boxes import verdict
from nki_mlir.bindings import Operation, Value
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.enclosing_conditions import Numbering, enclosing_facts, interval_given, linear_of
from nki_mlir.dialects.symbol_ranges import UnknownSymbol, affine_range, symbol_range
from nki_mlir.scalar.predicates import EQ, SGE

Span = tuple[int, int]
EMPTY: Mapping[Value, Span] = {}


class SymbolValues:
    """Intervals of linear forms over an operation's symbols, as they are at the operation."""

    def __init__(self, operation: Operation, symbols: Sequence[Value]) -> None:
        numbering = Numbering(symbols)
        self.facts = enclosing_facts(operation, numbering)
        self.values = numbering.values

    def interval(self, form: Linear, pinned: Mapping[Value, Span] = EMPTY) -> Span:
        """Return the extremes of the form; ``pinned`` narrows values further."""
        return interval_given(form, self.facts, tuple(span_of(v, pinned) for v in self.values))


def span_of(value: Value, pinned: Mapping[Value, Span] = EMPTY) -> Span:
    """Return the least and greatest value of an index value; raise ``UnknownSymbol`` for other values."""
    if value in pinned:
        return pinned[value]
    op = defining(value)
    if op is None or op.name != "affine.apply" or not pinned:
        return symbol_range(value)
    span = affine_range(op.attributes["map"].value, [span_of(v, pinned) for v in op.operands])
    if span is None:
        raise UnknownSymbol(op="affine.apply")
    return span


def roots(value: Value) -> list[Value]:
    """Return the loop variables and program ids from which a symbol is computed."""
    op = defining(value)
    if op is None:
        return [value]
    return [root for operand in op.operands for root in roots(operand)]


def constant_of(value: Value) -> int | None:
    """Return the value of an index value that is computed only from constants, else None."""
    op = defining(value)
    if op is None:
        return None
    if op.name == "affine.apply":
        constants = [n for v in op.operands if (n := constant_of(v)) is not None]
        if len(constants) < len(op.operands):
            return None
        low, high = affine_range(op.attributes["map"].value, [(n, n) for n in constants]) or (0, 1)
        return low if low == high else None
    form = linear_of(value, Numbering(()))
    return None if form.symbols else form.const


def truth_of(condition: Value, pinned: Mapping[Value, Span] = EMPTY) -> bool | None:
    """Return the value of an ``scf.if`` condition if the ranges of its operands decide it, else None; ``pinned``
    narrows values further."""
    op = defining(condition)
    if op is None or op.name not in ("arith.cmpi", "arith.andi", "arith.ori"):
        return None
    if op.name != "arith.cmpi":
        sides = [truth_of(v, pinned) for v in op.operands]
        decisive: bool = op.name == "arith.ori"
        if decisive in sides:
            return decisive
        return None if None in sides else not decisive
    numbering = Numbering(())
    left, right = (linear_of(v, numbering) for v in op.operands)
    try:
        low, high = SymbolValues(op, numbering.values).interval(left.plus(right, -1), pinned)
    except UnknownSymbol:
        return None
    predicate = op.attributes["predicate"].value
    return verdict(predicate == EQ, low, high) if predicate in (EQ, SGE) else None

