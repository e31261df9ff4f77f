# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decides whether linear equations and inequalities have a solution in integers of given ranges.

Access patterns have few variables with coefficients of mixed radix (a row's length, a tile's width, 1): variables that
together take every value of an interval become one variable; bounds and common divisors decide nearly all other cases.
The rest is searched, up to a number of steps.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import NamedTuple

STEPS = 400                     # the most steps of a search
ROUNDS = 30                     # in which rows narrow the ranges

Span = tuple[int, int]          # least and greatest value


class Row(NamedTuple):
    """The row ``const + sum(c * variable) >= 0`` or, with ``equal``, ``== 0``; variables by position, each once."""

    const: int
    terms: tuple[tuple[int, int], ...]
    equal: bool = False


class NoValues(Exception):
    """Raised when no values of the variables satisfy a row."""


class SearchTooLong(Exception):
    """Raised when the search takes too many steps."""


@lru_cache(1 << 14)
def solution(spans: tuple[Span, ...], rows: tuple[Row, ...], steps: int = STEPS) -> tuple[int, ...] | None:
    """Return values of the variables for which all rows hold, None if there are none; raise ``SearchTooLong`` if
    undecided."""
    if any(low > high for low, high in spans):
        return None
    joined = Joined(spans, rows)
    answer = Search(joined.rows, steps).run(joined.spans)
    return None if answer is None else joined.split(answer)


class Joined:
    """The system in which variables that all rows see together are joined.

    ``x + k * y`` takes every value between its ends if x takes at least k values; such a pair becomes one variable.
    """

    def __init__(self, spans: Sequence[Span], rows: Sequence[Row]) -> None:
        columns: dict[int, list[tuple[int, int]]] = {}
        for number, row in enumerate(rows):
            for variable, coefficient in row.terms:
                if coefficient:
                    columns.setdefault(variable, []).append((number, coefficient))
        self.variable_spans = spans
        # direction of a column -> (multiple, variable)
        families: dict[tuple[tuple[int, int], ...], list[tuple[int, int]]] = {}
        for variable, column in columns.items():
            unit = gcd(*(coefficient for _, coefficient in column)) * (1 if column[0][1] > 0 else -1)
            direction = tuple([(number, coefficient // unit) for number, coefficient in column])
            families.setdefault(direction, []).append((unit, variable))
        self.groups: list[list[tuple[int, int]]] = []           # (multiple, variable) of each joined one
        self.spans: list[Span] = []
        terms: list[list[tuple[int, int]]] = [[] for _ in rows]
        for direction, members in families.items():
            for group in self.grouped(sorted(members, key=lambda m: abs(m[0]))):
                scale = abs(group[0][0])
                for number, coefficient in direction:
                    terms[number].append((len(self.spans), coefficient * scale))
                self.groups.append([(m // scale, v) for m, v in group])
                self.spans.append(self.reach(self.groups[-1]))
        self.rows = [Row(row.const, tuple(t), row.equal) for row, t in zip(rows, terms)]

    def grouped(self, members: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        """Group members, by rising multiples. Between its ends, a group takes every multiple of its first member's
        multiple."""
        groups: list[list[tuple[int, int]]] = []
        for multiple, variable in members:
            for group in groups:
                scale = abs(group[0][0])
                low, high = self.reach([(m // scale, v) for m, v in group])
                if multiple % scale == 0 and abs(multiple) // scale <= high - low + 1:
                    group.append((multiple, variable))
                    break
            else:
                groups.append([(multiple, variable)])
        return groups

    def reach(self, group: Sequence[tuple[int, int]]) -> Span:
        low = high = 0
        for multiple, variable in group:
            a, b = self.variable_spans[variable]
            low += multiple * (a if multiple > 0 else b)
            high += multiple * (b if multiple > 0 else a)
        return low, high

    def split(self, values: Sequence[int]) -> tuple[int, ...]:
        """Return values of the original variables that add up to the values of the joined ones."""
        assigned = [low for low, _ in self.variable_spans]
        for group, value in zip(self.groups, values):
            for k in range(len(group) - 1, -1, -1):
                multiple, variable = group[k]
                below, _ = self.reach(group[:k])
                size = abs(multiple)
                least, greatest = sorted(multiple * b for b in self.variable_spans[variable])
                share = max(min((value - below) // size * size, greatest), least)
                assigned[variable] = share // multiple
                value -= share
        return tuple(assigned)


class Search:
    """Narrows ranges by the rows, and tries the remaining values of one variable after the other."""

    def __init__(self, rows: Sequence[Row], steps: int) -> None:
        self.rows, self.left = rows, steps

    def run(self, spans: Sequence[Span]) -> list[int] | None:
        low, high = [s[0] for s in spans], [s[1] for s in spans]
        if not self.narrowed(low, high):
            return None
        open_variables = [v for v in range(len(low)) if low[v] < high[v]]
        if not open_variables:
            return low
        bound = {v for row in self.rows if row.equal for v, _ in row.terms}
        chosen = min(open_variables, key=lambda v: (v not in bound, high[v] - low[v]))
        for begin, end in parts(low[chosen], high[chosen]):
            self.left -= 1
            if self.left < 0:
                raise SearchTooLong
            tried = [*zip(low, high)]
            tried[chosen] = begin, end
            answer = self.run(tried)
            if answer is not None:
                return answer
        return None

    def narrowed(self, low: list[int], high: list[int]) -> bool:
        """Remove from the ranges the values that a row excludes; return False if none remain."""
        try:
            for _ in range(ROUNDS):
                if not any([narrow(row, low, high) for row in self.rows]) and not any(
                        [on_lattice(row, low, high) for row in self.rows if row.equal]):
                    break
        except NoValues:
            return False
        return True


def narrow(row: Row, low: list[int], high: list[int]) -> bool:
    """Remove from the ranges the ends that a row excludes; return whether an end moved. Raise ``NoValues``."""
    least, most = interval(row, low, high)
    if most < 0 or (row.equal and least > 0):
        raise NoValues
    if least >= 0 and not row.equal:
        return False
    changed = False
    for variable, coefficient in row.terms:
        if low[variable] == high[variable]:
            continue
        term_most, term_least = (high[variable], low[variable]) if coefficient > 0 else (low[variable], high[variable])
        begin, end = bounded(coefficient, most - coefficient * term_most, least - coefficient * term_least, row.equal)
        before = low[variable], high[variable]
        if begin is not None:
            low[variable] = max(low[variable], begin)
        if end is not None:
            high[variable] = min(high[variable], end)
        if low[variable] > high[variable]:
            raise NoValues
        if (low[variable], high[variable]) != before:
            changed = True
            least, most = interval(row, low, high)
    return changed


def interval(row: Row, low: list[int], high: list[int]) -> Span:
    """Return the least and the greatest value of a row's sum."""
    least = most = row.const
    for v, c in row.terms:
        least += c * (low[v] if c > 0 else high[v])
        most += c * (high[v] if c > 0 else low[v])
    return least, most


def parts(low: int, high: int) -> list[Span]:
    """Split a range into pieces to try: its values, or two halves if there are many."""
    if high - low < 8:
        return [(n, n) for n in range(low, high + 1)]
    middle = (low + high) // 2
    return [(low, middle), (middle + 1, high)]


def bounded(c: int, most: int, least: int, equal: bool) -> tuple[int | None, int | None]:
    """Return bounds of x where ``c * x + rest >= 0`` (``== 0``) and the rest lies between ``least`` and ``most``."""
    # c * x >= -most, and for an equation c * x <= -least
    if c > 0:
        return -(most // c), -least // c if equal else None
    return -(least // c) if equal else None, most // -c


def on_lattice(row: Row, low: list[int], high: list[int]) -> bool:
    """Tighten an equation's bounds to values that the divisors of the other variables' coefficients allow, until one
    moves; return whether one did. Raise ``NoValues``."""
    fixed = row.const + sum([coefficient * low[variable] for variable, coefficient in row.terms
                             if low[variable] == high[variable]])
    free = [(variable, coefficient) for variable, coefficient in row.terms if low[variable] < high[variable]]
    if not free:
        if fixed:
            raise NoValues
        return False
    before, after = [0], [0]
    for _, coefficient in free:
        before.append(gcd(before[-1], coefficient))
    for _, coefficient in reversed(free):
        after.append(gcd(after[-1], coefficient))
    if fixed % before[-1]:
        raise NoValues
    for position, (variable, coefficient) in enumerate(free):
        other_gcd = gcd(before[position], after[len(free) - 1 - position])
        if other_gcd == 0:                         # c * v + fixed == 0
            if fixed % coefficient or not low[variable] <= -fixed // coefficient <= high[variable]:
                raise NoValues
            low[variable] = high[variable] = -fixed // coefficient
            return True
        step = other_gcd // gcd(other_gcd, coefficient)
        if step == 1:
            continue
        shared = gcd(other_gcd, coefficient)
        residue = -fixed // shared * pow(coefficient // shared, -1, step) % step
        least = low[variable] + (residue - low[variable]) % step
        greatest = high[variable] - (high[variable] - residue) % step
        if least > greatest:
            raise NoValues
        if (least, greatest) != (low[variable], high[variable]):
            low[variable], high[variable] = least, greatest
            return True
    return False
