# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compute each operation of an eager run again in float64, on operands that are results in float64 themselves.

Each buffer has a shadow: its elements as they would be if no operation rounded. An operation that is not a function of
numbers, or whose elements a mask selects, leaves its actual result in the shadow: an element whose bits changed since
the shadow was written has its actual value. A statement whose result is much farther from its shadow than its operands
are loses digits, as a difference of nearly equal numbers does, although it rounds no more than others.
"""

import weakref
from collections.abc import Callable, Mapping
from math import isfinite
from typing import NamedTuple

import numpy as np

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Op
from nki_mlir.targets.interpreter.execute import Pattern

Statement = tuple[Location | None, str]             # location and description
LEAST = 1e-3                    # least error of an output, relative to its largest element, that is reported
ROUNDINGS = 16                  # roundings to the coarsest dtype of a tile that an output's error may amount to
COMPARABLE = 1e-2               # a larger error shows that the reference computes another function in float64
STEPS = {"floor", "ceil", "rint", "round", "sign", "mod", "trunc"}      # functions with jumps


class Loss(NamedTuple):
    """The errors of a statement's operands and of its result, each relative to the largest element."""

    operands: float
    result: float


class _Elements:
    """The shadow of an array with elements of one size, and the elements when it was written."""

    def __init__(self, array: np.ndarray, dtype: np.dtype) -> None:
        self.actual = np.ndarray((array.nbytes // dtype.itemsize,), dtype, array).copy()
        self.wide = self.actual.astype(np.float64)

    def views(self, tile: Tile) -> tuple[np.ndarray, np.ndarray]:
        """Return the tile's elements in the shadow, and when it was written."""
        pattern = Pattern(tile)
        start = pattern.partition(()) * pattern.row + pattern.free(())
        wide, actual = (np.ndarray(pattern.shape, a.dtype, a, start * a.itemsize,
                                   [step * a.itemsize for step in pattern.steps]) for a in (self.wide, self.actual))
        return wide, actual


class Float64Shadow:
    """The shadows of all buffers of a run, and what each statement loses."""

    def __init__(self) -> None:
        self.elements: dict[tuple[int, np.dtype], _Elements] = {}
        self.references: list[weakref.ref[np.ndarray]] = []
        self.losses: dict[Statement, Loss] = {}
        self.coarsest = 0.0

    def read(self, tile: Tile) -> np.ndarray:
        """Return the elements of a tile in float64."""
        wide, written = self.of(tile).views(tile)
        actual = Pattern(tile).at(np.asarray(tile.handle), ())
        changed = bits(actual) != bits(written)
        if changed.any():
            wide[changed] = actual[changed].astype(np.float64)
            written[changed] = actual[changed]
        return np.array(wide)

    def of(self, tile: Tile) -> _Elements:
        """Return the shadow of a tile's array, with the array's elements if it has none yet."""
        array, dtype = tile.handle, tile.dtype.numpy
        key = id(array), dtype
        if key not in self.elements:
            self.elements[key] = _Elements(np.asarray(array), dtype)
            self.references.append(weakref.ref(array, lambda _: self.elements.pop(key, None)))
        return self.elements[key]

    def record(self, op: Op, operands: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray], statement: Statement,
             compute: Callable[[Mapping[str, np.ndarray]], np.ndarray | None]) -> None:
        """Record the result of an operation that has run. ``operands`` are those in float64, ``before`` the actual
        ones, and ``compute`` is its function in float64."""
        targets = [tile for _, tile in op.targets()]
        if len(targets) != 1 or not targets[0].dtype.is_float or STEPS & set(map(str, op.attribute_values().values())):
            return
        tile = targets[0]
        self.coarsest = max(self.coarsest, 2.0 ** -(tile.dtype.mantissa + 1))
        same, wide = compute(before), compute(operands)
        actual = Pattern(tile).at(np.asarray(tile.handle), ()).astype(np.float64)
        if same is None or wide is None or same.shape != actual.shape or wide.shape != actual.shape or (
                np.isin(actual, (0, 1)).all() or distance(actual, same) > COMPARABLE):
            return
        self.read(tile)                 # elements that the operation does not write keep their actual values
        shadow, written = self.of(tile).views(tile)
        shadow[...] = wide
        written[...] = Pattern(tile).at(np.asarray(tile.handle), ())
        loss = Loss(max((distance(before[name], operands[name]) for name in operands), default=0.0),
                    distance(actual, wide))
        last = self.losses.get(statement, Loss(0.0, 0.0))
        if loss.result - loss.operands > last.result - last.operands:
            self.losses[statement] = loss

    def largest_error(self, array: np.ndarray) -> tuple[float, Statement, Loss] | None:
        """Return the error of an output, if it is too large, with the statement that adds most of it."""
        shadows = [elements for (key, _), elements in self.elements.items() if key == id(array)]
        error = max((distance(elements.actual, elements.wide) for elements in shadows), default=0.0)
        if not isfinite(error) or error <= max(LEAST, ROUNDINGS * self.coarsest) or not self.losses:
            return None
        statement = max(self.losses, key=lambda s: self.losses[s].result - self.losses[s].operands)
        return error, statement, self.losses[statement]


def bits(array: np.ndarray) -> np.ndarray:
    """Return the bits of the elements, in which each NaN is equal to itself."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def distance(actual: np.ndarray, wide: np.ndarray) -> float:
    """Return the largest difference between finite elements, relative to the largest of them."""
    narrow, wide = np.asarray(actual).astype(np.float64), np.asarray(wide, np.float64)
    finite = np.isfinite(narrow) & np.isfinite(wide)
    largest = float(np.abs(wide[finite]).max(initial=0.0))
    return float(np.abs(narrow[finite] - wide[finite]).max(initial=0.0)) / largest if largest else 0.0
