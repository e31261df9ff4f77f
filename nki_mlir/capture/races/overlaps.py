# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decides whether two iterations, or two programs of a grid, touch the same element.

The module tries the values of the symbols and axes of conditions on indices to decide whether they hold anywhere.
Whether two touches share an element is decided exactly: both addresses are affine in loop variables, program ids and
the operands' axes; masks, conditions and the definitions of quotients and remainders are further rows. This module
writes the system, ``waist/overlap.py`` solves it.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from nki_mlir.capture.affine import Affine
from nki_mlir.capture.index import Index, Mask, Symbol
from nki_mlir.capture.races.touches import Touch
from nki_mlir.capture.tensor import Buffer
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.integer_systems import SearchTooLong
from nki_mlir.dialects.op import Op
from nki_mlir.waist.overlap import Form, OverlapSystem, plus

MOST_POINTS = 1 << 22                   # the most values at which conditions are tried
MOST_CASES = 16                         # the most pairs of alternatives of two conditions


def masks_of(op: Op, symbols: Sequence[Symbol]) -> list[Mask]:
    """Return the mask of an operation as a condition on symbols and axes, in a list that is empty without a mask."""
    if not op.mask:
        return []
    extents = op.iteration().extents
    return [Mask(tuple((index_of(c.form, symbols, extents), c.equal) for c in op.mask))]


def index_of(form: Linear, symbols: Sequence[Symbol], extents: tuple[int, ...]) -> Index:
    """Convert a form over an operation's symbols and axes to an index."""
    axes, index = dict(form.axes), Index(form.const, {symbols[p]: c for p, c in form.symbols})
    return index.with_axes([axes.get(a, 0) for a in range(len(extents))], extents)


def roots_of(indices: Iterable[Affine]) -> list[Symbol]:
    """Return the loop variables and program ids that indices depend on."""
    return list(dict.fromkeys(root for index in indices for symbol in index.symbols for root in symbol.roots()))


def spans_of(extents: Sequence[int], roots: Sequence[Symbol]) -> list[range]:
    """Return the ranges of values of axes, then of symbols."""
    return [*map(range, extents), *(range(r.first, r.last + r.step, r.step) for r in roots)]


def are_satisfiable(conditions: Sequence[Mask]) -> bool | None:
    """Return whether all conditions hold for some values of their symbols and axes; None if there are too many values
    to try."""
    if not conditions:
        return True
    indices = [e for c in conditions for e, _ in c.terms]
    roots = roots_of(indices)
    extents = next((e.shape for e in indices if e.shape), ())
    spans = spans_of(extents, roots)
    if ConditionPoints(roots, len(extents), [sorted({s[0], s[-1]}) for s in spans]).some(conditions):
        return True
    if prod(map(len, spans)) > MOST_POINTS:
        return None
    return ConditionPoints(roots, len(extents), spans).some(conditions)


class ConditionPoints:
    """The values of axes, then of symbols, each along a separate array dimension, at which conditions are evaluated."""

    def __init__(self, roots: Sequence[Symbol], axes: int, spans: Sequence[Sequence[int]]) -> None:
        arrays = [np.array(s).reshape([-1 if a == k else 1 for a in range(len(spans))]) for k, s in enumerate(spans)]
        self.axes: list[np.ndarray] = arrays[:axes]
        self.values: dict[Symbol, np.ndarray] = dict(zip(roots, arrays[axes:]))

    def some(self, conditions: Sequence[Mask]) -> bool:
        holds = np.array(True)
        for condition in conditions:
            holds = holds & self.truth(condition)
        return bool(np.any(holds))

    def truth(self, mask: Mask) -> np.ndarray:
        values = [(self.of(e), equal) for e, equal in mask.terms]
        holds = np.array(True)
        for value, equal in values:
            holds = holds & (value == 0 if equal else value >= 0)
        return holds ^ mask.negated

    def of(self, index: Affine) -> np.ndarray:
        total = np.array(index.const, np.int64)
        for symbol, c in index.symbols.items():
            total = total + c * self.value(symbol)
        for position, c in zip(self.axes, index.axes):
            total = total + c * position
        return total

    def value(self, symbol: Symbol) -> np.ndarray:
        if symbol not in self.values:
            assert symbol.formula is not None
            index, kind, divisor = symbol.formula
            value = self.of(index)
            self.values[symbol] = value // divisor if kind == "floordiv" else value % divisor
        return self.values[symbol]


# -- touches -----------------------------------------------------------------------------------------------------------
class CommonElement(NamedTuple):
    """An element that both touches have: its index in the tensor, and the values of the symbol that tells the touches
    apart."""

    element: tuple[int, ...]
    first: int
    second: int


class DistinctPoints(NamedTuple):
    """Two points of the iteration space at which one symbol has different values, and ``shared`` symbols equal ones.

    ``symbol`` is None for a grid axis of ``extent`` programs whose id the kernel does not read.
    """

    symbol: Symbol | None
    extent: int
    shared: frozenset[Symbol] = frozenset()


def common_element(a: Touch, b: Touch, points: DistinctPoints) -> CommonElement | None:
    """Return an element that both touches access, or None. Raise ``SearchTooLong`` if the search does not decide."""
    cases = list(itertools.islice(itertools.product(alternatives(a), alternatives(b)), MOST_CASES + 1))
    if len(cases) > MOST_CASES:
        raise SearchTooLong
    for first, second in cases:
        for touch, other in ((a, b), (b, a))[:1 if a is b else 2]:
            conditions = (first, second) if touch is a else (second, first)
            common = TouchSystem(points).common_element(touch, other, *conditions)
            if common is not None:
                return common if touch is a else CommonElement(common.element, common.second, common.first)
    return None


def alternatives(touch: Touch) -> Iterator[list[tuple[Affine, bool]]]:
    """Yield the conjunctions of conditions under which an operation runs. A negated condition gives several."""
    pieces = [condition.pieces() if condition.negated else [condition] for condition in touch.conditions]
    for chosen in itertools.product(*pieces):
        yield [term for mask in chosen for term in mask.terms]


class TouchSystem(OverlapSystem):
    """The linear system for two touches at two points that differ. The variable of a symbol or axis is created at
    first use."""

    def __init__(self, points: DistinctPoints) -> None:
        super().__init__()
        self.points = points
        self.symbols: dict[tuple[int, Symbol], Form] = {}
        self.start, self.more = self.variable(0, points.extent - 1), self.variable(1, points.extent - 1)
        self.row((points.extent - 1, {self.start: -1, self.more: -1}), False)

    # -- forms ---------------------------------------------------------------------------------------------------------
    def symbol(self, side: int, symbol: Symbol) -> Form:
        """Return the form of a symbol at one of the points (``side`` 0 or 1)."""
        key = side, symbol
        if key not in self.symbols:
            self.symbols[key] = self.new_symbol(side, symbol)
        return self.symbols[key]

    def new_symbol(self, side: int, symbol: Symbol) -> Form:
        if symbol.formula is not None:
            return self.derived(side, symbol)
        if symbol is self.points.symbol:
            terms = {self.start: symbol.step}
            return symbol.first, terms if side == 0 else terms | {self.more: symbol.step}
        if side and symbol in self.points.shared:
            return self.symbol(0, symbol)
        return symbol.first, {self.variable(0, (symbol.last - symbol.first) // symbol.step): symbol.step}

    def derived(self, side: int, symbol: Symbol) -> Form:
        """Return the form of a quotient or remainder. Add the row ``index == divisor * quotient + remainder``."""
        assert symbol.formula is not None
        index, kind, divisor = symbol.formula
        low, high = index.interval()
        quotient, remainder = self.variable(low // divisor, high // divisor), self.variable(0, divisor - 1)
        self.row(plus(self.form(side, index, ()), (0, {quotient: -divisor, remainder: -1})), True)
        return 0, {quotient if kind == "floordiv" else remainder: 1}

    def form(self, side: int, index: Affine, axes: Sequence[int]) -> Form:
        """Return the form of an index at one of the points; ``axes`` are the variables of its axes."""
        total: Form = index.const, {}
        for symbol, c in index.symbols.items():
            total = plus(total, self.symbol(side, symbol), c)
        for variable, c in zip(axes, index.axes):
            if c:
                total = plus(total, (0, {variable: c}))
        return total

    # -- the two sides -------------------------------------------------------------------------------------------------
    def common_element(self, a: Touch, b: Touch, when_a: Sequence[tuple[Affine, bool]],
                       when_b: Sequence[tuple[Affine, bool]]) -> CommonElement | None:
        """Return an element that both accesses touch under their conditions; None if there is none."""
        size_a, size_b = a.view.dtype.itemsize, b.view.dtype.itemsize
        unit = size_a if size_a == size_b else 1
        coordinates, other = (self.side(k, t, t.view.dtype.itemsize // unit) for k, t in enumerate((a, b)))
        self.equate(coordinates, other)
        for side, terms in enumerate((when_a, when_b)):
            for index, equal in terms:
                self.row(self.form(side, index, ()), equal)
        values = self.solved()
        if values is None:
            return None
        values = self.nearest(values)
        numbers = values[self.start], values[self.start] + values[self.more]
        if (symbol := self.points.symbol) is not None:
            numbers = symbol.first + numbers[0] * symbol.step, symbol.first + numbers[1] * symbol.step
        partition, free = (const + sum(c * values[v] for v, c in terms.items()) for const, terms in coordinates)
        return CommonElement(element(a.view.buffer, partition, free * unit), *numbers)

    def nearest(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """Return a solution at neighboring points, the first two if possible, since that is the easiest to follow."""
        for start in ((0, 0), self.spans[self.start]):
            try:
                answer = self.solved({self.start: start, self.more: (1, 1)})
            except SearchTooLong:
                continue
            if answer is not None:
                return answer
        return values

    def side(self, side: int, touch: Touch, units: int) -> tuple[Form, Form]:
        """Return the forms (partition, free offset) of an element of the touch. Offsets count units, ``units`` to an
        element."""
        view, restriction = touch.view, touch.restriction
        axes = [self.variable(0, d.count - 1) for d in view.dims]
        steps = [d.partition for d in view.dims], [d.free for d in view.dims]
        partition, free = (self.form(side, start.with_axes(along, view.shape), axes)
                           for start, along in zip((view.partition, view.free), steps))
        free = free[0] * units, {v: c * units for v, c in free[1].items()}
        if units > 1:
            free[1][self.variable(0, units - 1)] = 1
        if restriction is not None:
            by_axis = {axis: v for axis, v, d in zip(restriction.axes, axes, view.dims)
                       if d.count == restriction.extents[axis]}
            all_axes = [by_axis[k] if k in by_axis else self.variable(0, n - 1)
                        for k, n in enumerate(restriction.extents)]
            for constraint in restriction.mask:
                index = index_of(constraint.form, touch.symbols, restriction.extents)
                self.row(self.form(side, index, all_axes), constraint.equal)
        return partition, free


def element(buffer: Buffer, partition: int, offset: int) -> tuple[int, ...]:
    """Return the index of an element in its tensor; ``offset`` is in bytes of the partition, in HBM of the tensor."""
    at, shape = offset // buffer.dtype.itemsize, buffer.physical_shape
    indices = []
    for extent in reversed(shape[1:] if buffer.on_chip else shape):
        indices.append(at % extent)
        at //= extent
    if not buffer.on_chip:
        return tuple(reversed(indices))
    inner = list(reversed(indices))
    return (*inner[:buffer.partition_dim], partition, *inner[buffer.partition_dim:])
