# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites a selection of index vectors or masks by a condition of the host as a selection of numbers.

    first = 2 * f if interleaved else f + 3         start = 0 if interleaved else 3
    x[p, first]                                     step = 2 if interleaved else 1
                                                    x[:, start:start + step * (width - 1) + 1:step]
"""

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.facts import (
    Axis,
    Comparison,
    Fact,
    IndexFact,
    Items,
    MaskBound,
    MaskFact,
    NoneFact,
    NumberFact,
    depends_on_index,
)

SELECTED = "index vectors or masks that a condition selects: write an if for the statements that read them"
Select = Callable[[str, str, str], str]         # (hint, text if the condition holds, text otherwise) -> text of both


class NotSelectable(Exception):
    """Two index vectors or masks of which no number selects one."""


class Selections:
    """The names of numbers that a condition selects. ``first`` and ``second`` have the names that the statements of
    one branch alone assign: the other branch assigns them, too, if its number differs."""

    def __init__(self, fresh: Callable[[str], str], first: Collection[str], second: Collection[str]) -> None:
        self.fresh_name, self.assigned = fresh, (first, second)
        self.names: dict[tuple[str, str], str] = {}
        self.statements: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def select(self, hint: str, first: str, second: str) -> str:
        """Return the text of a number that is ``first`` if the condition holds, else ``second``."""
        if terms.is_same_number(first, second):
            return first
        if (first, second) not in self.names:
            self.names[first, second] = self._assign(hint, first, second)
        return self.names[first, second]

    def _assign(self, hint: str, first: str, second: str) -> str:
        reused = {*self.names.values()}
        if first in self.assigned[0] and first not in reused:
            self.statements[1][first] = second
            return first
        if second in self.assigned[1] and second not in reused:
            self.statements[0][second] = first
            return second
        name = self.fresh_name(hint)
        for statements, text in zip(self.statements, (first, second)):
            statements[name] = text
        return name


def selected(first: Fact, second: Fact, select: Select) -> Fact:
    """Return the fact about a value that a condition selects. Raise NotSelectable if no number expresses it."""
    if first == second:
        return first
    if isinstance(first, Items) and isinstance(second, Items) and len(first.items) == len(second.items):
        return Items(tuple(selected(a, b, select) for a, b in zip(first.items, second.items)), first.fields)
    if isinstance(first, IndexFact) and isinstance(second, IndexFact):
        return _index(first, second, select)
    if isinstance(first, MaskFact | NoneFact) and isinstance(second, MaskFact | NoneFact):
        everything = MaskFact(())
        return _mask(first if isinstance(first, MaskFact) else everything,
                     second if isinstance(second, MaskFact) else everything, select)
    raise NotSelectable


def _index(first: IndexFact, second: IndexFact, select: Select) -> IndexFact:
    if first.moved != second.moved:
        raise NotSelectable
    rank = max(len(first.axes), len(second.axes))
    pairs = zip(*([Axis("1", "0")] * (rank - len(i.axes)) + list(i.axes) for i in (first, second)))
    base = select("start", first.base, second.base)
    return IndexFact(base, tuple(_axis(a, b, select) for a, b in pairs), first.moved)


def _axis(first: Axis, second: Axis, select: Select) -> Axis:
    if any((terms.number(axis.step) or 0) < 0 for axis in (first, second)) or (first.step == "0") != (
            second.step == "0"):
        raise NotSelectable
    return Axis(select("size", first.extent, second.extent), select("step", first.step, second.step))


def _mask(first: MaskFact, second: MaskFact, select: Select) -> MaskFact:
    if not (first.is_known and second.is_known) or first.selects_no_box or second.selects_no_box:
        raise NotSelectable
    extents = {(c.varying[0], len(c.index.axes)): c.index.axes[c.varying[0]].extent
               for c in (*first.comparisons, *second.comparisons) if len(c.varying) == 1}
    bounds = []
    for axis, rank in dict.fromkeys((b.axis, b.rank) for b in (*first.bounds, *second.bounds)):
        if (axis, rank) not in extents:
            raise NotSelectable
        complete = MaskBound(axis, "", extents[axis, rank], rank)
        a, b = (next((b for b in mask.bounds if b.axis == axis), complete) for mask in (first, second))
        if a.rank != b.rank:
            raise NotSelectable
        low = select("start", a.low or "0", b.low or "0")
        high = select("num_rows" if axis == -rank else "num_columns", a.high, b.high)
        bounds.append(MaskBound(axis, "" if low == "0" else low, high, rank))
    conditions = [" and ".join(mask.conditions) or "True" for mask in (first, second)]
    condition = select("is_active", *conditions)
    comparisons = _comparisons(first.comparisons, second.comparisons, select)
    return MaskFact(tuple(bounds), () if condition == "True" else (condition,),
                    (*first.comparisons, *second.comparisons) if comparisons is None else comparisons,
                    is_selected=comparisons is None or first.is_selected or second.is_selected)


def _comparisons(first: Sequence[Comparison], second: Sequence[Comparison], select: Select
                 ) -> tuple[Comparison, ...] | None:
    """Return the comparisons of both masks, or None if the masks differ in more than numbers. An operation that needs
    the comparisons, not a mask's bounds, takes no mask that is None."""
    if not first or not second:
        return (*first, *second)
    if [c.operator for c in first] != [c.operator for c in second]:
        return None
    try:
        return tuple(Comparison(_index(a.index, b.index, select), a.operator) for a, b in zip(first, second))
    except NotSelectable:
        return None


def index_of(name: str, fact: Fact) -> Fact:
    """Return the fact about a name; a number of the host is an index without axes."""
    return IndexFact(name, ()) if isinstance(fact, NumberFact) else fact


def selected_names(first: Mapping[str, Fact], second: Mapping[str, Fact], select: Select) -> dict[str, Fact]:
    """Return the facts about names to which two branches assign different index vectors or masks: expressions that
    select one or the other. The result omits names for which no expression does."""
    facts: dict[str, Fact] = {}
    for name in first:
        if name not in second or first[name] == second[name] or not (
                depends_on_index(first[name]) or depends_on_index(second[name])):
            continue
        a, b = first[name], second[name]
        if not isinstance(a, MaskFact) and not isinstance(b, MaskFact):
            a, b = index_of(name, a), index_of(name, b)
        try:
            facts[name] = selected(a, b, select)
        except NotSelectable:
            continue
    return facts


def assigned_names(statements: Sequence[str]) -> dict[str, str] | None:
    """Return the texts that statements assign to names, or None if a statement does something else."""
    values: dict[str, str] = {}
    for text in statements:
        match = re.fullmatch(r"(\w+) = (.*)", text)
        if match is None:
            return None
        values[match.group(1)] = match.group(2)
    return values


def with_assignments(node: cst.If, first: Sequence[cst.BaseStatement], second: Sequence[cst.BaseStatement]) -> cst.If:
    """Return an ``if`` with statements at the end of its body, and at the end of all of its other branches."""
    if first and isinstance(node.body, cst.IndentedBlock):
        node = node.with_changes(body=_appended(node.body, first))
    if not second:
        return node
    match node.orelse:
        case cst.If() as other:
            return node.with_changes(orelse=with_assignments(other, second, second))
        case cst.Else(body=cst.IndentedBlock() as body) as other:
            return node.with_changes(orelse=other.with_changes(body=_appended(body, second)))
    return node.with_changes(orelse=cst.Else(cst.IndentedBlock(second)))


def _appended(block: cst.IndentedBlock, statements: Sequence[cst.BaseStatement]) -> cst.IndentedBlock:
    before = [s for s in block.body if not isinstance(s, cst.SimpleStatementLine) or not all(
        isinstance(small, cst.Pass) for small in s.body)]
    return block.with_changes(body=[*before, *statements])


def conditional(test: str, first: str, second: str) -> str:
    """Return the text of a conditional expression."""
    loose = (ast.IfExp, ast.Lambda, ast.NamedExpr)
    parts = [f"({text})" if isinstance(ast.parse(text, mode="eval").body, loose) else text
             for text in (first, test, second)]
    return f"{parts[0]} if {parts[1]} else {parts[2]}"
