# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the maxima and minima of float32 in a body that need no repair of NaN, and those that need no repair of zeros.

The host's instruction returns its second operand if either operand is NaN, and a zero of either sign. So code repairs
an extremum twice: one repair makes it NaN where its first operand is NaN, the other makes a zero result +0. Code leaves
out a repair that changes no result. A fold repairs only the zero of its result: no comparison depends on the sign of a
zero.
"""

import math
from collections.abc import Collection, Iterable, Set
from functools import lru_cache
from typing import NamedTuple

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32
from nki_mlir.targets.cpu.roundings import ARITHMETIC, EXTREMA, is_representable
from nki_mlir.waist.nest import Nest, Step
from nki_mlir.waist.recognize import fold_of

ROOTS_OF_SUMS = frozenset({"add", "subtract"})


class Unrepaired(NamedTuple):
    """The extrema, as numbers of values, that need no repair of NaN, and those that need no repair of zeros."""

    nans: frozenset[int] = frozenset()
    zeros: frozenset[int] = frozenset()

    def or_zeros(self, values: Iterable[int]) -> "Unrepaired":
        """Return these extrema, and more whose zeros need no repair."""
        return self._replace(zeros=self.zeros.union(values))


@lru_cache(1 << 12)
def unrepaired(nest: Nest) -> Unrepaired:
    """Return the extrema of a body that have a repair which changes no result."""
    return Unrepaired(_without_repairs_of_nans(nest), _without_repairs_of_zeros(nest))


def folded_extrema(nest: Nest, carried: Collection[int]) -> dict[int, int]:
    """Return those of the ``carried`` outputs that folds compute by an extremum of float32, each with the number of its
    result. Only the next step of a fold reads the result of a step."""
    folds = [fold for fold in (fold_of(nest, output) for output in carried) if fold is not None]
    return {fold.output: nest.results[fold.output] for fold in folds if not fold.converts
            and is_float_extremum(fold.step)}


def is_float_extremum(step: Step) -> bool:
    return step.kind == "alu" and step.name in EXTREMA and step.dtype is FLOAT32


def _steps(nest: Nest) -> list[tuple[int, Step]]:
    return [*enumerate(nest.steps, nest.first_step)]


def _number(nest: Nest, value: int) -> float | None:
    """Return the number that a value always has; None if it is not constant, or NaN."""
    step = nest.step(value)
    number = float(step.number) if step is not None and step.kind == "constant" else math.nan
    return None if math.isnan(number) else number


def _keeps_float(nest: Nest, step: Step) -> bool:
    """Return whether a step converts between floats that have NaN, infinities and both zeros."""
    dtypes = (step.dtype, nest.dtype_of(step.operands[0])) if step.kind == "convert" else ()
    return bool(dtypes) and all(dtype.is_float and dtype.itemsize >= 2 for dtype in dtypes)


# -- NaN ---------------------------------------------------------------------------------------------------------------
def _without_repairs_of_nans(nest: Nest) -> frozenset[int]:
    """Return the extrema of two values whose first operand is a number, or is NaN only where each result that depends
    on the extremum is NaN in any case."""
    needed = [_dependences(nest, value) for value in nest.results]
    chosen = {value for value, step in _steps(nest) if is_float_extremum(step) and len(step.operands) == 2
              and _number(nest, step.operands[1]) is None}
    while True:
        lost = _passing_nans(nest, chosen)
        shown = {value for value in chosen if _number(nest, nest.steps[value - nest.first_step].operands[0]) is None
                 and any(value in before and nest.steps[value - nest.first_step].operands[0] not in lost[result]
                         for before, result in zip(needed, nest.results))}
        if not shown:
            return frozenset(chosen)
        chosen -= shown


def _dependences(nest: Nest, value: int) -> set[int]:
    """Return the values from which a value is computed, and the value itself."""
    needed, pending = set[int](), [value]
    while pending:
        value = pending.pop()
        step = nest.step(value)
        if value not in needed and step is not None:
            pending += step.operands
        needed.add(value)
    return needed


def _passing_nans(nest: Nest, without_repair: Collection[int]) -> list[frozenset[int]]:
    """Return for each value the values whose NaN makes it NaN, if the extrema ``without_repair`` are not repaired."""
    passing = [frozenset([value]) for value in range(nest.first_step)]
    for value, step in _steps(nest):
        passed = step.operands if _keeps_float(nest, step) or (
            step.kind == "alu" and step.name in ARITHMETIC and step.dtype is FLOAT32) else ()
        if value in without_repair:
            passed = passed[1:]
        passing.append(frozenset([value]).union(*[passing[operand] for operand in passed]))
    return passing


# -- zeros -------------------------------------------------------------------------------------------------------------
def _without_repairs_of_zeros(nest: Nest) -> frozenset[int]:
    """Return extrema whose zeros may have either sign. The function chooses them one after the other, since each repair
    that is left out may let the sign of another zero reach a result."""
    chosen = frozenset[int]()
    for value, step in _steps(nest):
        if is_float_extremum(step) and not _hidden_signs(nest, chosen | {value}).issuperset(chosen | {value}):
            continue
        chosen |= {value} if is_float_extremum(step) else set()
    return chosen


def _hidden_signs(nest: Nest, without_repair: Set[int]) -> set[int]:
    """Return the values of float32 and narrow floats whose sign, where they are 0, changes no result."""
    positive = _never_minus_zero(nest, without_repair)
    hidden = set(range(nest.first_step + len(nest.steps))) - set(nest.results)
    for value, step in reversed(_steps(nest)):
        for k, operand in enumerate(step.operands):
            if not _hides_sign(nest, step, k, value in hidden, positive):
                hidden.discard(operand)
    return hidden


def _hides_sign(nest: Nest, step: Step, operand: int, is_hidden: bool, positive: "Signs") -> bool:
    """Return whether it changes no result if a zero operand of a step is 0 or -0. ``is_hidden`` says the same of a zero
    that the step computes."""
    if _keeps_float(nest, step):
        return is_hidden
    if step.kind != "alu" or step.dtype is not FLOAT32:
        return False
    if step.name in EXTREMA | {"abs", "square"}:
        return True                     # code repairs the zeros of an extremum; abs and square have no -0
    if step.name == "add" or (step.name == "subtract" and operand == 1):
        return is_hidden or step.operands[1 - operand] in positive.not_minus_zero
    return is_hidden and (step.name in ("subtract", "multiply", "negative") or (
        step.name == "divide" and operand == 0))


class Signs(NamedTuple):
    """The values that are never -0, and those among them that are also never less than 0."""

    not_minus_zero: set[int]
    not_negative: set[int]


def _never_minus_zero(nest: Nest, without_repair: Set[int]) -> Signs:
    signs = Signs(set(), set())
    for value, step in _steps(nest):
        not_minus_zero, not_negative = _signs_of(nest, value, step, signs, value not in without_repair)
        if not_minus_zero or not_negative:
            signs.not_minus_zero.add(value)
        if not_negative:
            signs.not_negative.add(value)
    return signs


def _signs_of(nest: Nest, value: int, step: Step, signs: Signs, is_repaired: bool) -> tuple[bool, bool]:
    """Return whether a value is never -0, and whether it is also never negative."""
    not_minus_zero = [operand in signs.not_minus_zero for operand in step.operands]
    not_negative = [operand in signs.not_negative for operand in step.operands]
    number = _number(nest, value)
    if number is not None:
        is_positive = math.copysign(1, number) > 0
        return is_positive or number != 0, is_positive
    if step.kind == "convert" and nest.dtype_of(step.operands[0]).is_integer:
        return True, False
    if _keeps_float(nest, step):
        return not_minus_zero[0] and not _may_underflow(nest, step), not_negative[0]
    if step.kind != "alu" or step.dtype is not FLOAT32:
        return False, False
    match step.name:
        case "add":
            return any(not_minus_zero), all(not_negative)
        case "subtract":
            return not_minus_zero[0], False
        case "square" | "abs":
            return True, True
        case "multiply" | "divide":
            return False, all(not_negative)
        case "maximum":
            is_zero_positive = is_repaired or all(not_minus_zero)
            return is_zero_positive, is_zero_positive and any(not_negative)
        case "minimum":
            return is_repaired or all(not_minus_zero), all(not_negative)
        case "relu":
            return is_repaired or all(not_minus_zero), is_repaired or all(not_minus_zero)
    return False, False


def _may_underflow(nest: Nest, step: Step) -> bool:
    """Return whether the conversion to a narrow float may round a number to 0. A sum of two bfloat16 does not: it is a
    multiple of the least bfloat16, and bfloat16 represents such numbers that are small."""
    source = nest.step(step.operands[0])
    if step.dtype.itemsize >= nest.dtype_of(step.operands[0]).itemsize:
        return False
    return not (step.dtype is BFLOAT16 and source is not None and source.kind == "alu" and (
        source.name in ROOTS_OF_SUMS | EXTREMA) and all(
            is_representable(nest, operand, BFLOAT16) for operand in source.operands))
