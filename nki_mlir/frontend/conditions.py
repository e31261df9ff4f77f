# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether conditions on indices hold anywhere: found by trying the values of their symbols and axes."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.op import Op
from nki_mlir.frontend.index import Index, Mask, Symbol

MOST_POINTS = 1 << 22           # values at which conditions are tried


def masks_of(op: Op, symbols: Sequence[Symbol]) -> list[Mask]:
    """The mask of an operation as a condition on symbols and axes."""
    if not op.mask:
        return []
    extents = op.iteration().extents
    return [Mask(tuple((index_of(c.form, symbols, extents), c.equal) for c in op.mask))]


def index_of(form: Linear, symbols: Sequence[Symbol], extents: tuple[int, ...]) -> Index:
    """A form over an operation's symbols and axes as an index."""
    axes, index = dict(form.axes), Index(form.const, {symbols[p]: c for p, c in form.symbols})
    return index.with_axes([axes.get(a, 0) for a in range(len(extents))], extents)


def roots_of(indices: Iterable[Index]) -> list[Symbol]:
    """The loop variables and program ids that indices depend on."""
    return list(dict.fromkeys(root for index in indices for symbol in index.symbols for root in symbol.roots()))


def spans_of(extents: Sequence[int], roots: Sequence[Symbol]) -> list[range]:
    """The values of axes, then of symbols."""
    return [*map(range, extents), *(range(r.first, r.last + r.step, r.step) for r in roots)]


def happens(conditions: Sequence[Mask]) -> bool | None:
    """Whether all conditions hold for some values of their symbols and axes; None where these are too many to tell."""
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
    """Values of axes, then of symbols, each along a dimension of its own."""

    def __init__(self, roots: Sequence[Symbol], axes: int, spans: Sequence[Sequence[int]]) -> None:
        placed = [np.array(s).reshape([-1 if a == k else 1 for a in range(len(spans))]) for k, s in enumerate(spans)]
        self.axes: list[np.ndarray] = placed[:axes]
        self.values: dict[Symbol, np.ndarray] = dict(zip(roots, placed[axes:]))

    def some(self, conditions: Sequence[Mask]) -> bool:
        holds: Any = True
        for condition in conditions:
            holds = holds & self.truth(condition)
        return bool(np.any(holds))

    def truth(self, mask: Mask) -> np.ndarray:
        values = [(self.of(e), equal) for e, equal in mask.terms]
        holds: Any = True
        for value, equal in values:
            holds = holds & (value == 0 if equal else value >= 0)
        return holds ^ mask.negated

    def of(self, index: Index) -> np.ndarray:
        total: Any = np.int64(index.const)
        for symbol, c in index.symbols.items():
            total = total + c * self.value(symbol)
        for position, c in zip(self.axes, index.axes):
            total = total + c * position
        return total

    def value(self, symbol: Symbol) -> np.ndarray:
        if symbol not in self.values:
            assert symbol.formula is not None
            index, kind, by = symbol.formula
            value = self.of(index)
            self.values[symbol] = value // by if kind == "floordiv" else value % by
        return self.values[symbol]
