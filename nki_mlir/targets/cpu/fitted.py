# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Polynomials that compute functions of one bfloat16, rounded to bfloat16, with the bits of the functions.

Arguments are divided into segments around multiples of a step. At every argument of a segment, the segment's polynomial
must round to the function's value. Values of bfloat16 are so far apart that four terms are enough. The first and the
last segment are unbounded: there the function must be constant, or a multiple of its argument. Compiled code of the
polynomials is compared with the table of the function for all 65,536 arguments. Code reads the table where the first or
the last segment has no polynomial, and where a result is denormal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.dtypes import BFLOAT16
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.lanes import COEFFICIENTS, FITTED, FITTED_TO_ZERO, NUMBERED, SEGMENTS, TERMS
from nki_mlir.targets.cpu.tabulated import COUNT, LENGTH, TabulatedFunction, call, keep_table, table_of
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import ByteRegion

FITTED_LENGTH = COEFFICIENTS + 2 * (TERMS * SEGMENTS + 2)   # elements of 16 bits: the table, then float32 numbers
SEGMENTS_OF_1 = (4.0, 8 / 3, 2.0)   # segments between two integer arguments
ROUNDS = 200                        # most changes of weights until the polynomial of a segment fits
MARGIN = 0.98                       # most error, relative to the distance to numbers that round to another value
NEAR_ZERO = 2.0 ** -12              # smaller arguments are not fitted: polynomials are exact enough for them
USUAL = 3.0                         # all smaller arguments must have polynomials
USUAL_COUNT = 2 * 0x4040            # bfloat16 arguments below 3: the bits of 3, for both signs


class Segments(NamedTuple):
    """A division of the arguments into segments: the segment of ``x`` is ``round(x * of_1) + first``, at least 0 and at
    most the last one."""

    of_1: float
    first: int

    @property
    def ends(self) -> tuple[float, float]:
        """Return where the first segment ends, and where the last one begins."""
        return (0.5 - self.first) / self.of_1, (SEGMENTS - 1.5 - self.first) / self.of_1

    def numbers(self, arguments: np.ndarray) -> np.ndarray:
        """Return the segments of finite numbers, as code computes them: a sum rounds a product to an integer."""
        inside = np.clip(arguments, -2.0 * SEGMENTS, 2.0 * SEGMENTS)
        scaled = (inside * np.float64(np.float32(self.of_1)) + (NUMBERED + self.first)).astype(np.float32)
        numbers: np.ndarray = np.clip(scaled.astype(np.float64) - NUMBERED, 0, SEGMENTS - 1).astype(np.int64)
        return numbers


@dataclass(frozen=True, eq=False)
class FittedFunction:
    """The polynomials of a function. ``table`` has the function's table, then the coefficients of each term for all
    segments, then the two numbers that compute an argument's segment. If the function is 0 at 0, the polynomials are
    multiplied by the argument."""

    is_zero: bool
    table: np.ndarray
    segments: Segments

    @property
    def prefix(self) -> str:
        return FITTED_TO_ZERO if self.is_zero else FITTED


class RoundingIntervals:
    """The finite arguments of a function, and the numbers that round to its value at each of them."""

    def __init__(self, table: np.ndarray) -> None:
        bits = np.arange(COUNT, dtype=np.uint16)
        finite = _are_finite(bits) & _are_finite(table[:COUNT].view(np.uint16))
        self.arguments, values = _numbers(bits[finite]), table[:COUNT][finite]
        magnitude = (values.view(np.uint16) & 0x7FFF).astype(np.int64)
        above, nearest, below = (_numbers(np.maximum(magnitude + step, 0)) for step in (1, 0, -1))
        above[~np.isfinite(above)] = 2.0 ** 128
        high, low = (above + nearest) / 2, np.where(magnitude > 0, (below + nearest) / 2, -above / 2)
        negative = np.signbit(values.astype(np.float32))
        self.low, self.high = np.where(negative, -high, low), np.where(negative, -low, high)

    def polynomial(self, chosen: np.ndarray, is_zero: bool) -> np.ndarray | None:
        """Return coefficients for some arguments, by least squares. Arguments with large errors gain weight until all
        results round to the function's values."""
        arguments, low, high = self.arguments[chosen], self.low[chosen], self.high[chosen]
        half_width = (high - low) / 2
        center, powers = (high + low) / 2 / half_width, np.stack([arguments ** (k + is_zero) for k in range(TERMS)], 1)
        powers /= half_width[:, None]
        size, weights, best, coefficients = np.abs(powers).max(0), np.ones(len(center)), 1.0, None
        for _ in range(ROUNDS):
            root = np.sqrt(weights)
            solved = np.linalg.lstsq(powers / size * root[:, None], center * root, rcond=None)[0] / size
            errors = np.abs(powers @ solved - center)
            if errors.max() < best:
                best, coefficients = errors.max(), solved
            if best < MARGIN:
                break
            weights = weights * (errors + 1e-9)
            weights /= weights.sum()
        return coefficients

    def multiple(self, chosen: np.ndarray, is_zero: bool) -> float | None:
        """Return one coefficient with which the first term alone has the function's values for some arguments; None if
        there is none."""
        low, high = self._multiples(chosen, is_zero)
        least, most = low.max(initial=-inf), high.min(initial=inf)
        return float(least + most) / 2 if least < most and np.isfinite(least + most) else None

    def begin_of_multiples(self, is_zero: bool, sign: int) -> float:
        """Return the least magnitude of arguments of a sign from which on one coefficient suffices (``multiple``)."""
        chosen = np.flatnonzero(self.arguments * sign > 0)
        chosen = chosen[np.argsort(-np.abs(self.arguments[chosen]))]
        low, high = self._multiples(chosen, is_zero)
        enough = np.maximum.accumulate(low) < np.minimum.accumulate(high)
        count = len(enough) if enough.all() else int(np.argmin(enough))
        return float(np.abs(self.arguments[chosen[count - 1]])) if count else inf

    def _multiples(self, chosen: np.ndarray, is_zero: bool) -> tuple[np.ndarray, np.ndarray]:
        by = self.arguments[chosen] if is_zero else np.ones(len(self.arguments[chosen]))
        ends = self.low[chosen] / by, self.high[chosen] / by
        return np.minimum(*ends), np.maximum(*ends)


def _numbers(bits: np.ndarray) -> np.ndarray:
    """Return bfloat16 as float64."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _are_finite(bits: np.ndarray) -> np.ndarray:
    return (bits & 0x7F80) != 0x7F80                                                       # type: ignore[no-any-return]


def name_of(function: TabulatedFunction, fit: FittedFunction) -> str:
    return fit.prefix + function.function


@lru_cache(1 << 6)
def fit_of(function: Nest) -> FittedFunction | None:
    """Return polynomials that have a function's bits for all arguments; None if there are none."""
    if any(operand.dtype is not BFLOAT16 for operand in function.operands):
        return None
    table = table_of(function)
    intervals, is_zero = RoundingIntervals(table), not table[0]
    if np.count_nonzero(np.abs(intervals.arguments) < USUAL) < USUAL_COUNT:
        return None                                 # results at some of these arguments are not finite
    for segments in _choices(intervals, is_zero):
        rows = _rows(intervals, segments, is_zero)
        if rows is not None:
            extended = np.zeros(FITTED_LENGTH, table.dtype)
            extended[:LENGTH] = table
            numbers = np.array([*rows.ravel(), segments.of_1, NUMBERED + segments.first], np.float32)
            extended[COEFFICIENTS:] = numbers.view(table.dtype)
            extended.flags.writeable = False
            fit = FittedFunction(is_zero, extended, segments)
            if _has_bits(fit):
                return fit
    return None


def _choices(intervals: RoundingIntervals, is_zero: bool) -> Iterator[Segments]:
    """Yield divisions of the arguments. Divisions with polynomials for the most arguments around 0 come first."""
    low, high = (intervals.begin_of_multiples(is_zero, sign) for sign in (-1, 1))
    choices = dict[Segments, float]()
    for of_1 in SEGMENTS_OF_1:
        middles = [SEGMENTS // 2]
        middles += [SEGMENTS - 1 - ceil(high * of_1 + 0.5)] if high < SEGMENTS / of_1 else []
        middles += [ceil(low * of_1 + 0.5)] if low < SEGMENTS / of_1 else []
        for segments in (Segments(of_1, first) for first in middles):
            first, last = segments.ends
            choices[segments] = min(inf if -first >= low else -first, inf if last >= high else last)
    return iter([s for s in sorted(choices, key=lambda s: -choices[s]) if choices[s] > USUAL])


def _rows(intervals: RoundingIntervals, segments: Segments, is_zero: bool) -> np.ndarray | None:
    """Return the coefficients of each term for all segments; NaN for first and last segments that have none."""
    rows, numbers = np.zeros((TERMS, SEGMENTS)), segments.numbers(intervals.arguments)
    for segment in range(SEGMENTS):
        chosen = numbers == segment
        if segment in (0, SEGMENTS - 1):
            multiple = intervals.multiple(chosen, is_zero)
            rows[:, segment] = np.nan if multiple is None else [multiple, *[0.0] * (TERMS - 1)]
            continue
        fitted = intervals.polynomial(chosen & (np.abs(intervals.arguments) >= NEAR_ZERO), is_zero)
        if fitted is None:
            return None
        rows[:, segment] = fitted
    return rows


def _has_bits(fit: FittedFunction) -> bool:
    """Return whether compiled code of the polynomials returns the bits of the table for all arguments."""
    results = np.zeros(COUNT, fit.table.dtype)
    call(lookups(COUNT, fit.prefix + "function"), [np.arange(COUNT, dtype=np.uint16), fit.table, results])
    return np.array_equal(results.view(np.uint16), fit.table[:COUNT].view(np.uint16))


def lookups(count: int, name: str) -> Nest:
    """Return a nest that computes a function at ``count`` arguments by polynomials; its second input is their table."""
    along, table = Operand(BFLOAT16, (1,)), Operand(BFLOAT16, (0,))
    return Nest((count,), frozenset(), (along, table), 0, (along,), (Step("lookup", BFLOAT16, (0, 1), name),), (3,))


def fitted_region(code: NativeFunction, function: Nest, fit: FittedFunction) -> ByteRegion:
    """Return the table of a function and its polynomials as a constant of a kernel."""
    return ByteRegion("constants", keep_table(code, function, fit.table), fit.table.nbytes, Linear())
