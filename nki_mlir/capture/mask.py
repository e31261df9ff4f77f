# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons of indices: conditions of symbolic ``if`` statements, and masks of operations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from nki_mlir.capture.affine import Affine, Symbol, broadcast_shape
from nki_mlir.capture.errors import ArangeInCondition, AssignToIndex, UnsupportedMask
from nki_mlir.dialects.access import Constraint


@dataclass(frozen=True, eq=False)
class Mask:
    """A conjunction of ``expression >= 0`` (or ``== 0`` where the flag is set), or the negation of one."""

    terms: tuple[tuple[Affine, bool], ...]
    negated: bool = False

    described: ClassVar = "a condition on indices"
    pass_instead: ClassVar = ("pass the condition as mask=, or select by it with nisa.affine_select(pred=..., "
                              "on_true_tile=..., on_false_value=...)")
    __hash__ = None                                 # type: ignore[assignment]
    __array_ufunc__ = None

    def __and__(self, other: object) -> Any:
        if other is None:
            return self
        if isinstance(other, (bool, np.bool_)):
            return self if other else False
        if isinstance(other, Mask) and not (self.negated or other.negated):
            return Mask(self.terms + other.terms)
        return self._of_numbers(other, "only plain comparisons of indices can be joined by &") and bool(other)

    __rand__ = __and__

    def __or__(self, other: object) -> "Mask | bool":
        if isinstance(other, (bool, np.bool_)):
            return True if other else self
        left, right = ~self, ~other if isinstance(other, Mask) else None
        if right is not None and not (left.negated or right.negated):
            return Mask(left.terms + right.terms, negated=True)
        return self._of_numbers(other, "| can only join two single comparisons") or bool(other)

    __ror__ = __or__

    def __xor__(self, other: object) -> bool:
        return self._of_numbers(other, "^ does not join conditions on index tensors") ^ bool(other)

    __rxor__ = __xor__

    def __eq__(self, other: object) -> bool:
        """Compare a condition with a condition or bool, as bools are compared; every other value is unequal."""
        if isinstance(other, (Mask, bool, np.bool_)):
            return self._of_numbers(other, "== does not compare conditions on index tensors") == bool(other)
        return NotImplemented

    def _of_numbers(self, other: object, rule: str) -> bool:
        """Return the truth of a condition for an operator that conjunctions cannot express. On index tensors it is an
        error."""
        conditions = [condition for condition in (self, other) if isinstance(condition, Mask)]
        if not isinstance(other, (Mask, bool, np.bool_)) or any(condition.on_tiles for condition in conditions):
            raise UnsupportedMask(what=rule)
        return bool(self)

    def __invert__(self) -> "Mask":
        if len(self.terms) == 1 and not self.terms[0][1]:
            return Mask(((-self.terms[0][0] - 1, False),), self.negated)
        return Mask(self.terms, not self.negated)

    def __setitem__(self, subscript: object, value: object) -> None:
        raise AssignToIndex

    def pieces(self) -> list["Mask"]:
        """Split the mask, a negation, into conjunctions: where the mask holds, exactly one of them holds."""
        parts: list[Mask] = []
        holding: tuple[tuple[Affine, bool], ...] = ()
        for expression, equal in self.terms:
            fails = (expression - 1, -expression - 1) if equal else (-expression - 1,)
            parts += [Mask((*holding, (e, False))) for e in fails]
            holding += ((expression, equal),)
        return parts

    @property
    def shape(self) -> tuple[int, ...]:
        return reduce(broadcast_shape, (e.shape for e, _ in self.terms), ())

    @property
    def on_tiles(self) -> bool:
        """Return whether the condition has index tensors. ``spread`` may place some that do not broadcast."""
        return any(e.shape for e, _ in self.terms)

    @property
    def facts(self) -> tuple[Affine, ...]:
        """Expressions that are ``>= 0`` where the mask is true."""
        if self.negated:
            return ()
        return tuple(f for e, equal in self.terms for f in ((e, -e) if equal else (e,)))

    def truth(self) -> bool | None:
        """Return the truth of the mask if it is the same for all values of its symbols and axes, else None."""
        ends = [(*e.interval(), equal) for e, equal in self.terms]
        if all(low == high == 0 if equal else low >= 0 for low, high, equal in ends):
            return not self.negated
        if any(high < 0 or (equal and low > 0) for low, high, equal in ends):
            return self.negated
        return None

    def __bool__(self) -> bool:
        if math.prod(self.shape) != 1:
            raise ArangeInCondition(size=math.prod(self.shape))
        truth = self.truth()
        if truth is None:
            for expression, _ in self.terms:
                expression.as_int("Python needs the truth value of a comparison")
            # Constants remain: an equality or inequality of numbers.
            truth = all(e.const == 0 if equal else e.const >= 0 for e, equal in self.terms) != self.negated
        return truth

    def transposed(self) -> "Mask":
        """Return the same condition for tiles with reversed axes."""
        return Mask(tuple((e.with_axes(e.axes[::-1], e.shape[::-1]), equal) for e, equal in self.terms), self.negated)

    def spread(self, shape: tuple[int, ...]) -> "Mask":
        """Return the condition broadcast to tiles of ``shape``."""
        return Mask(tuple((broadcast_index(e, shape), equal) for e, equal in self.terms), self.negated)

    def anywhere_along(self, axis: int) -> "Mask":
        """Return the conjunction that holds where this one does at some position on the axis, by Fourier-Motzkin
        elimination.

        The elimination is exact for integers if one of two combined coefficients is 1; else it raises
        ``UnsupportedMask``.
        """
        bound = [_reduced(e, equal, axis) for e, equal in self.terms if e.axes[axis]]
        if not bound:
            return self
        terms = [(e, equal) for e, equal in self.terms if not e.axes[axis]]
        lowest = bound[0][1] * 0
        highest = lowest + self.shape[axis] - 1
        solved = next(((c, remainder) for c, remainder, equal in bound if equal and abs(c) == 1), None)
        lower = [(1, lowest), *((c, remainder) for c, remainder, _ in bound if c > 0)]
        upper = [(1, highest), *((-c, remainder) for c, remainder, _ in bound if c < 0)]
        if solved is not None:
            position = -solved[1] * solved[0]
            terms += [(position, False), (highest - position, False)]
            terms += [(position * c + remainder, equal) for c, remainder, equal in bound]
        elif any(equal for *_, equal in bound) or min(max(c for c, _ in side) for side in (lower, upper)) > 1:
            raise UnsupportedMask(
                what="the mask bounds a multiple of a reduced axis on both sides, and no comparisons select the "
                     "results that have elements",
                instead="bound the multiple on one side only, or bound the axis itself")
        else:
            terms += [(low * b + high * a, False) for a, low in lower for b, high in upper]
        return Mask(tuple((e, equal) for e, equal in terms if not Mask(((e, equal),)).truth()))

    def constraints(self, position_of: dict[Symbol, int]) -> tuple[Constraint, ...]:
        """Return the terms over an operation's axes and its symbols, which ``position_of`` numbers."""
        return tuple(Constraint(e.linear(position_of), equal) for e, equal in self.terms)


def _reduced(index: Affine, equal: bool, axis: int) -> tuple[int, Affine, bool]:
    """Return the term ``c * position + remainder`` as ``(c, remainder, equal)``, divided by ``abs(c)`` if
    ``remainder`` is a multiple of it."""
    c = index.axes[axis]
    remainder, divisor = index.with_axes((*index.axes[:axis], 0, *index.axes[axis + 1:]), index.shape), abs(c)
    if not remainder.is_multiple_of(divisor):
        return c, remainder, equal
    if equal and remainder.const % divisor:             # holds nowhere
        return 1, remainder * 0 - index.shape[axis], False
    return c // divisor, remainder.quotient(divisor), equal


def broadcast_index(index: Affine, shape: Sequence[int]) -> Affine:
    """Broadcast an index tensor to tiles of ``shape``: align their first axes or, as in NumPy, their last axes."""
    mask_shape, shape = index.shape, tuple(shape)
    for offset in (0, len(shape) - len(mask_shape)):
        if len(mask_shape) <= len(shape) and all(n in (1, shape[k + offset]) for k, n in enumerate(mask_shape)):
            trailing = len(shape) - len(mask_shape) - offset
            return index.with_axes((0,) * offset + index.axes + (0,) * trailing, shape)
    raise UnsupportedMask(what=f"the mask has shape {mask_shape}, the operation's tiles {shape}",
                          instead="compare index tensors that broadcast to the shape of the tiles")
