# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where to cut the values of a loop variable so that conditions hold everywhere or nowhere in each part.

Plain arithmetic: a condition says what interval its form has while the variable runs from one value to another.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nki_mlir.analysis.mask_boxes import verdict
from nki_mlir.dialects.access import ZERO, Constraint

SCANNED = 4096              # values of a variable that are looked at one by one


@dataclass(frozen=True)
class Condition:
    """A constraint as seen from one loop variable.

    ``bounds(first, last)`` are the extremes of its form while the variable runs from ``first`` to ``last``.
    ``monotone``: they rise or fall with the variable. ``peel``: a constant variable resolves the constraint where a
    range does not. ``must``: it is to hold, so that where it does not is looked at value by value.
    """

    bounds: Callable[[int, int], tuple[int, int]]
    equal: bool = False
    monotone: bool = True
    peel: bool = True
    must: bool = False

    def verdict(self, first: int, last: int) -> bool | None:
        holds = verdict(Constraint(ZERO, self.equal), *self.bounds(first, last))
        return None if self.must and not holds else holds


def parts_of(values: range, conditions: Iterable[Condition], limit: int) -> list[range]:
    """Consecutive parts of ``values``, at most ``limit``; a part of one value is meant to be peeled.

    Conditions that would cost more parts are left out, later ones first; without its peeling a condition may still fit.
    """
    parts = [values]
    for condition in conditions:
        for peel in ((True, False) if condition.peel else (False,)):
            finer = [piece for part in parts for piece in _pieces(part, condition, peel, limit)]
            if len(finer) <= limit:
                parts = finer
                break
    return parts


def _pieces(values: range, condition: Condition, peel: bool, limit: int) -> Iterator[range]:
    runs = _runs(values, condition)
    for run in runs if len(runs) <= limit else [values]:
        if peel and len(runs) <= limit and condition.verdict(run[0], run[-1]) is None:
            yield from (run[k:k + 1] for k in range(min(len(run), limit + 1)))      # more than fit are refused
        else:
            yield run


def _runs(values: range, condition: Condition) -> list[range]:
    """Maximal runs of values at each of which the condition has one verdict."""
    if condition.monotone:
        cuts = sorted({0, len(values), *_crossings(values, condition)})
    elif len(values) <= SCANNED:
        cuts = list(range(len(values) + 1))
    else:
        return [values]
    return _joined([values[a:b] for a, b in pairwise(cuts)], condition)


def _crossings(values: range, condition: Condition) -> Iterator[int]:
    """The positions at which an extreme of the form passes zero."""
    for extreme in (0, 1):
        for least in (0, 1):
            def above(value: int, extreme: int = extreme, least: int = least) -> bool:
                return condition.bounds(value, value)[extreme] >= least
            falls = above(values[0])
            yield bisect_left(values, True, key=lambda v: above(v) != falls)


def _joined(runs: Sequence[range], condition: Condition) -> list[range]:
    """Neighbours of one verdict as one run, where the verdict holds for it as a whole."""
    joined: list[range] = []
    for run in runs:
        verdict_here = condition.verdict(run[0], run[0])
        if joined and verdict_here is condition.verdict(joined[-1][0], joined[-1][0]) and (
                verdict_here is None or condition.verdict(joined[-1][0], run[-1]) is verdict_here):
            joined[-1] = range(joined[-1].start, run.stop, run.step)
        else:
            joined.append(run)
    return joined
