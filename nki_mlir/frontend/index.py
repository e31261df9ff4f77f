# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Symbolic integers: affine expressions over loop variables and index axes, and masks made of them.

``Index`` is ``const + sum(c * symbol) + sum(c_k * position on axis k)`` with a NumPy-like shape. Loop variables,
program ids, ``arange``, ``mgrid`` and slices all become this one form; subscripts, bounds and strides are then sums.
"""

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.frontend.errors import (
    ArangeInCondition,
    AssignToIndex,
    NotAffine,
    OneDimensionalArange,
    UnsupportedMask,
)


class NeedsValue(BaseException):
    """Python asked for the number behind a symbol. Recorded before it is raised: user code may swallow it."""


@dataclass(eq=False)
class Symbol:
    """An integer unknown during capture: ``first``, ``first + step``, ... up to ``last`` inclusive.

    ``parents`` are the symbols a derived one (``i // 2``, ``i % 2``) comes from; its interval is exact for itself but
    not together with theirs.
    """

    name: str
    first: int
    last: int
    key: tuple                                      # what to capture again with numbers: a loop's place, a grid axis
    request: Callable[["Symbol", str], None]        # records the wish in the builder, then raises NeedsValue
    derive: Callable[[str, "Index", int], "Index"]  # floordiv or mod by a constant as a new symbol
    value: Any = None                               # the builder's handle (SSA value)
    is_open: bool = True                            # False once the loop has ended
    parents: tuple["Symbol", ...] = ()

    def ask(self, why: str) -> None:
        for symbol in self.parents or (self,):
            symbol.ask(why) if self.parents else symbol.request(symbol, why)

    def usable(self) -> bool:
        return self.is_open and all(p.usable() for p in self.parents)


@dataclass(frozen=True, eq=False, slots=True)
class Index:
    """An affine integer expression; immutable. Comparisons make a ``Mask``."""

    const: int = 0
    symbols: dict[Symbol, int] = field(default_factory=dict)
    axes: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()

    __array_ufunc__ = None                          # np.int64(128) * index comes to __rmul__

    @staticmethod
    def of(value: Any) -> "Index":
        return value if isinstance(value, Index) else Index(operator.index(value))

    @property
    def key(self) -> tuple:
        """Equal keys mean equal expressions (``==`` makes a mask)."""
        return self.const, tuple((id(s), c) for s, c in self.symbols.items()), self.axes, self.shape

    # -- arithmetic ----------------------------------------------------------------------------------------------------
    def plus(self, other: Any, sign: int = 1) -> "Index":
        if isinstance(other, (int, np.integer)):
            return Index(self.const + sign * int(other), self.symbols, self.axes, self.shape)
        if not isinstance(other, Index):
            return NotImplemented
        if self.shape == other.shape:
            shape, left, right = self.shape, self.axes, other.axes
        else:
            shape = np.broadcast_shapes(self.shape, other.shape)
            left, right = ((0,) * (len(shape) - len(i.axes)) + i.axes for i in (self, other))
        symbols = self.symbols
        if other.symbols:
            symbols = dict(symbols)
            for symbol, c in other.symbols.items():
                symbols[symbol] = symbols.get(symbol, 0) + sign * c
            symbols = {s: c for s, c in symbols.items() if c}
        return Index(self.const + sign * other.const, symbols, tuple(a + sign * b for a, b in zip(left, right)), shape)

    def times(self, factor: Any) -> "Index":
        if isinstance(factor, Index):
            if factor.is_constant:
                factor = factor.const
            elif self.is_constant:
                return factor.times(self.const)
            elif factor.shape and self.shape:
                raise NotAffine(what="two index tensors are multiplied")
            elif factor.shape:
                return factor.times(self.as_int("it is multiplied by an index tensor"))
            else:
                factor = factor.as_int("it is multiplied by another index")
        if not isinstance(factor, (int, np.integer)):
            return NotImplemented
        f = int(factor)
        symbols = {s: c * f for s, c in self.symbols.items()} if f else {}
        return Index(self.const * f, symbols, tuple(c * f for c in self.axes), self.shape)

    __add__ = __radd__ = plus
    __mul__ = __rmul__ = times

    def __sub__(self, other: Any) -> "Index":
        return self.plus(other, -1)

    def __rsub__(self, other: Any) -> "Index":
        return self.times(-1).plus(other)

    def __neg__(self) -> "Index":
        return self.times(-1)

    def __pos__(self) -> "Index":
        return self

    def __floordiv__(self, by: Any) -> "Index":
        return self._divided(by, "floordiv")

    def __mod__(self, by: Any) -> "Index":
        return self._divided(by, "mod")

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self.as_int("it is a divisor")

    def __rmod__(self, other: Any) -> Any:
        return other % self.as_int("it is a divisor")

    def __pow__(self, exponent: Any) -> Any:
        return self.as_int("it is raised to a power") ** exponent

    def __truediv__(self, by: Any) -> Any:
        return self.as_int("it is divided as a float") / by

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.as_int("it is a divisor")

    def __divmod__(self, by: Any) -> tuple["Index", "Index"]:
        return self // by, self % by

    def _divided(self, by: Any, kind: str) -> "Index":
        """Exact when every coefficient is a multiple of ``by``; a loop variable gives a derived symbol."""
        by = by.as_int("it is a divisor") if isinstance(by, Index) else operator.index(by)
        if all(c % by == 0 for c in (*self.symbols.values(), *self.axes)):
            if kind == "mod":
                return Index(self.const % by, {}, (0,) * len(self.axes), self.shape)
            symbols = {s: c // by for s, c in self.symbols.items()}
            return Index(self.const // by, symbols, tuple(c // by for c in self.axes), self.shape)
        if any(self.axes):
            raise NotAffine(what=f"an index tensor is taken {'modulo' if kind == 'mod' else 'divided by'} {by}")
        low, high = self.interval()
        if low // by == high // by:                 # one quotient for all values
            return Index(low // by) if kind == "floordiv" else self - by * (low // by)
        if by <= 0:
            return Index(self.as_int("it is divided by a negative number")).__floordiv__(by)
        (first, *_) = self.symbols
        return first.derive(kind, self, by)

    # -- places where Python wants a number ----------------------------------------------------------------------------
    @property
    def is_constant(self) -> bool:
        return not self.symbols and math.prod(self.shape) == 1

    def as_int(self, why: str) -> int:
        if math.prod(self.shape) != 1:
            raise ArangeInCondition(size=math.prod(self.shape))
        for symbol in self.symbols:
            symbol.ask(why)
        return self.const

    def __index__(self) -> int:
        return self.as_int("it is used as a Python integer")

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.as_int("it is used as a Python float"))

    def __bool__(self) -> bool:
        return bool(self.as_int("Python asks for its truth"))

    def __hash__(self) -> int:
        return hash(self.as_int("it is a dictionary key or set member"))

    def __format__(self, spec: str) -> str:         # messages may show it; nothing is unrolled for a print
        terms = [f"{c}*{s.name}" if c != 1 else s.name for s, c in self.symbols.items()]
        terms += [f"{c}*axis{k}" for k, c in enumerate(self.axes) if c]
        if self.const or not terms:
            terms.append(str(self.const))
        return format(" + ".join(terms), "" if spec.endswith(("d", "f", "x")) else spec)

    def __str__(self) -> str:
        return format(self)

    __repr__ = __str__

    def __setitem__(self, subscript: Any, value: Any) -> None:
        raise AssignToIndex

    # -- comparisons make masks ----------------------------------------------------------------------------------------
    def __ge__(self, other: Any) -> "Mask":
        return Mask(((self - other, False),))

    def __gt__(self, other: Any) -> "Mask":
        return Mask(((self - other - 1, False),))

    def __le__(self, other: Any) -> "Mask":
        return Mask(((other - self, False),))

    def __lt__(self, other: Any) -> "Mask":
        return Mask(((other - self - 1, False),))

    def __eq__(self, other: Any) -> Any:
        return Mask(((self - other, True),)) if isinstance(other, (int, np.integer, Index)) else NotImplemented

    def __ne__(self, other: Any) -> Any:
        return ~(self == other) if isinstance(other, (int, np.integer, Index)) else NotImplemented

    # -- shape ---------------------------------------------------------------------------------------------------------
    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, subscript: Any) -> "Index":
        """``[:, None]`` places the axes; an integer picks along one."""
        items = subscript if isinstance(subscript, tuple) else (subscript,)
        if Ellipsis in [i for i in items if not isinstance(i, Index)]:
            at = next(k for k, i in enumerate(items) if i is Ellipsis)
            given = sum(i is not None and i is not Ellipsis for i in items)
            items = (*items[:at], *[slice(None)] * (len(self.shape) - given), *items[at + 1:])
        const, axes, shape, left = self.const, [], [], iter(zip(self.axes, self.shape))
        for item in items:
            if item is None:
                axes.append(0)
                shape.append(1)
                continue
            coefficient, extent = next(left)
            if isinstance(item, slice):
                span = range(*item.indices(extent))
                const += coefficient * (span.start if len(span) else 0)
                axes.append(coefficient * span.step)
                shape.append(len(span))
            else:
                const += coefficient * operator.index(item)
        for coefficient, extent in left:
            axes.append(coefficient)
            shape.append(extent)
        return Index(const, self.symbols, tuple(axes), tuple(shape))

    def reshape(self, *shape: Any) -> "Index":
        """Insert or drop axes of extent 1."""
        wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else tuple(shape)
        kept = [(c, n) for c, n in zip(self.axes, self.shape) if n != 1]
        if [n for n in wanted if n != 1] != [n for _, n in kept]:
            raise NotAffine(what=f"an index tensor of shape {self.shape} is reshaped to {wanted}")
        coefficients = iter(c for c, _ in kept)
        return Index(self.const, self.symbols, tuple(0 if n == 1 else next(coefficients) for n in wanted), wanted)

    def spread(self, shape: tuple[int, ...]) -> "Index":
        """The same values, broadcast to ``shape``."""
        if self.shape == shape:
            return self
        return Index(self.const, self.symbols, (0,) * (len(shape) - len(self.shape)) + self.axes, shape)

    def scalar_part(self) -> "Index":
        """Without its axes."""
        return Index(self.const, self.symbols) if self.shape else self

    def interval(self) -> tuple[int, int]:
        """Least and greatest value over all symbols and axes; exact where they vary independently."""
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

    def interval_given(self, facts: Iterable["Index"]) -> tuple[int, int]:
        """The interval where every fact is ``>= 0``. Adding such a fact m times can only raise a value, so
        ``self <= self + m * fact``; m is chosen so that a shared variable cancels. Safe, not always the tightest.
        """
        low, high = self.interval()
        for fact in facts:
            shared = [(self.symbols.get(s, 0), c) for s, c in fact.symbols.items()]
            shared += zip(self.axes[::-1], fact.axes[::-1])
            for m in {abs(mine // its) for mine, its in shared if mine and its and mine % its == 0}:
                high = min(high, (self + fact * m).interval()[1])
                low = max(low, (self - fact * m).interval()[0])
        return low, high

    def linear(self, place: dict[Symbol, int]) -> Linear:
        """The form over an operation's symbol positions and axes."""
        if not self.symbols and not any(self.axes):
            return Linear(self.const)
        symbols = tuple(sorted((place[s], c) for s, c in self.symbols.items() if c))
        return Linear(self.const, symbols, tuple((k, c) for k, c in enumerate(self.axes) if c))


@dataclass(frozen=True, eq=False)
class Mask:
    """A conjunction of ``expression >= 0`` (or ``== 0`` where the flag is set), or the negation of one."""

    terms: tuple[tuple[Index, bool], ...]
    negated: bool = False

    __hash__ = None                                 # type: ignore[assignment]
    __array_ufunc__ = None

    def __and__(self, other: Any) -> Any:
        if other is True or other is None:
            return self
        if other is False:
            return False
        if isinstance(other, (bool, np.bool_)):
            return self & bool(other)
        if not isinstance(other, Mask) or other.negated or self.negated:
            raise UnsupportedMask(what="only plain comparisons of indices can be joined by &")
        return Mask(self.terms + other.terms)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        if isinstance(other, (bool, np.bool_)):
            return True if other else self
        left, right = ~self, ~other
        if not (isinstance(left, Mask) and isinstance(right, Mask)) or left.negated or right.negated:
            raise UnsupportedMask(what="| joins two single comparisons")
        return Mask(left.terms + right.terms, negated=True)

    __ror__ = __or__

    def __invert__(self) -> "Mask":
        if len(self.terms) == 1 and not self.terms[0][1]:
            return Mask(((-self.terms[0][0] - 1, False),), self.negated)
        return Mask(self.terms, not self.negated)

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*(e.shape for e, _ in self.terms))

    @property
    def facts(self) -> tuple[Index, ...]:
        """What holds where the mask is true, as expressions that are ``>= 0``."""
        if self.negated:
            return ()
        return tuple(f for e, equal in self.terms for f in ((e, -e) if equal else (e,)))

    def known(self) -> bool | None:
        """Its truth when that is the same for all values of its symbols and axes, else None."""
        ends = [(*e.interval(), equal) for e, equal in self.terms]
        if all(low == high == 0 if equal else low >= 0 for low, high, equal in ends):
            return not self.negated
        if any(high < 0 or (equal and low > 0) for low, high, equal in ends):
            return self.negated
        return None

    def __bool__(self) -> bool:
        if math.prod(self.shape) != 1:
            raise ArangeInCondition(size=math.prod(self.shape))
        truth = self.known()
        if truth is None:
            for expression, _ in self.terms:
                expression.as_int("Python asks for the truth of a comparison")
            # Constants remain: an equality or inequality of numbers.
            truth = all(e.const == 0 if equal else e.const >= 0 for e, equal in self.terms) != self.negated
        return truth

    def constraints(self, shape: tuple[int, ...], place: dict[Symbol, int]) -> tuple[Constraint, ...]:
        """For an operation whose iteration space has ``shape``."""
        if len(self.shape) > len(shape):
            raise UnsupportedMask(what=f"the mask has shape {self.shape}, the operation's tiles {shape}")
        return tuple(Constraint(e.spread(shape).linear(place), equal) for e, equal in self.terms)


# -- what kernels write ------------------------------------------------------------------------------------------------
def arange(*bounds: Any) -> Index:
    """``arange(n)`` or ``arange(start, stop)``: one axis; place it with ``[:, None]``."""
    if len(bounds) == 1:
        start, stop = Index(), bounds[0]
    else:
        start, stop = Index.of(bounds[0]), bounds[1]
    if len(bounds) > 2:
        raise NotAffine(what="nl.arange takes no step; multiply the index instead")
    extent = (Index.of(stop) - start).as_int("the extent of nl.arange depends on it")
    return Index(start.const, start.symbols, (1,), (extent,))


class MGridResult(tuple):
    """The indices of ``mgrid``, by position or as ``.p`` (partition), ``.x``, ``.y``, ``.z``, ``.w`` (free)."""

    p, x, y, z, w = (property(operator.itemgetter(k)) for k in range(5))


class _MGrid:
    def __getitem__(self, slices: Any) -> MGridResult:
        slices = slices if isinstance(slices, tuple) else (slices,)
        rank, made = len(slices), []
        for k, s in enumerate(slices):
            start = Index.of(s.start or 0) if not isinstance(s.start, Index) else s.start
            step = s.step or 1
            length = (Index.of(s.stop) - start).as_int("the extent of nl.mgrid depends on it")
            count = max(0, -(-length // step))
            axes = tuple(step if a == k else 0 for a in range(rank))
            made.append(Index(start.const, start.symbols, axes, tuple(count if a == k else 1 for a in range(rank))))
        return MGridResult(made)


mgrid = _MGrid()


@dataclass(frozen=True)
class DynamicSlice:
    """``ds(start, size)``: a slice whose start may be symbolic; ``size`` elements."""

    start: Any
    size: int


def ds(start: Any, size: Any) -> DynamicSlice:
    return DynamicSlice(start, operator.index(size))


def check_placed(index: Index) -> None:
    """Index tensors that subscript a tensor have two dimensions at least."""
    if len(index.shape) == 1:
        raise OneDimensionalArange
