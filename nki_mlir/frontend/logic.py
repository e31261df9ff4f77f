# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``and``, ``or``, ``not`` and chained comparisons where an operand is a condition on indices.

Python evaluates ``a and b`` to one of its operands, by the truth of the first. A condition that holds for some values
of its symbols and axes only has none, so that the result is made of both operands, as by ``&``, ``|`` and ``~``. The
operators become conditional expressions, in which what is no such condition keeps Python's meaning.
"""

import ast
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_mlir.frontend.builder import current
from nki_mlir.frontend.index import Mask

HELD = "__held{}"               # names of the left operands


class LogicWrapper(ast.NodeTransformer):
    """Routes the operators through the runtime. ``call`` makes the call of one of its methods."""

    def __init__(self, call: Callable[..., ast.Call]) -> None:
        self.call, self.held, self.is_plain = call, itertools.count(), False

    def keep(self, node: ast.expr) -> ast.NamedExpr:
        return ast.copy_location(ast.NamedExpr(ast.Name(HELD.format(next(self.held)), ast.Store()), node), node)

    def plainly(self, node: ast.AST | None) -> Any:
        """A part that may hold no assignments: its operators stay Python's."""
        before, self.is_plain = self.is_plain, True
        visited = None if node is None else self.visit(node)
        self.is_plain = before
        return visited

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter = self.plainly(node.iter)
        node.target = self.visit(node.target)
        node.ifs = [self.visit(test) for test in node.ifs]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Names of a class are its attributes; its methods are as any function."""
        methods = [s for s in node.body if isinstance(s, ast.FunctionDef)]
        node.body = [self.visit(s) if s in methods else self.plainly(s) for s in node.body]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = self.plainly(node.annotation)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self.is_plain:
            return node
        made, *others = node.values
        for other in others:
            made = ast.copy_location(self.joined(isinstance(node.op, ast.And), made, other), node)
        return made

    def joined(self, is_and: bool, first: ast.expr, second: ast.expr) -> ast.expr:
        """``both(held, second) if (held := operand(first)) else held``; of ``or`` with the test negated."""
        kept = self.keep(ast.copy_location(self.call("operand", first, ast.Constant(is_and)), first))
        held = ast.Name(kept.target.id, ast.Load())
        test = kept if is_and else ast.UnaryOp(ast.Not(), kept)
        return ast.IfExp(test, self.call("both" if is_and else "either", held, second), held)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """``a < b < c`` is ``a < b and b < c``, with one evaluation of b."""
        if self.is_plain or len(node.ops) == 1:
            self.generic_visit(node)
            return node
        pairs: list[ast.expr] = []
        left = node.left
        for k, (op, right) in enumerate(zip(node.ops, node.comparators)):
            last = k == len(node.ops) - 1
            kept = right if last else self.keep(right)
            pairs.append(ast.copy_location(ast.Compare(left, [op], [kept]), node))
            left = right if last else ast.Name(kept.target.id, ast.Load())      # type: ignore[attr-defined]
        joined: ast.AST = self.visit(ast.copy_location(ast.BoolOp(ast.And(), pairs), node))
        return joined

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        match node.op:
            case ast.Invert():
                return ast.copy_location(self.call("invert", node.operand), node)
            case ast.Not():
                return ast.copy_location(self.call("negation", node.operand), node)
        return node


# -- what the wrapped code calls ---------------------------------------------------------------------------------------
@dataclass
class UndecidedOperand:
    """The left operand of ``and`` or ``or``, a condition without a truth: the right one is evaluated, too."""

    condition: Mask
    goes_on: bool
    mark: object                   # where the program stood: what the right operand emits would run in any case

    def __bool__(self) -> bool:
        return self.goes_on

    def joins(self, other: object) -> bool:
        """Whether both make one condition; else the left one is asked for its truth."""
        return isinstance(other, (Mask, bool, np.bool_)) and self.mark == position()


def position() -> object:
    builder: Any = current.get()
    return builder.performed() if builder is not None and builder.symbolic else None


def is_undecided(value: object) -> bool:
    return isinstance(value, Mask) and (math.prod(value.shape) != 1 or value.known() is None)


def operand(value: Any, is_and: bool) -> object:
    return UndecidedOperand(value, is_and, position()) if is_undecided(value) else value


def both(first: object, second: object) -> object:
    """``first and second``, where the first one does not decide it."""
    if not isinstance(first, UndecidedOperand):
        return second
    if first.joins(second):
        return first.condition & second
    return first.condition and second


def either(first: object, second: object) -> object:
    """``first or second``, where the first one does not decide it."""
    if not isinstance(first, UndecidedOperand):
        return second
    if first.joins(second):
        return first.condition | second
    return first.condition or second


def negation(value: Any) -> object:
    return ~value if is_undecided(value) else not value


def invert(value: Any) -> object:
    """``~`` of a comparison is its negation, whether its operands are symbols or numbers."""
    return not value if isinstance(value, bool) else ~value
