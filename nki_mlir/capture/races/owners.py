# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds elements that several numbered iterations or programs touch, by marking which of them has touched each
element.

An unrolled loop, an eager run and programs that were captured one by one have many patterns at known addresses:
marking their elements once finds a race that comparing all pairs of patterns would take long to find.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import gcd, prod

import numpy as np

from nki_mlir.capture.affine import Affine
from nki_mlir.capture.index import Mask
from nki_mlir.capture.races.overlaps import MOST_POINTS, ConditionPoints, alternatives, index_of, roots_of, spans_of
from nki_mlir.capture.races.touches import Touch
from nki_mlir.capture.tensor import Buffer

MOST_ELEMENTS = 1 << 27         # the largest tensor whose elements are marked

# By the kind of a touch: the kinds that it races with.
AGAINST = {"wrote": ("wrote", "added", "read"), "added": ("wrote", "read"), "read": ("wrote", "added")}


class Owners:
    """The touches of each element of one tensor. An element here is a unit of bytes: the starts, steps and sizes of all
    touches are multiples of it.

    ``listed`` are the touches to mark, each with the number of its iteration or program.
    """

    def __init__(self, buffer: Buffer, listed: Sequence[tuple[Touch, int]]) -> None:
        self.buffer, self.listed = buffer, listed
        shape = buffer.physical_shape
        row = row_bytes(buffer)
        if all(is_pattern(t) for t, _ in listed):
            parts = [in_bytes(t, row) for t, _ in listed]
            self.unit = gcd(row, *(n for at, (*dims, (_, run)) in parts for n in (at, run, *(s for s, _ in dims))))
        else:
            self.unit = min([buffer.dtype.itemsize, *(t.view.dtype.itemsize for t, _ in listed)])
        self.row = row // self.unit
        self.size = self.row * (shape[0] if buffer.on_chip else 1)
        self.by = np.array([-1, *(number for _, number in listed)])
        # By kind of access: the first touch of each element, and the first touch by another owner. Touches are
        # positions in the list, counted from 1; 0 stands for none.
        self.first: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(self.size, np.int32))
        self.second: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(self.size, np.int32))

    def touch(self, index: int) -> tuple[int, int] | None:
        """Mark the elements of the touch at an index of the list.

        Return an element on which it races with an earlier touch, and that touch's index; None if there is none.
        Touches of two iterations or programs race if one of them writes, unless both accumulate.
        """
        (touch, by), mark = self.listed[index], index + 1
        kind = "added" if touch.accumulates else "wrote" if touch.writes else "read"
        for elements in self.elements_of(touch):
            for other_kind in AGAINST[kind]:
                for owners in (maps[other_kind] for maps in (self.first, self.second) if other_kind in maps):
                    marks = elements.read(owners)
                    if marks.any() and (conflicts := (marks > 0) & (self.by[marks] != by)).any():
                        at = int(np.argmax(conflicts.reshape(-1)))
                        return elements.element(at), int(marks.reshape(-1)[at]) - 1
            first_owner = self.first[kind]
            marks = elements.read(first_owner)
            if not marks.any():
                elements.write(first_owner, mark)
                continue
            new, foreign = marks == 0, (marks > 0) & (self.by[marks] != by)
            elements.write(first_owner, np.where(new, mark, marks))
            if foreign.any():
                second = self.second[kind]
                marks = elements.read(second)
                elements.write(second, np.where(foreign & (marks == 0), mark, marks))
        return None

    def elements_of(self, touch: Touch) -> Iterator["Strided | Chosen"]:
        """Yield the elements of a touch: a pattern, or flat indices where conditions select elements."""
        if touch.elements is not None:
            yield self.spread(touch.elements, touch)
            return
        if is_pattern(touch):
            start, dims = in_bytes(touch, self.row * self.unit)
            unit = self.unit
            yield Strided(start // unit, [*((step // unit, n) for step, n in dims[:-1]), (1, dims[-1][1] // unit)])
            return
        for terms in alternatives(touch):
            yield self.chosen(touch, terms)

    def chosen(self, touch: Touch, terms: Sequence[tuple[Affine, bool]]) -> "Chosen":
        """Return the elements of a touch that conditions select, by trying every point."""
        view, restriction, scale = touch.view, touch.restriction, touch.view.dtype.itemsize // self.unit
        masks, axes, extents = [Mask(((e, equal),)) for e, equal in terms], list(range(len(view.dims))), []
        if restriction is None:
            extents = [dim.count for dim in view.dims]
        else:
            extents, axes = list(restriction.extents), list(restriction.axes)
            for number, dim in enumerate(view.dims):
                if dim.count != extents[axes[number]]:
                    axes[number] = len(extents)
                    extents.append(dim.count)
            masks += [Mask(((index_of(c.form, touch.symbols, tuple(extents)), c.equal),)) for c in restriction.mask]
        roots = roots_of([view.partition, view.free, *(e for m in masks for e, _ in m.terms)])
        spans = spans_of(extents, roots)
        if prod(map(len, spans)) > MOST_POINTS:
            raise TooManyPoints
        points = ConditionPoints(roots, len(extents), spans)
        holds = np.ones((1,) * len(spans), np.bool_)
        for mask in masks:
            holds = holds & points.truth(mask)
        flat = points.of(view.partition) * self.row + points.of(view.free) * scale
        for axis, dim in zip(axes, view.dims):
            flat = flat + points.axes[axis] * (dim.partition * self.row + dim.free * scale)
        holds, flat = np.broadcast_arrays(holds, flat)
        bytes_read = np.unique_counts(flat[holds]).values       # NumPy sorts here; hashes of equidistant values collide
        if len(bytes_read) and (bytes_read[0] < 0 or bytes_read[-1] + scale > self.size):
            raise TooManyPoints               # a run reports accesses out of bounds
        return Chosen((bytes_read[:, None] + np.arange(scale)).reshape(-1))

    def spread(self, elements: np.ndarray, touch: Touch) -> "Chosen":
        """Convert flat elements of the touch's dtype to the unit of this record."""
        scale = touch.view.dtype.itemsize // self.unit
        return Chosen((elements[:, None] * scale + np.arange(scale)).reshape(-1))

    def element(self, at: int) -> tuple[int, int]:
        """Return (partition, byte in it) of an element, given its flat index."""
        if not self.buffer.on_chip:
            return 0, at * self.unit
        return at // self.row, at % self.row * self.unit


def patterns_of(buffer: Buffer, listed: Sequence[tuple[Touch, object]]
                ) -> list[tuple[int, list[tuple[int, int]], object]] | None:
    """Return each touch as a pattern of bytes with its owner; None where conditions or data select elements."""
    if not all([is_pattern(t) for t, _ in listed]):
        return None
    row = row_bytes(buffer)
    return [(*in_bytes(t, row), by) for t, by in listed]


def row_bytes(buffer: Buffer) -> int:
    """Return the bytes of a partition, or of the complete tensor in HBM."""
    return prod(buffer.physical_shape[1 if buffer.on_chip else 0:]) * buffer.dtype.itemsize


def is_pattern(touch: Touch) -> bool:
    """Return whether a touch has all elements of its view, at addresses that are linear in the symbols."""
    return touch.elements is None and touch.restriction is None and not touch.conditions and all(
        s.formula is None for i in (touch.view.partition, touch.view.free) for s in i.symbols)


def in_bytes(touch: Touch, row: int) -> tuple[int, list[tuple[int, int]]]:
    """Return a pattern in bytes: its start and its (step, count) pairs. The last pair is a contiguous run of bytes."""
    view, size = touch.view, touch.view.dtype.itemsize
    start = view.partition.const * row + view.free.const * size
    dims = [(d.partition * row + d.free * size, d.count) for d in view.dims]
    for symbol in dict.fromkeys([*view.partition.symbols, *view.free.symbols]):
        step = view.partition.symbols.get(symbol, 0) * row + view.free.symbols.get(symbol, 0) * size
        start += step * symbol.first
        dims.append((step * symbol.step, (symbol.last - symbol.first) // symbol.step + 1))
    run, dims = size, [(step, n) for step, n in dims if n > 1 and step]
    while dims and dims[-1][0] == run:
        run *= dims.pop()[1]
    return start, [*dims, (1, run)]


class TooManyPoints(Exception):
    """Raised where a condition selects among too many points to try, or selects elements outside of the tensor."""


class Chosen:
    """A list of elements by flat index."""

    def __init__(self, elements: np.ndarray) -> None:
        self.elements = elements

    def read(self, array: np.ndarray) -> np.ndarray:
        return array[self.elements]

    def write(self, array: np.ndarray, values: object) -> None:
        array[self.elements] = values

    def element(self, at: int) -> int:
        return int(self.elements[at])


class Strided:
    """A pattern of flat elements: a start, and (step, count) pairs."""

    def __init__(self, start: int, dims: Sequence[tuple[int, int]]) -> None:
        self.dims = [(step, n) for step, n in dims if n > 1 and step]
        self.start = start

    def read(self, array: np.ndarray) -> np.ndarray:
        """Return the elements of a flat array as a view."""
        low = self.start + sum(min(0, step * (n - 1)) for step, n in self.dims)
        high = self.start + sum(max(0, step * (n - 1)) for step, n in self.dims)
        if low < 0 or high >= len(array):
            raise TooManyPoints               # a run reports accesses out of bounds
        size = array.itemsize
        return np.ndarray([n for _, n in self.dims], array.dtype, array, self.start * size,
                          [step * size for step, _ in self.dims])

    def write(self, array: np.ndarray, values: object) -> None:
        self.read(array)[...] = values

    def element(self, at: int) -> int:
        """Return the flat index of the element at a flat position in the view."""
        shape = [n for _, n in self.dims]
        indices = np.unravel_index(at, shape) if shape else ()
        return self.start + sum(int(k) * step for k, (step, _) in zip(indices, self.dims))
