# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the conditions of enclosing ``scf.if`` operations say about an operation's symbols, for proofs of bounds."""

from collections.abc import Sequence
from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Linear, Ranges

SGE, EQ = 5, 0


class Numbering:
    """SSA values as symbol positions: an op's own symbols first, others as they are met."""

    def __init__(self, symbols: Sequence[Any]) -> None:
        self.values = list(symbols)

    def position(self, value: Any) -> int:
        for k, known in enumerate(self.values):
            if known == value:
                return k
        self.values.append(value)
        return len(self.values) - 1


def enclosing_facts(operation: Any, numbering: Numbering) -> list[Linear]:
    """Linear forms that are ``>= 0`` where the operation stands."""
    facts: list[Linear] = []
    block = operation.operation.block
    while True:
        parent = block.owner.operation
        if parent.name == "scf.if":
            in_then = parent.regions[0].blocks[0] == block
            found = _comparisons(parent.operands[0], numbering)
            if in_then:
                facts += [f for form, equal in found for f in ((form, _negated(form)) if equal else (form,))]
            elif len(found) == 1 and not found[0][1]:
                facts.append(_negated(found[0][0]).plus(Linear(1), -1))
        if parent.name in ("func.func", "builtin.module"):
            return facts
        block = parent.block


def _negated(form: Linear) -> Linear:
    return Linear().plus(form, -1)


def _comparisons(condition: Any, numbering: Numbering) -> list[tuple[Linear, bool]]:
    """The conjunction behind a condition as (form, is equality); parts that are not understood are left out."""
    owner = condition.owner
    if isinstance(owner, ir.Block):
        return []
    op = owner.operation
    if op.name == "arith.andi":
        return _comparisons(op.operands[0], numbering) + _comparisons(op.operands[1], numbering)
    if op.name == "arith.cmpi" and op.attributes["predicate"].value in (SGE, EQ):
        left, right = (linear_of(v, numbering) for v in op.operands)
        return [(left.plus(right, -1), op.attributes["predicate"].value == EQ)]
    return []


def linear_of(value: Any, numbering: Numbering) -> Linear:
    """An index value as a linear form over the values it is made of."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return Linear(0, ((numbering.position(value), 1),))
    op = owner.operation
    match op.name:
        case "arith.constant":
            return Linear(op.attributes["value"].value)
        case "arith.addi":
            return linear_of(op.operands[0], numbering).plus(linear_of(op.operands[1], numbering))
        case "arith.subi":
            return linear_of(op.operands[0], numbering).plus(linear_of(op.operands[1], numbering), -1)
        case "arith.muli":
            left, right = (linear_of(v, numbering) for v in op.operands)
            if not right.symbols:
                return Linear().plus(left, right.const)
            if not left.symbols:
                return Linear().plus(right, left.const)
    return Linear(0, ((numbering.position(value), 1),))


def interval_given(form: Linear, facts: Sequence[Linear], ranges: Ranges) -> tuple[int, int]:
    """The interval of a form where every fact is ``>= 0``.

    Adding such a fact m times can only raise a value, so ``form <= form + m * fact``; m is chosen so that a shared symbol
    cancels. Safe, not always the tightest.
    """
    low, high = form.interval(ranges)
    for fact in facts:
        own = dict(form.symbols)
        for m in {abs(own[s] // c) for s, c in fact.symbols if s in own and own[s] % c == 0}:
            high = min(high, form.plus(fact, m).interval(ranges)[1])
            low = max(low, form.plus(fact, -m).interval(ranges)[0])
    return low, high
