# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers that are unknown during capture, and affine expressions over them and over index axes.

A ``Symbol`` is a loop variable, a program id, or a quotient or remainder of such.
``Index`` is ``const + sum(c * symbol) + sum(c_k * position on axis k)`` with a NumPy-like shape. Loop variables,
program ids, ``arange``, ``mgrid`` and slices all become this one form; subscripts, bounds and strides are then sums.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, overload

import numpy as np

from nki_mlir.capture.errors import (
    ArangeInCondition,
    AssignToIndex,
    IndexShapes,
    NotAffine,
    OneDimensionalArange,
    UnsupportedMask,
)
from nki_mlir.capture.mask import Mask as Mask
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import Linear

if TYPE_CHECKING:
    from nki_mlir.capture.mlir_builder import MlirBuilder


class NeedsValue(BaseException):
    """Python asked for the number behind a symbol. Recorded before it is raised: user code may swallow it."""


@dataclass(eq=False)
class Symbol:
    """An integer unknown during capture: ``first``, ``first + step``, ... up to ``last`` inclusive.

    ``parents`` are the symbols a derived one (``i // 2``, ``i % 2``) comes from; its interval is exact for itself but
    not together with theirs. ``formula`` is then (index, floordiv or mod, number).
    """

    name: str
    first: int
    last: int
    key: tuple[object, ...]             # what to capture again with numbers: a loop's place, a grid axis
    builder: "MlirBuilder"
    value: Any = None                   # the builder's handle (SSA value)
    step: int = 1
    is_open: bool = True                # False once the loop has ended
    parents: tuple["Symbol", ...] = ()
    formula: "tuple[Index, str, int] | None" = None

    def roots(self) -> list["Symbol"]:
        """The loop variables and program ids it comes from."""
        return [r for p in self.parents for r in p.roots()] or [self]

    def ask(self, why: str) -> None:
        """Request numbers in place of this symbol; raises ``NeedsValue``."""
        for root in self.roots():
            self.builder.request(root, why)

    def hint(self, why: str) -> None:
        """Should this attempt fail, numbers may help: its text was used, which is another one for each value."""
        for root in self.roots():
            self.builder.hint(root, why)

    def usable(self) -> bool:
        return self.is_open and all(p.usable() for p in self.parents)


NO_SYMBOLS: dict[Symbol, int] = {}


class Index:
    """An affine integer expression; immutable. Comparisons make a ``Mask``.

    Axes of extent 1 have coefficient 0, so that an expression can be broadcast along them as it is.
    """

    __slots__ = ("axes", "const", "shape", "symbols")
    __array_ufunc__ = None                          # np.int64(128) * index comes to __rmul__

    def __init__(self, const: int = 0, symbols: dict[Symbol, int] = NO_SYMBOLS, axes: tuple[int, ...] = (),
                 shape: tuple[int, ...] = ()) -> None:
        self.const, self.symbols, self.axes, self.shape = const, symbols, axes, shape

    @staticmethod
    def of(value: Any) -> "Index":
        if isinstance(value, Index):
            return value
        try:
            return Index(operator.index(value))
        except KernelError:
            raise
        except TypeError:
            raise NotAffine(what=f"{value!r} is no index") from None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal keys mean equal expressions (``==`` makes a mask)."""
        symbols = tuple([(id(s), c) for s, c in self.symbols.items()]) if self.symbols else ()
        return self.const, symbols, self.axes, self.shape

    def with_axes(self, axes: Sequence[int], shape: tuple[int, ...]) -> "Index":
        """The same constant and symbols over other axes."""
        return Index(self.const, self.symbols, tuple(c if n > 1 else 0 for c, n in zip(axes, shape)), shape)

    # -- arithmetic ----------------------------------------------------------------------------------------------------
    @overload
    def plus(self, other: "int | Index", sign: int = 1) -> "Index": ...
    @overload
    def plus(self, other: object, sign: int = 1) -> Any: ...

    def plus(self, other: object, sign: int = 1) -> Any:
        if type(other) is int:
            return Index(self.const + sign * other, self.symbols, self.axes, self.shape) if other else self
        if isinstance(other, (int, np.integer, np.bool_)):
            return Index(self.const + sign * int(other), self.symbols, self.axes, self.shape)
        if not isinstance(other, Index):
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
        return Index(self.const + sign * other.const, symbols, axes, shape)

    @overload
    def times(self, factor: "int | Index") -> "Index": ...
    @overload
    def times(self, factor: object) -> Any: ...

    def times(self, factor: object) -> Any:
        if type(factor) is int:
            if factor == 1:
                return self
            symbols = {s: c * factor for s, c in self.symbols.items()} if factor else NO_SYMBOLS
            return Index(self.const * factor, symbols, tuple([c * factor for c in self.axes]), self.shape)
        if isinstance(factor, Index):
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
    def __sub__(self, other: "int | Index") -> "Index": ...
    @overload
    def __sub__(self, other: object) -> Any: ...

    def __sub__(self, other: object) -> Any:
        return self.plus(other, -1)

    def __rsub__(self, other: object) -> Any:
        return self.times(-1).plus(other)

    def __neg__(self) -> "Index":
        return self.times(-1)

    def __pos__(self) -> "Index":
        return self

    def __invert__(self) -> "Index":
        return -self - 1

    def __floordiv__(self, by: object) -> Any:
        return self._divided(by, "floordiv")

    def __mod__(self, by: object) -> Any:
        return self._divided(by, "mod")

    def __divmod__(self, by: object) -> tuple[object, object]:
        return self // by, self % by

    def __lshift__(self, bits: int) -> object:
        return self * 2 ** operator.index(bits)

    def __rshift__(self, bits: int) -> object:
        return self // 2 ** operator.index(bits)

    def __and__(self, other: int) -> object:
        if isinstance(other, (int, np.integer)) and other >= 0 and other & (other + 1) == 0:
            return self % (int(other) + 1)
        return self.as_int("it is an operand of &") & other

    def _divided(self, by: object, kind: str) -> Any:
        """Exact when every coefficient is a multiple of ``by``; a loop variable gives a derived symbol."""
        if is_float(by):
            return getattr(operator, kind)(self.as_int("it is divided by a float"), by)
        if not isinstance(by, (int, np.integer, Index)):
            return NotImplemented
        by = by.as_int("it is a divisor") if isinstance(by, Index) else int(by)
        if by == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        if all(c % by == 0 for c in (*self.symbols.values(), *self.axes)):
            if kind == "mod":
                return Index(self.const % by, NO_SYMBOLS, (0,) * len(self.axes), self.shape)
            symbols = {s: c // by for s, c in self.symbols.items()}
            return Index(self.const // by, symbols, tuple(c // by for c in self.axes), self.shape)
        low, high = self.interval()
        if low // by == high // by:                 # one quotient for all values
            quotient = low // by
            return Index(quotient).spread(self.shape) if kind == "floordiv" else self - by * quotient
        if any(self.axes):
            return NotAnIndex(f"an index tensor is taken {'modulo' if kind == 'mod' else 'divided by'} {by}")
        if by < 0:
            return getattr(operator, kind)(self.as_int("it is divided by a negative number"), by)
        (first, *_) = self.symbols
        return first.builder.derive(kind, self.scalar_part(), by).spread(self.shape)

    # -- places where Python wants a number ----------------------------------------------------------------------------
    @property
    def is_constant(self) -> bool:
        return not self.symbols and math.prod(self.shape) == 1

    def as_int(self, why: str) -> int:
        if math.prod(self.shape) != 1:
            raise NotAffine(what=f"an index tensor of {math.prod(self.shape)} values is used as one number: {why}")
        for symbol in self.symbols:
            symbol.ask(why)
        return self.const

    def __index__(self) -> int:
        return self.as_int("it is used as a Python integer")

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.as_int("it is used as a Python float"))

    def __bool__(self) -> bool:
        if math.prod(self.shape) != 1:
            raise ArangeInCondition(size=math.prod(self.shape))
        return bool(self.as_int("Python asks for its truth"))

    def __hash__(self) -> int:
        return hash(self.as_int("it is a dictionary key or set member"))

    def __str__(self) -> str:
        """Messages may show it: nothing is unrolled for a print, unless the capture then fails."""
        for symbol in self.symbols:
            symbol.hint("its text was used")
        terms = [f"{c}*{s.name}" if c != 1 else s.name for s, c in self.symbols.items()]
        terms += [f"{c}*axis{k}" for k, c in enumerate(self.axes) if c]
        if self.const or not terms:
            terms.append(str(self.const))
        return " + ".join(terms)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), "" if spec.endswith(tuple("bcdeEfFgGnoxX%")) else spec)

    def __setitem__(self, subscript: object, value: object) -> None:
        raise AssignToIndex

    # -- comparisons make masks ----------------------------------------------------------------------------------------
    def __ge__(self, other: object) -> Mask | bool:
        return _at_least_zero(self, other, math.ceil, 0)

    def __gt__(self, other: object) -> Mask | bool:
        return _at_least_zero(self, other, math.floor, 1)

    def __le__(self, other: object) -> Mask | bool:
        return _at_least_zero(-self, other, math.floor, 0, -1)

    def __lt__(self, other: object) -> Mask | bool:
        return _at_least_zero(-self, other, math.ceil, 1, -1)

    def __eq__(self, other: object) -> Any:
        if is_float(other):
            return float(other).is_integer() and self == int(other)
        return Mask(((self - other, True),)) if is_integer(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        equal = self == other
        return ~equal if isinstance(equal, Mask) else equal if equal is NotImplemented else not equal

    # -- shape ---------------------------------------------------------------------------------------------------------
    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, subscript: object) -> "Index":
        """``[:, None]`` places the axes; an integer picks along one."""
        items = subscript if isinstance(subscript, tuple) else (subscript,)
        at = next((k for k, i in enumerate(items) if i is Ellipsis), None)
        if at is not None:
            indexed = sum(i is not None and i is not Ellipsis for i in items)
            items = (*items[:at], *[slice(None)] * (len(self.shape) - indexed), *items[at + 1:])
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
                at = operator.index(item)
                const += coefficient * (at + extent if at < 0 else at)
        for coefficient, extent in left:
            axes.append(coefficient)
            shape.append(extent)
        return Index(const, self.symbols).with_axes(axes, tuple(shape))

    def reshape(self, *shape: Any) -> "Index":
        """Insert or drop axes of extent 1."""
        new_shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else tuple(shape)
        moving = [(c, n) for c, n in zip(self.axes, self.shape) if n != 1]
        if [n for n in new_shape if n != 1] != [n for _, n in moving]:
            raise NotAffine(what=f"an index tensor of shape {self.shape} is reshaped to {new_shape}")
        coefficients = iter(c for c, _ in moving)
        return Index(self.const, self.symbols, tuple(0 if n == 1 else next(coefficients) for n in new_shape), new_shape)

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


class NotAnIndex:
    """What is no affine index any more (an index tensor modulo a number): each use says so, by the name it deserves."""

    __array_ufunc__ = None
    __hash__ = None                                 # type: ignore[assignment]

    def __init__(self, what: str) -> None:
        self.what = what

    def __index__(self) -> int:
        raise NotAffine(what=self.what)

    def _same(self, *others: object) -> "NotAnIndex":
        return self

    def _mask(self, other: object) -> NoReturn:
        raise UnsupportedMask(what=self.what)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __neg__ = _same
    __getitem__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _mask


def _by_value(name: str) -> Callable[..., object]:
    """An operator that Python applies to the number, with the number on either side."""
    def operate(self: Index, *others: object) -> object:
        return getattr(self.as_int("it is an operand of " + name.strip("_")), name)(*others)
    return operate


for _name in ("pow", "truediv", "or", "xor", "rpow", "rtruediv", "rfloordiv", "rmod", "rdivmod", "ror", "rxor",
              "rlshift", "rrshift", "rand", "abs", "round", "trunc", "floor", "ceil", "complex"):
    setattr(Index, f"__{_name}__", _by_value(f"__{_name}__"))


def is_float(value: object) -> TypeGuard[float]:
    return isinstance(value, (float, np.floating))


def is_integer(value: object) -> TypeGuard[int | Index]:
    return isinstance(value, (int, np.integer, np.bool_, Index))


def _at_least_zero(index: Index, other: object, rounded: Callable[[float], int], more: int, sign: int = 1
                   ) -> Mask | bool:
    """``index - sign * other - more >= 0``; a float bound of integers is an integer, too."""
    if is_float(other):
        if not math.isfinite(other):                # the same answer for every integer
            return 0 > sign * other
        other = rounded(other)
    return Mask(((index.plus(other, -sign) - more, False),)) if is_integer(other) else NotImplemented


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise IndexShapes(first=a, second=b) from None


def check_placed(index: Index) -> None:
    """Index tensors that subscript a tensor have two dimensions at least."""
    if len(index.shape) == 1:
        raise OneDimensionalArange


# -- what kernels make indices with ------------------------------------------------------------------------------------
def arange(*bounds: object) -> Index:
    """``arange(n)`` or ``arange(start, stop)``: one axis; place it with ``[:, None]``."""
    if not bounds:
        raise NotAffine(what="nl.arange is called without bounds; give it stop, or start and stop")
    if len(bounds) > 2:
        raise NotAffine(what="nl.arange takes no step; multiply the index instead")
    start, stop = (Index(), bounds[0]) if len(bounds) == 1 else (Index.of(bounds[0]), bounds[1])
    extent = (Index.of(stop) - start).as_int("the extent of nl.arange depends on it")
    return start.with_axes((1,), (extent,))


class MGridResult(tuple[object, ...]):
    """The indices of ``mgrid``, by position or as ``.p`` (partition), ``.x``, ``.y``, ``.z``, ``.w`` (free)."""

    p, x, y, z, w = (property(operator.itemgetter(k)) for k in range(5))


class _MGrid:
    def __getitem__(self, slices: tuple[slice, ...]) -> MGridResult:
        slices = slices if isinstance(slices, tuple) else (slices,)
        rank, ranges = len(slices), []
        for k, s in enumerate(slices):
            start, step = Index.of(s.start or 0) if not isinstance(s.start, Index) else s.start, s.step or 1
            length = (Index.of(s.stop) - start).as_int("the extent of nl.mgrid depends on it")
            count = max(0, -(-length // step))
            ranges.append(start.with_axes(tuple(step if a == k else 0 for a in range(rank)),
                                        tuple(count if a == k else 1 for a in range(rank))))
        return MGridResult(ranges)


mgrid = _MGrid()


@dataclass(frozen=True)
class DynamicSlice:
    """``ds(start, size)``: a slice whose start may be symbolic; ``size`` elements."""

    start: object
    size: int


def ds(start: Index | int, size: int) -> DynamicSlice:
    """The slice ``start : start + size``, whose start may be symbolic."""
    return DynamicSlice(start, operator.index(size))
