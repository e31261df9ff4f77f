# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Affine expressions over integers that are unknown during capture, and over index axes.

A ``Symbol`` is a loop variable, a program id, or a quotient or remainder of these. Kernels get ``Index``.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar, overload

import numpy as np

from nki_mlir.capture.errors import IndexShapes, NotAffine
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.integer_systems import Row, SearchTooLong, Span, solution

if TYPE_CHECKING:
    from typing_extensions import Self


class NeedsValue(BaseException):
    """Raised if Python needs the number behind a symbol. The builder records the request first: user code may swallow
    it."""


class SymbolSource(Protocol):
    """The builder of a symbol: it receives requests for numbers, and derives quotients and remainders."""

    def request(self, symbol: "Symbol", reason: str) -> None: ...
    def hint(self, symbol: "Symbol", reason: str) -> None: ...
    def derive(self, kind: str, index: Any, divisor: int) -> Any: ...


@dataclass(eq=False)
class Symbol:
    """An integer unknown during capture: ``first``, ``first + step``, ... up to ``last`` inclusive.

    ``parents`` are the symbols a derived one (``i // 2``, ``i % 2``) comes from; its interval is exact, but does not
    depend on the values of the parents. Its ``formula`` is (index, floordiv or mod, divisor).

    The handle of a loop with a step counts iterations. So forms have the step as a factor, which shows multiples: an
    engine can start only at multiples of some partitions.
    """

    name: str
    first: int
    last: int
    key: tuple[object, ...]             # key of a request for numbers: the site of a loop, or a grid axis
    builder: SymbolSource
    value: Any = None                   # the builder's handle (SSA value)
    step: int = 1
    is_open: bool = True                # False once the loop has ended
    parents: tuple["Symbol", ...] = ()
    formula: "tuple[Affine, str, int] | None" = None

    def of_handle(self) -> tuple[int, int]:
        """Return (a, b): the symbol's value is ``a + b * handle``."""
        return (0, 1) if self.step == 1 else (self.first, self.step)

    def handle_range(self) -> tuple[int, int]:
        """Return the handle's first and last value."""
        return (self.first, self.last) if self.step == 1 else (0, (self.last - self.first) // self.step)

    def roots(self) -> list["Symbol"]:
        """Return the loop variables and program ids that the symbol is derived from, or the symbol itself."""
        return [r for p in self.parents for r in p.roots()] or [self]

    def request_number(self, reason: str) -> None:
        """Request numbers instead of this symbol, and raise ``NeedsValue``."""
        for root in self.roots():
            self.builder.request(root, reason)

    def hint(self, reason: str) -> None:
        """Note that the kernel used the symbol's text, which differs between values: if this attempt fails, numbers may
        help."""
        for root in self.roots():
            self.builder.hint(root, reason)

    def usable(self) -> bool:
        return self.is_open and all(p.usable() for p in self.parents)


NO_SYMBOLS: dict[Symbol, int] = {}


class Affine:
    """``const + sum(c * symbol) + sum(c_k * position on axis k)`` with a NumPy-like shape; immutable.

    Axes of extent 1 have coefficient 0, so that an expression can be broadcast along them as it is.
    """

    __slots__ = ("axes", "const", "shape", "symbols")
    __array_ufunc__ = None                          # np.int64(128) * index comes to __rmul__

    def __init__(self, const: int = 0, symbols: dict[Symbol, int] = NO_SYMBOLS, axes: tuple[int, ...] = (),
                 shape: tuple[int, ...] = ()) -> None:
        self.const, self.symbols, self.axes, self.shape = const, symbols, axes, shape

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for equal expressions (``==`` makes a mask)."""
        symbols = tuple([(id(s), c) for s, c in self.symbols.items()]) if self.symbols else ()
        return self.const, symbols, self.axes, self.shape

    def with_axes(self, axes: Sequence[int], shape: tuple[int, ...]) -> "Self":
        """Return the same constant and symbols over other axes."""
        return type(self)(self.const, self.symbols, tuple(c if n > 1 else 0 for c, n in zip(axes, shape)), shape)

    # -- arithmetic ----------------------------------------------------------------------------------------------------
    @overload
    def plus(self, other: "int | Affine", sign: int = 1) -> "Self": ...
    @overload
    def plus(self, other: object, sign: int = 1) -> Any: ...

    def plus(self, other: object, sign: int = 1) -> Any:
        if type(other) is int:
            return type(self)(self.const + sign * other, self.symbols, self.axes, self.shape) if other else self
        if isinstance(other, (int, np.integer, np.bool_)):
            return type(self)(self.const + sign * int(other), self.symbols, self.axes, self.shape)
        if not isinstance(other, Affine):
            return self.as_int("it is added to a float") + sign * other if is_float(other) else NotImplemented
        if self.shape == other.shape:
            shape, left, right = self.shape, self.axes, other.axes
        else:
            shape = broadcast_shape(self.shape, other.shape)
            left, right = ((0,) * (len(shape) - len(i.axes)) + i.axes for i in (self, other))
        symbols = self.symbols
        if other.symbols:
            symbols = dict(symbols)
            for symbol, c in other.symbols.items():
                symbols[symbol] = symbols.get(symbol, 0) + sign * c
            symbols = {s: c for s, c in symbols.items() if c}
        axes = tuple([a + sign * b for a, b in zip(left, right)]) if shape else ()
        return type(self)(self.const + sign * other.const, symbols, axes, shape)

    @overload
    def times(self, factor: "int | Affine") -> "Self": ...
    @overload
    def times(self, factor: object) -> Any: ...

    def times(self, factor: object) -> Any:
        if type(factor) is int:
            if factor == 1:
                return self
            symbols = {s: c * factor for s, c in self.symbols.items()} if factor else NO_SYMBOLS
            return type(self)(self.const * factor, symbols, tuple([c * factor for c in self.axes]), self.shape)
        if isinstance(factor, Affine):
            if factor.is_constant:
                return self.times(factor.const).spread(broadcast_shape(self.shape, factor.shape))
            if self.is_constant:
                return factor.times(self)
            if factor.shape and self.shape:
                raise NotAffine(what="two index tensors are multiplied")
            if factor.shape:
                return factor.times(self.as_int("it is multiplied by an index tensor"))
            factor = factor.as_int("it is multiplied by another index")
        if is_float(factor):
            return self.as_int("it is multiplied by a float") * factor
        return self.times(int(factor)) if isinstance(factor, (int, np.integer, np.bool_)) else NotImplemented

    __add__ = __radd__ = plus
    __mul__ = __rmul__ = times

    @overload
    def __sub__(self, other: "int | Affine") -> "Self": ...
    @overload
    def __sub__(self, other: object) -> Any: ...

    def __sub__(self, other: object) -> Any:
        return self.plus(other, -1)

    def __rsub__(self, other: object) -> Any:
        return self.times(-1).plus(other)

    def __neg__(self) -> "Self":
        return self.times(-1)

    def is_multiple_of(self, divisor: int) -> bool:
        """Return whether each coefficient is a multiple of ``divisor``."""
        return all(c % divisor == 0 for c in (*self.symbols.values(), *self.axes))

    def quotient(self, divisor: int) -> "Self":
        """Return the quotient by a divisor of all coefficients, with the constant rounded down."""
        symbols = {s: c // divisor for s, c in self.symbols.items()}
        return type(self)(self.const // divisor, symbols, tuple(c // divisor for c in self.axes), self.shape)

    # -- values --------------------------------------------------------------------------------------------------------
    @property
    def is_constant(self) -> bool:
        return not self.symbols and math.prod(self.shape) == 1

    def as_int(self, reason: str) -> int:
        if math.prod(self.shape) != 1:
            raise NotAffine(what=f"an index tensor of {math.prod(self.shape)} values is used as one number: {reason}")
        for symbol in self.symbols:
            symbol.request_number(reason)
        return self.const

    def __str__(self) -> str:
        """Return a text for messages. Printing an index unrolls no loop, unless the capture then fails."""
        for symbol in self.symbols:
            symbol.hint("Python converts it to text")
        terms = [f"{c}*{s.name}" if c != 1 else s.name for s, c in self.symbols.items()]
        terms += [f"{c}*axis{k}" for k, c in enumerate(self.axes) if c]
        if self.const or not terms:
            terms.append(str(self.const))
        return " + ".join(terms)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), "" if spec.endswith(tuple("bcdeEfFgGnoxX%")) else spec)

    # -- shape and extremes --------------------------------------------------------------------------------------------
    def spread(self, shape: tuple[int, ...]) -> "Self":
        """Return the same values, broadcast to ``shape``."""
        if self.shape == shape:
            return self
        return type(self)(self.const, self.symbols, (0,) * (len(shape) - len(self.shape)) + self.axes, shape)

    def scalar_part(self) -> "Self":
        """Return the expression without its axes."""
        return type(self)(self.const, self.symbols) if self.shape else self

    def interval(self) -> tuple[int, int]:
        """Return the least and the greatest value over all symbols and axes; exact if these vary independently."""
        low = high = self.const
        for s, c in self.symbols.items():
            a, b = c * s.first, c * s.last
            low, high = (low + a, high + b) if a <= b else (low + b, high + a)
        for c, n in zip(self.axes, self.shape):
            reach = c * (n - 1)
            if reach > 0:
                high += reach
            else:
                low += reach
        return low, high

    def interval_given(self, facts: Iterable["Affine"]) -> tuple[int, int]:
        """Return the interval where every fact is ``>= 0``. It is safe, but not always the tightest.

        Adding a fact m times can only raise a value, so ``self <= self + m * fact``; m is chosen so that a shared
        variable cancels.
        """
        low, high = self.interval()
        for fact in facts:
            shared = [(self.symbols.get(s, 0), c) for s, c in fact.symbols.items()]
            shared += zip(self.axes[::-1], fact.axes[::-1])
            for m in {abs(coefficient // divisor) for coefficient, divisor in shared if coefficient and divisor
                      and coefficient % divisor == 0}:
                high = min(high, (self + fact * m).interval()[1])
                low = max(low, (self - fact * m).interval()[0])
        return low, high

    def linear(self, position_of: dict[Symbol, int]) -> Linear:
        """Return the form over an operation's axes and the handles of its symbols, which ``position_of`` numbers."""
        if not self.symbols and not any(self.axes):
            return Linear(self.const)
        const, symbols = self.const, []
        for s, c in self.symbols.items():
            start, step = s.of_handle()
            const += c * start
            if c:
                symbols.append((position_of[s], c * step))
        return Linear(const, tuple(sorted(symbols)), tuple((k, c) for k, c in enumerate(self.axes) if c))


def hold_nowhere(facts: Sequence[Affine]) -> bool:
    """Return whether no values of the variables make all facts ``>= 0``. Return False if the search takes too long."""
    spans: list[Span] = []
    numbers: dict[Symbol | int, int] = {}

    def number(variable: Symbol | int, span: Span) -> int:
        if variable not in numbers:
            numbers[variable] = len(spans)
            spans.append(span)
        return numbers[variable]
    rows = []
    for fact in facts:
        terms = [(number(s, (min(s.first, s.last), max(s.first, s.last))), c) for s, c in fact.symbols.items()]
        axes = enumerate(zip(fact.axes[::-1], fact.shape[::-1]))
        terms += [(number(axis, (0, n - 1)), c) for axis, (c, n) in axes if c]
        rows.append(Row(fact.const, tuple(sorted(terms))))
    try:
        return solution(tuple(spans), tuple(rows)) is None
    except SearchTooLong:
        return False


A = TypeVar("A", bound=Affine)


class IndexChange(Protocol):
    """A function that maps expressions over some axes to expressions over others."""

    def __call__(self, index: A, /) -> A: ...


def is_float(value: object) -> TypeGuard[float]:
    return isinstance(value, (float, np.floating))


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise IndexShapes(first=a, second=b) from None


def shares_variable(a: Affine, b: Affine) -> bool:
    return not a.symbols.keys().isdisjoint(b.symbols) or any(x and y for x, y in zip(a.axes[::-1], b.axes[::-1]))
