# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derives facts about an operation's symbols from the conditions of enclosing ``scf.if`` operations, to prove bounds.
"""

from collections.abc import Sequence

from nki_mlir.bindings import Operation, Value, ir
from nki_mlir.dialects.access import Linear, Ranges
from nki_mlir.dialects.attributes import applied
from nki_mlir.scalar.predicates import EQ, SGE


class Numbering:
    """Numbers SSA values as symbol positions: an op's own symbols first, others in the order of use.

    ``forms`` has the linear forms of visited values, and None for a value during its visit: a verifier may see IR in
    which a value depends on itself.
    """

    def __init__(self, symbols: Sequence[Value]) -> None:
        self.values = list(symbols)
        self.forms: dict[Value, Linear | None] = {}

    def position(self, value: Value) -> int:
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)


def enclosing_facts(operation: Operation, numbering: Numbering) -> list[Linear]:
    """Return linear forms that are ``>= 0`` at the operation."""
    facts: list[Linear] = []
    block = operation.operation.block
    while True:
        parent = block.owner.operation
        if parent.name == "scf.if":
            then = parent.regions[0].blocks
            comparisons = _comparisons(parent.operands[0], numbering, set())
            if len(then) and then[0] == block:
                facts += [f for form, equal in comparisons for f in ((form, _negated(form)) if equal else (form,))]
            elif len(comparisons) == 1 and not comparisons[0][1]:
                facts.append(_negated(comparisons[0][0]).plus(Linear(1), -1))
        if parent.name in ("func.func", "builtin.module"):
            return facts
        block = parent.block


def _negated(form: Linear) -> Linear:
    return Linear().plus(form, -1)


def _comparisons(condition: Value, numbering: Numbering, visited: set[Value]) -> list[tuple[Linear, bool]]:
    """Return the conjunction of a condition as (form, is equality), without parts that are not understood."""
    if isinstance(condition.owner, ir.Block) or condition in visited:
        return []
    visited.add(condition)
    op = condition.owner.operation
    if op.name == "arith.andi":
        return [c for part in op.operands for c in _comparisons(part, numbering, visited)]
    if op.name == "arith.cmpi" and len(op.operands) == 2 and op.attributes["predicate"].value in (SGE, EQ):
        left, right = (linear_of(v, numbering) for v in op.operands)
        return [(left.plus(right, -1), op.attributes["predicate"].value == EQ)]
    return []


def integer_constant(value: Value) -> int | None:
    """Return the number of an ``arith.constant``; None for any other value."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        return None
    attributes = value.owner.attributes
    number = attributes["value"] if "value" in attributes else None
    return int(number.value) if isinstance(number, (ir.IntegerAttr, ir.BoolAttr)) else None


def linear_of(value: Value, numbering: Numbering) -> Linear:
    """Return an index value as a linear form over the values that it is computed from, with constants as numbers."""
    if value in numbering.values:
        return Linear(0, ((numbering.position(value), 1),))
    if value not in numbering.forms:
        numbering.forms[value] = None
        numbering.forms[value] = _defined_form(value, numbering)
    return numbering.forms[value] or Linear(0, ((numbering.position(value), 1),))


def _defined_form(value: Value, numbering: Numbering) -> Linear | None:
    """Return the form that the value's operation computes; None if the value itself is a symbol."""
    if isinstance(value.owner, ir.Block):
        return None
    if (number := integer_constant(value)) is not None:
        return Linear(number)
    op = value.owner.operation
    if op.name == "affine.apply" and "map" in op.attributes:
        return applied(op.attributes["map"].value, [linear_of(v, numbering) for v in op.operands])
    if op.name not in ("arith.addi", "arith.subi", "arith.muli") or len(op.operands) != 2:
        return None
    left, right = (linear_of(v, numbering) for v in op.operands)
    match op.name:
        case "arith.addi":
            return left.plus(right)
        case "arith.subi":
            return left.plus(right, -1)
    if right.symbols and left.symbols:
        return None
    return Linear().plus(left, right.const) if not right.symbols else Linear().plus(right, left.const)


def interval_given(form: Linear, facts: Sequence[Linear], ranges: Ranges) -> tuple[int, int]:
    """Return the interval of a form where every fact is ``>= 0``. It is safe, but not always the tightest.

    Adding a fact m times can only raise a value, so ``form <= form + m * fact``; m is chosen so that a shared symbol
    cancels.
    """
    low, high = form.interval(ranges)
    for fact in facts:
        factor_of = dict(form.symbols)
        for m in {abs(factor_of[s] // c) for s, c in fact.symbols if s in factor_of and factor_of[s] % c == 0}:
            high = min(high, form.plus(fact, m).interval(ranges)[1])
            low = max(low, form.plus(fact, -m).interval(ranges)[0])
    return low, high
