# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linear forms as text over names, ``%i * 128 + d0 - 2``, and as the affine expressions of the generic form.

A form over names refers to symbols by their values; their positions are known once the complete operation is read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from nki_mlir.custom_form.lexing import NUMBER, VALUE, Cursor, MalformedForm
from nki_mlir.dialects.access import Constraint, Linear, Mask

AXIS = re.compile(r"d\d+\b")
SIGN = re.compile(r"\+|-")
SYMBOL = re.compile(r"\bs(\d+)\b")
NO_MASK = "affine_set<() : (0 == 0)>"
RELATION = re.compile(r"<=|>=|==")


@dataclass
class NamedForm:
    """``const + sum(c * value) + sum(c * axis)``."""

    const: int = 0
    values: dict[str, int] = field(default_factory=dict)
    axes: dict[int, int] = field(default_factory=dict)
    found_at: dict[str, int] = field(default_factory=dict)      # value -> its position in the text

    def add(self, name: str | int | None, factor: int, at: int = 0) -> None:
        """Add a value, an axis or a number."""
        if name is None:
            self.const += factor
        elif isinstance(name, int):
            self.axes[name] = self.axes.get(name, 0) + factor
        else:
            self.values[name] = self.values.get(name, 0) + factor
            self.found_at.setdefault(name, at)

    def negated(self) -> "NamedForm":
        return NamedForm(-self.const, {n: -c for n, c in self.values.items()}, {a: -c for a, c in self.axes.items()},
                         self.found_at)

    def linear(self, symbols: Sequence[str]) -> Linear:
        """Return the form over the positions of its values among the symbols."""
        terms = sorted((symbols.index(name), c) for name, c in self.values.items() if c)
        return Linear(self.const, tuple(terms), tuple(sorted((axis, c) for axis, c in self.axes.items() if c)))


# -- over names --------------------------------------------------------------------------------------------------------
def named(form: Linear, symbols: Sequence[str], axes_first: bool = False) -> str:
    """Return a form with the names of its symbols, and axes as d0, d1, ..."""
    values, axes = [(symbols[s], c) for s, c in form.symbols], [(f"d{axis}", c) for axis, c in form.axes]
    terms = axes + values if axes_first else values + axes
    return joined([product(name, c) for name, c in terms] + ([str(form.const)] if form.const or not terms else []))


def product(name: str, factor: int) -> str:
    """Return the text of a value times a number."""
    return name if factor == 1 else f"-{name}" if factor == -1 else f"{name} * {factor}"


def joined(terms: Sequence[str]) -> str:
    """Return the text of a sum of terms."""
    text = terms[0]
    for term in terms[1:]:
        text += f" - {term[1:]}" if term.startswith("-") else f" + {term}"
    return text


def read_term(cursor: Cursor, sign: int = 1) -> tuple[str | int | None, int]:
    """Read ``%i``, ``%i * 4``, ``d0 * 4`` or ``4``; return the value and its factor."""
    negative = cursor.accept("-")
    name: str | int | None = cursor.match(VALUE)
    if name is None:
        text = cursor.match(AXIS)
        name = None if text is None else int(text[1:])
    if name is None:
        number = cursor.match(NUMBER)
        if number is None:
            raise cursor.unexpected("a number, a value or an axis")
        factor = int(number)
    else:
        factor = 1
        if cursor.accept("*"):
            number = cursor.match(NUMBER)
            if number is None:
                raise cursor.unexpected("a number after '*'")
            factor = int(number)
    return name, factor * (-sign if negative else sign)


def read_form(cursor: Cursor) -> NamedForm:
    """Read a sum of terms."""
    form = NamedForm()
    at = cursor.skip()
    form.add(*read_term(cursor), at)
    while (sign := cursor.match(SIGN)) is not None:
        at = cursor.skip()
        form.add(*read_term(cursor, -1 if sign == "-" else 1), at)
    return form


# -- masks -------------------------------------------------------------------------------------------------------------
def named_constraints(mask: Mask, symbols: Sequence[str]) -> str:
    """Return constraints with symbols and axes on the left and the number on the right: ``d0 + %i * 128 <= 299 and d1
    == 0``."""
    return " and ".join(_named_constraint(c, symbols) for c in mask)


def _named_constraint(constraint: Constraint, symbols: Sequence[str]) -> str:
    form = constraint.form
    factors = [c for _, c in (*form.symbols, *form.axes)]
    relation, number = "==" if constraint.equal else ">=", -form.const
    if not constraint.equal and factors and all(c < 0 for c in factors):
        relation, number = "<=", form.const
        form = Linear(0, tuple((s, -c) for s, c in form.symbols), tuple((a, -c) for a, c in form.axes))
    # The text has the terms in the order of the affine expression, compared with 0.
    axes_first = bool(number) or relation == "<="
    return f"{named(Linear(0, form.symbols, form.axes), symbols, axes_first)} {relation} {number}"


@dataclass
class NamedConstraint:
    """A form that is >= 0, or == 0. If the text compares with 0, the constraint has the affine expression of the
    text."""

    form: NamedForm
    equal: bool
    text: str | None = None

    def affine(self, symbols: Sequence[str]) -> str:
        """Return the constraint in the generic form."""
        if self.text is None:
            text = affine(self.form.linear(symbols))
        else:
            text = VALUE.sub(lambda m: f"s{symbols.index(m[0])}", self.text)
        return f"{text} {'==' if self.equal else '>='} 0"


def read_constraints(cursor: Cursor) -> list[NamedConstraint]:
    """Read constraints that ``and`` joins."""
    constraints = []
    while True:
        start = cursor.skip()
        form = read_form(cursor)
        text = cursor.text[start:cursor.at]
        relation = cursor.match(RELATION)
        if relation is None:
            raise cursor.unexpected("'<=', '>=' or '=='")
        number = cursor.match(NUMBER)
        if number is None:
            raise cursor.unexpected("a number")
        is_exact = relation != "<=" and int(number) == 0
        form.add(None, -int(number))
        if relation == "<=":
            form = form.negated()
        constraints.append(NamedConstraint(form, relation == "==", text if is_exact else None))
        if cursor.word("and") is None:
            return constraints


def exact_constraints(mask: str, symbols: Sequence[str]) -> str:
    """Return the constraints of an integer set as MLIR writes them, with the names of its symbols."""
    body = mask.partition(" : (")[2].removesuffix(")>")
    return SYMBOL.sub(lambda m: symbols[int(m[1])], body.replace(", ", " and "))


# -- in the generic form -----------------------------------------------------------------------------------------------
def affine(form: Linear) -> str:
    """Return the affine expression, in the order in which the dialects create it."""
    terms = [f"s{s} * {c}" for s, c in form.symbols] + [f"d{a} * {c}" for a, c in form.axes]
    return " + ".join([str(form.const), *terms])


def space(axes: int, symbols: int) -> str:
    """Return the dims and symbols that affine expressions begin with."""
    dims = ", ".join(f"d{k}" for k in range(axes))
    return f"({dims})" + (f"[{', '.join(f's{k}' for k in range(symbols))}]" if symbols else "")


def affine_map(forms: Sequence[Linear], axes: int, symbols: int) -> str:
    return f"affine_map<{space(axes, symbols)} -> ({', '.join(map(affine, forms))})>"


def affine_set(mask: Sequence[NamedConstraint], axes: int, symbols: Sequence[str]) -> str:
    if not mask:
        return NO_MASK
    return f"affine_set<{space(axes, len(symbols))} : ({', '.join(c.affine(symbols) for c in mask)})>"


def all_below(forms: Sequence[NamedForm], axes: int, at: int) -> None:
    """Raise an error if a form has an axis that the operation lacks."""
    for form in forms:
        for axis in form.axes:
            if axis >= axes:
                raise MalformedForm(at, f"d{axis} is not an axis of the operation, which has {axes}")
