# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes index values as Python text: linear forms of loop variables and of values that are computed from them."""

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nki_mlir.bindings import Value
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.attributes import affine_value
from nki_mlir.printing.errors import Unprintable
from nki_mlir.waist.function import IndexCast, IndexMap, IndexOperation, ScalarConstant, ScalarValue

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
HOLDS = {name: getattr(operator, name) for name in COMPARISONS}
OPPOSITES = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", "<=": ">", ">": "<="}
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
PROGRAMS = 2                    # programs with ids in the text: the cores of a launch
OPERATORS = {"floordiv": "//", "mod": "%", "mult": "*", "and": "&", "or": "|", "xor": "^"}


@dataclass(frozen=True)
class IndexText:
    """``const + sum(c * atom)``: atoms are Python expressions that need no parentheses around them.

    ``text`` replaces the form for truth values, which have no arithmetic.
    """

    const: int = 0
    terms: tuple[tuple[str, int], ...] = ()
    text: str = ""

    def plus(self, other: "IndexText", factor: int = 1) -> "IndexText":
        """Return ``self + factor * other``."""
        total = dict(self.terms)
        for atom, c in other.terms:
            total[atom] = total.get(atom, 0) + factor * c
        return IndexText(self.const + factor * other.const, tuple((a, c) for a, c in total.items() if c))

    @property
    def number(self) -> int | None:
        """The value of a form without terms, else None."""
        return None if self.terms or self.text else self.const

    def __str__(self) -> str:
        if self.text:
            return self.text
        parts = [(c, atom if abs(c) == 1 else f"{atom} * {abs(c)}") for atom, c in self.terms]
        if self.const or not parts:
            parts.append((self.const, str(abs(self.const))))
        if parts[0][0] < 0:                         # a sum begins with what it adds, not with what it subtracts
            parts.sort(key=lambda part: part[0] < 0)
        first, *following = parts
        sign = "-" if first[0] < 0 else ""
        return f"{sign}{first[1]}" + "".join(f" {'-' if c < 0 else '+'} {part}" for c, part in following)

    @property
    def opposite(self) -> "IndexText | None":
        """Return the opposite of a comparison; None for other truth values."""
        comparison = re.fullmatch(r"([^<>=!()&|]+) ([<>=!]+) ([^<>=!()&|]+)", self.text)
        if comparison is None:
            return None
        return IndexText(text=f"{comparison[1]} {OPPOSITES[comparison[2]]} {comparison[3]}")

    def at(self, numbers: Mapping[str, int]) -> "IndexText":
        """Return the form where some atoms are numbers."""
        const = sum([c * numbers[atom] for atom, c in self.terms if atom in numbers])
        return replace(self, const=self.const + const, terms=tuple([t for t in self.terms if t[0] not in numbers]))

    def holds(self, atom: str, number: int) -> bool | None:
        """Return whether a comparison of an atom holds for a number; None for other truth values."""
        comparison = re.fullmatch(rf"{re.escape(atom)}(?: \* (\d+))?(?: \+ (\d+))? ([<>=!]+) (\d+)", self.text)
        if comparison is None:
            return None
        factor, added, function, bound = comparison.groups()
        compare = HOLDS[next(name for name, text in COMPARISONS.items() if text == function)]
        return bool(compare(int(factor or 1) * number + int(added or 0), int(bound)))

    @property
    def atom(self) -> str:
        """The text as a factor of a product."""
        single = len(self.terms) + bool(self.const) < 2 and all(c == 1 for _, c in self.terms)
        return str(self) if single else f"({self})"


@dataclass
class IndexValues:
    """The text of each SSA value that is an index of a function.

    ``program_id`` is the variable that has the number of one of two programs, and ``program`` the number that it has
    where the text is written, in a branch.
    """

    texts: dict[Value, IndexText] = field(default_factory=dict)
    program_id: str = ""
    program: int | None = None

    def of(self, value: Value) -> IndexText:
        """Return the text of a value; raise ``Unprintable`` for one that is read from memory."""
        if value not in self.texts:
            raise Unprintable(what="an index that is read from memory", fix="give the number as an argument")
        return self.in_program(self.texts[value])

    def form(self, linear: Linear, symbols: Sequence[Value]) -> IndexText:
        """Return the text of a linear form of symbols, those of outer loops first."""
        total, terms = IndexText(linear.const), list(linear.symbols)
        if len(terms) > 1:
            order = {value: number for number, value in enumerate(self.texts)}
            terms.sort(key=lambda term: order.get(symbols[term[0]], 0))
        for position, c in terms:
            total = total.plus(self.of(symbols[position]), c)
        return total

    def define(self, node: ScalarValue) -> None:
        """Record the text of a node's result; record nothing if an operand has no text."""
        operands = [self.texts[v] for v in node.operands if v in self.texts]
        if len(operands) == len(node.operands):
            computed = _computed(node, operands)
            if computed is not None:
                self.texts[node.result] = self.decided(computed)

    def in_program(self, text: IndexText) -> IndexText:
        """Return the text in a branch of one program."""
        return text if self.program is None else self.decided(text.at({self.program_id: self.program}))

    def are_opposite(self, first: IndexText, second: IndexText) -> bool:
        """Return whether one of two conditions holds where the other one does not."""
        programs = {IndexText(text=f"{self.program_id} == {n}") for n in range(PROGRAMS)} if self.program_id else set()
        return first.opposite == second or {first, second} == programs

    def decided(self, truth: IndexText) -> IndexText:
        """Return a comparison of the program id as the program for which it holds, or as a number if it holds for both
        or for none."""
        programs = [n for n in range(PROGRAMS) if truth.holds(self.program_id, n)] if self.program_id else []
        if not self.program_id or truth.holds(self.program_id, 0) is None:
            return truth
        if self.program is not None or len(programs) != 1:
            return IndexText(int(self.program in programs if self.program is not None else bool(programs)))
        return IndexText(text=f"{self.program_id} == {programs[0]}")


def _computed(node: ScalarValue, operands: list[IndexText]) -> IndexText | None:
    match node:
        case ScalarConstant():
            return IndexText(int(node.number)) if isinstance(node.number, int) else None
        case IndexCast():
            return operands[0]
        case IndexMap():
            dims = node.mapping.n_dims
            results = [affine_value(e, operands, dims, IndexText, combined) for e in node.mapping.results]
            return results[0] if not node.choice else _call(node.choice, results)
        case IndexOperation():
            if node.function in ("min", "max"):
                return _call(node.function, operands)
            if node.function == "select":
                condition, left, right = operands
                if condition.number is not None:
                    return left if condition.number else right
                return _wrapped(f"({left} if {condition} else {right})")
            return combined(node.function, *operands)
    return None


def _wrapped(atom: str) -> IndexText:
    return IndexText(0, ((atom, 1),))


def _compared(function: str, left: IndexText, right: IndexText) -> IndexText:
    """Return a comparison with all terms on their positive side, ``i <= 3`` for ``0 <= 3 - i``, or a number if nothing
    varies."""
    if left.text or right.text:
        return IndexText(text=f"{left} {COMPARISONS[function]} {right}")
    difference = left.plus(right, -1)
    if difference.number is not None:
        return IndexText(int(HOLDS[function](difference.number, 0)))
    sides = [IndexText(max(sign * difference.const, 0), tuple((atom, sign * c) for atom, c in difference.terms
                                                              if sign * c > 0)) for sign in (1, -1)]
    if not sides[0].terms:
        sides, function = sides[::-1], MIRRORED.get(function, function)
    last = 1 if function == "ge" else 0
    if function in ("ge", "le") and sides[last].const == 1 and sides[last].terms:       # i >= j + 1 is i > j
        sides[last], function = sides[last].plus(IndexText(-1)), function.replace("e", "t")
    return IndexText(text=f"{sides[0]} {COMPARISONS[function]} {sides[1]}")


def _call(function: str, operands: Sequence[IndexText]) -> IndexText:
    numbers = [o.number for o in operands]
    constants = [n for n in numbers if n is not None]
    if len(constants) == len(numbers):
        return IndexText((min if function == "min" else max)(constants))
    return _wrapped(f"{function}({', '.join(map(str, operands))})")


def combined(function: str, left: IndexText, right: IndexText) -> IndexText:
    """Return the result of integer arithmetic, or of a comparison."""
    a, b = left.number, right.number
    match function:
        case "add":
            return left.plus(right)
        case "subtract":
            return left.plus(right, -1)
        case "mult" if b is not None:
            return IndexText().plus(left, b)
        case "mult" if a is not None:
            return IndexText().plus(right, a)
        case "floordiv" if a is not None and b:
            return IndexText(a // b)
        case "mod" if a is not None and b:
            return IndexText(a % b)
    function = function.removeprefix("u") if function in ("ult", "ule", "ugt", "uge") else function
    if function in COMPARISONS:
        return _compared(function, left, right)
    if function in ("and", "or") and (left.text or right.text) and (a is not None or b is not None):
        truth, other = (left, right) if a is not None else (right, left)
        return other if bool(truth.number) == (function == "and") else truth
    if function in OPERATORS:
        sides = [f"({side.text})" if side.text else side.atom for side in (left, right)]
        return _wrapped(f"({sides[0]} {OPERATORS[function]} {sides[1]})")
    raise Unprintable(what=f"index arithmetic '{function}'", fix="compute the index by sums and products")
