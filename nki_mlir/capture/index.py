# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The indices of kernels: loop variables, program ids, ``arange``, ``mgrid`` and slices.

All indices become affine expressions (``affine.py``), so that subscripts, bounds and strides are sums.
"""

import math
import operator
import reprlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

import numpy as np

from nki_mlir.capture import errors
from nki_mlir.capture.affine import NO_SYMBOLS, Affine, is_float
from nki_mlir.capture.affine import NeedsValue as NeedsValue
from nki_mlir.capture.affine import Symbol as Symbol
from nki_mlir.capture.affine import broadcast_shape as broadcast_shape
from nki_mlir.capture.mask import Mask as Mask
from nki_mlir.diagnostics import KernelError


class Index(Affine):
    """An affine expression with the operators of Python, for kernels. Comparisons return a ``Mask``."""

    __slots__ = ()

    @staticmethod
    def of(value: Any) -> "Index":
        if isinstance(value, Index):
            return value
        try:
            return Index(operator.index(value))
        except KernelError:
            raise
        except TypeError:
            raise errors.WrongIndexType(value=value) from None

    # -- arithmetic ----------------------------------------------------------------------------------------------------
    def __pos__(self) -> "Index":
        return self

    def __invert__(self) -> "Index":
        return -self - 1

    def __floordiv__(self, divisor: object) -> Any:
        return self._divided(divisor, "floordiv")

    def __mod__(self, divisor: object) -> Any:
        return self._divided(divisor, "mod")

    def __divmod__(self, divisor: object) -> tuple[object, object]:
        return self // divisor, self % divisor

    def __lshift__(self, bits: int) -> object:
        return self * 2 ** operator.index(bits)

    def __rshift__(self, bits: int) -> object:
        return self // 2 ** operator.index(bits)

    def __and__(self, other: int) -> object:
        if isinstance(other, (int, np.integer)) and other >= 0 and other & (other + 1) == 0:
            return self % (int(other) + 1)
        return self.as_int("it is an operand of &") & other

    def _divided(self, divisor: object, kind: str) -> Any:
        """Return the quotient or remainder by a number: a linear form if ``divisor`` divides every coefficient or all
        values have the same quotient, else a symbol derived from the loop variable."""
        if is_float(divisor):
            return getattr(operator, kind)(self.as_int("it is divided by a float"), divisor)
        if not isinstance(divisor, (int, np.integer, Index)):
            return NotImplemented
        divisor = divisor.as_int("it is a divisor") if isinstance(divisor, Index) else int(divisor)
        if divisor == 0:
            raise errors.DividedByZero(what="an index", operation="taken modulo" if kind == "mod" else "divided by",
                                       by="0").here()
        if self.is_multiple_of(divisor):
            if kind == "mod":
                return Index(self.const % divisor, NO_SYMBOLS, (0,) * len(self.axes), self.shape)
            return self.quotient(divisor)
        low, high = self.interval()
        if low // divisor == high // divisor:       # all values have the same quotient
            quotient = low // divisor
            return Index(quotient).spread(self.shape) if kind == "floordiv" else self - divisor * quotient
        if any(self.axes):
            return NotAnIndex(f"an index tensor is taken {'modulo' if kind == 'mod' else 'divided by'} {divisor}")
        if divisor < 0:
            return getattr(operator, kind)(self.as_int("it is divided by a negative number"), divisor)
        (symbol, *_) = self.symbols
        return symbol.builder.derive(kind, self.scalar_part(), divisor).spread(self.shape)

    # -- where Python needs a number -----------------------------------------------------------------------------------
    def __index__(self) -> int:
        return self.as_int("it is used as a Python integer")

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.as_int("it is used as a Python float"))

    def __bool__(self) -> bool:
        if math.prod(self.shape) != 1:
            raise errors.ArangeInCondition(size=math.prod(self.shape))
        return bool(self.as_int("Python needs its truth value"))

    def __hash__(self) -> int:
        return hash(self.as_int("it is a dictionary key or set member"))

    def __setitem__(self, subscript: object, value: object) -> None:
        raise errors.AssignToIndex

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
        """Return the index with other axes: ``None`` inserts one, an integer selects a position along one."""
        items = subscript if isinstance(subscript, tuple) else (subscript,)
        at = next((k for k, i in enumerate(items) if i is Ellipsis), None)
        if at is not None:
            indexed = sum(i is not None and i is not Ellipsis for i in items)
            items = (*items[:at], *[slice(None)] * (len(self.shape) - indexed), *items[at + 1:])
        if (count := sum(item is not None for item in items)) > self.ndim:
            raise errors.TooManySubscripts(given=count, rank=self.ndim).here()
        const, axes, shape, remaining = self.const, [], [], iter(zip(self.axes, self.shape))
        for item in items:
            if item is None:
                axes.append(0)
                shape.append(1)
                continue
            coefficient, extent = next(remaining)
            if isinstance(item, slice):
                span = range(*item.indices(extent))
                const += coefficient * (span.start if len(span) else 0)
                axes.append(coefficient * span.step)
                shape.append(len(span))
            else:
                at = operator.index(item)
                if not -extent <= at < extent:
                    raise errors.BeyondIndex(at=at, extent=extent).here()
                const += coefficient * (at + extent if at < 0 else at)
        for coefficient, extent in remaining:
            axes.append(coefficient)
            shape.append(extent)
        return Index(const, self.symbols).with_axes(axes, tuple(shape))

    def __iter__(self) -> Iterator["Index"]:
        if not self.shape:
            raise errors.IteratedIndex().here()
        return (self[k] for k in range(self.shape[0]))

    def reshape(self, *shape: Any) -> "Index":
        """Insert or drop axes of extent 1."""
        new_shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else tuple(shape)
        moving = [(c, n) for c, n in zip(self.axes, self.shape) if n != 1]
        if [n for n in new_shape if n != 1] != [n for _, n in moving]:
            raise errors.NotAffine(what=f"an index tensor of shape {self.shape} is reshaped to {new_shape}")
        coefficients = iter(c for c, _ in moving)
        return Index(self.const, self.symbols, tuple(0 if n == 1 else next(coefficients) for n in new_shape), new_shape)

class NotAnIndex:
    """A result that is not affine (an index tensor modulo a number). Each use raises the error that fits it."""

    __array_ufunc__ = None
    __hash__ = None                                 # type: ignore[assignment]

    def __init__(self, description: str) -> None:
        self.description = description

    def __index__(self) -> int:
        raise errors.NotAffine(what=self.description)

    def __iter__(self) -> NoReturn:
        raise errors.NotAffine(what=self.description).here()

    def _same(self, *operands: object) -> "NotAnIndex":
        return self

    def _mask(self, other: object) -> NoReturn:
        raise errors.UnsupportedMask(what=self.description)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __neg__ = _same
    __getitem__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _mask


def _by_value(name: str) -> Callable[..., object]:
    """Return a method for an operator that Python applies to the index's number, as left or right operand."""
    def operate(self: Index, *operands: object) -> object:
        number = self.as_int("it is an operand of " + name.strip("_"))
        try:
            return getattr(number, name)(*operands)
        except ZeroDivisionError:
            operation = "taken modulo" if name == "__rmod__" else "divided by"
            raise errors.DividedByZero(what="a number", operation=operation, by="an index that is 0").here() from None
    return operate


for _name in ("pow", "truediv", "or", "xor", "rpow", "rtruediv", "rfloordiv", "rmod", "rdivmod", "ror", "rxor",
              "rlshift", "rrshift", "rand", "abs", "round", "trunc", "floor", "ceil", "complex"):
    setattr(Index, f"__{_name}__", _by_value(f"__{_name}__"))


def is_integer(value: object) -> TypeGuard[int | Index]:
    return isinstance(value, (int, np.integer, np.bool_, Index))


def _at_least_zero(index: Index, other: object, rounded: Callable[[float], int], offset: int, sign: int = 1
                   ) -> Mask | bool:
    """Return the mask ``index - sign * other - offset >= 0``. A float bound is rounded to an integer, as indices are
    integers."""
    if is_float(other):
        if not math.isfinite(other):                # the same answer for every integer
            return 0 > sign * other
        other = rounded(other)
    return Mask(((index.plus(other, -sign) - offset, False),)) if is_integer(other) else NotImplemented


def refuse_one_dimension(index: Index) -> None:
    """Refuse an index tensor of one dimension as a subscript: it needs at least two."""
    if len(index.shape) == 1:
        raise errors.OneDimensionalArange


# -- what kernels make indices with ------------------------------------------------------------------------------------
def arange(*bounds: object) -> Index:
    """Return the index of an axis, from 0 or ``start`` to ``stop``; ``[:, None]`` puts it on the partitions."""
    if not bounds:
        raise errors.NotAffine(what="nl.arange is called without bounds; give it stop, or start and stop")
    if len(bounds) > 2:
        raise errors.NotAffine(what="nl.arange takes no step; multiply the index instead")
    start, stop = (Index(), bounds[0]) if len(bounds) == 1 else (Index.of(bounds[0]), bounds[1])
    extent = (Index.of(stop) - start).as_int("the extent of nl.arange depends on it")
    return start.with_axes((1,), (max(0, extent),))


class MGridResult(tuple[object, ...]):
    """The indices of ``mgrid``, by position or as ``.p`` (partition), ``.x``, ``.y``, ``.z``, ``.w`` (free)."""

    p, x, y, z, w = (property(operator.itemgetter(k)) for k in range(5))


class _MGrid:
    def __call__(self, *extents: object) -> NoReturn:
        raise errors.MGridCall(what="is called").here()

    def __getitem__(self, slices: tuple[slice, ...]) -> MGridResult:
        slices = slices if isinstance(slices, tuple) else (slices,)
        rank, ranges = len(slices), []
        for k, s in enumerate(slices):
            if not isinstance(s, slice):
                raise errors.MGridCall(what=f"has the subscript {reprlib.repr(s)}").here()
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
    """Return the slice ``start : start + size``, whose start may be symbolic."""
    if operator.index(size) < 0:
        raise errors.BadSliceSize(size=size).here()
    return DynamicSlice(start, operator.index(size))
