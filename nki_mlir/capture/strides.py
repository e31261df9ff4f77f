# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arithmetic behind views: subscripts as starts and steps, substitution of indices, regrouping of dimensions."""

import operator
import reprlib
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.capture.affine import A, Affine
from nki_mlir.capture.errors import BadStep, BadSubscript, TooManySubscripts, TwoEllipses
from nki_mlir.capture.index import DynamicSlice, Index, Mask


class Shape(tuple[int, ...]):
    """The shape of a tensor: a tuple that also equals lists of the same extents."""

    __slots__ = ()
    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other


same_extents = tuple.__eq__     # compares two shapes without the call of ``Shape.__eq__``


class Dim(NamedTuple):
    """One dimension of a view: its steps through partitions and free offset, and its extent."""

    partition: int
    free: int
    count: int                                  # type: ignore[assignment]     # not the tuple's method


class Limit(NamedTuple):
    """A bound to prove: ``index`` (over the view's axes) must lie in ``[0, extent)``; ``dim`` is for the message."""

    index: Index                                # type: ignore[assignment]     # not the tuple's method
    dim: int
    extent: int
    tensor: str = ""                            # the name of the tensor, "" for that of the view's buffer


ONE_MORE = Dim(0, 0, 1)
ZERO = Index()
EVERYTHING = slice(None)


def substitute(index: A, inner: Sequence[Affine]) -> A:
    """Return ``index`` with axis k replaced by the affine index ``inner[k]``."""
    total = type(index)(index.const, index.symbols)
    for expression, c in zip(inner, index.axes):
        if c:
            total = total.plus(expression.times(c))
    return total


def condition_of(item: object) -> Mask | None:
    """Return a subscript that is a condition as a mask: a comparison of indices, or a bool (of numbers). Else return
    None."""
    if isinstance(item, (bool, np.bool_)):
        return Mask(() if item else ((Index(-1), False),))
    return item if isinstance(item, Mask) else None


def expand_ellipsis(items: tuple[object, ...], rank: int) -> tuple[Any, ...]:
    """Return one subscript per dimension: ``...`` and missing trailing ones become full slices."""
    if len(items) == rank and not any([i is Ellipsis for i in items]):
        return items
    at = next((k for k, i in enumerate(items) if i is Ellipsis), len(items))
    indices = [i for i in items if i is not Ellipsis]
    if len(items) - len(indices) > 1:
        raise TwoEllipses
    if len(indices) > rank:
        if any([i is None for i in indices]):
            raise BadSubscript(item=None, kind="NoneType")
        raise TooManySubscripts(given=len(indices), rank=rank)
    return (*indices[:at], *[slice(None)] * (rank - len(indices)), *indices[at:])


def numbered_spans(items: tuple[object, ...], dims: Sequence[Dim]) -> tuple[list[int], int, int] | None:
    """Return the step and the count of each dimension's subscript, one after the other (step 0: an integer, without an
    axis), and the number of partitions and of elements before the part. Return None if a subscript is neither a number
    nor a slice of numbers, leaves its dimension, selects nothing, or is a mistake.

    ``True`` is not a number: it is a condition.
    """
    if len(items) != len(dims):
        if not all([type(item) in NUMBERS or item is Ellipsis for item in items]):
            return None
        items = expand_ellipsis(items, len(dims))
    spans: list[int] = []
    by_partition = by_free = 0
    for item, (partition, free, extent) in zip(items, dims):
        if type(item) is slice:
            start, stop, step = item.start, item.stop, item.step
            if start is None:
                start = 0
            elif type(start) is not int:
                return None
            elif start < 0:
                start += extent
            if stop is None:
                stop = extent
            elif type(stop) is not int:
                return None
            elif stop < 0:
                stop += extent
            if step is None:
                step = 1
            elif type(step) is not int or step <= 0:
                return None
            count = (stop - start + step - 1) // step
        elif type(item) is int:
            start, step, count = item if item >= 0 else item + extent, 0, 1
        elif type(item) is DynamicSlice:
            start, step, count = item.start, 1, item.size
            if type(start) is not int or type(count) is not int:
                return None
        elif item is Ellipsis:
            return numbered_spans(expand_ellipsis(items, len(dims)), dims)
        else:
            return None
        if start < 0 or count <= 0 or start + (count - 1) * step >= extent:
            return None
        spans += step, count
        by_partition += start * partition
        by_free += start * free
    return spans, by_partition, by_free


NUMBERS = (int, slice, DynamicSlice)


def part_axes(dims: Sequence[Dim], spans: Sequence[int], on_chip: bool) -> list[int]:
    """Return the dimensions that a part with those steps and counts keeps. An integer removes its dimension, except the
    partition of a tile: a tile keeps its axis 0."""
    partition_axis = first_lanes(dims) if on_chip else None
    return [k for k, step in enumerate(spans[::2]) if step or k == partition_axis]


def part_dims(dims: Sequence[Dim], spans: Sequence[int], on_chip: bool) -> tuple[Dim, ...]:
    """Return the dimensions of a part whose subscripts have those steps and counts."""
    part: list[Dim] = []
    for k in part_axes(dims, spans, on_chip):
        step = spans[2 * k] or 1
        part.append(Dim(dims[k].partition * step, dims[k].free * step, spans[2 * k + 1]))
    return (*part, *[ONE_MORE] * (max(0, 2 - len(part)) if on_chip else 0))         # [n] on chip reads as [n, 1]


def first_lanes(dims: Sequence[Dim]) -> int:
    """Return the axis that steps through partitions; the first if none does (one partition, or one read by all)."""
    return next((k for k, d in enumerate(dims) if d.partition), 0)


def subscript_index(item: Any) -> Index:
    """Return a subscript that is not a slice as an index, or raise ``BadSubscript``."""
    if isinstance(item, Index):
        return item
    try:
        return Index(operator.index(item))
    except TypeError:
        shape = getattr(item, "shape", None)
        shown = reprlib.repr(item) if shape is None else f"an array of shape {tuple(shape)}"
        raise BadSubscript(item=shown, kind=type(item).__name__) from None


def from_front(item: object, extent: int) -> Index:
    """Return a subscript that is not a slice as an index that counts from the front of a dimension."""
    index = subscript_index(item)
    return index + extent if index.is_constant and index.const < 0 else index


def slice_span(item: slice | DynamicSlice, extent: int) -> tuple[Index, int, int]:
    """Return (start, step, count) of a slice. The start may be symbolic; the count must fold to a number."""
    if isinstance(item, DynamicSlice):
        return subscript_index(item.start), 1, item.size
    if item == EVERYTHING:
        return ZERO, 1, extent
    # Python clips slices; a kernel's slice beyond the tensor is a mistake and keeps its written extent.
    start, stop = (from_front(default if bound is None else bound, extent)
                   for bound, default in ((item.start, 0), (item.stop, extent)))
    step = 1 if item.step is None else operator.index(item.step)
    if step <= 0:
        raise BadStep(step=step)
    length = (stop - start).as_int("the extent of a slice depends on it")
    return start, step, max(0, -(-length // step))


def reshaped(shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides of the same elements in the shape ``new_shape``; None if that needs a copy.

    Dimensions that follow each other without a gap form a block; new dimensions must divide each block exactly.
    """
    blocks: list[list[int]] = []                            # [size, innermost stride]
    for n, step in zip(shape, strides):
        if n == 1:
            continue
        if blocks and blocks[-1][1] == n * step:
            blocks[-1] = [blocks[-1][0] * n, step]
        else:
            blocks.append([n, step])
    steps: list[int] = []
    remaining, step = blocks.pop() if blocks else (1, 1)
    for n in reversed(new_shape):
        if remaining == 1 and n != 1 and blocks:
            remaining, step = blocks.pop()
        if remaining % n:
            return None
        steps.append(step)
        step, remaining = step * n, remaining // n
    return tuple(reversed(steps)) if remaining == 1 and not blocks else None


def regrouped(dims: Sequence[Dim], shape: Sequence[int]) -> list[Dim] | None:
    """Return free dims in another shape if the order of the elements allows it without a copy, else None."""
    repeats = any(d.free == 0 and d.count != 1 for d in dims)
    if 0 in shape or (repeats and [d.count for d in dims if d.count != 1] != [n for n in shape if n != 1]):
        return None
    steps = reshaped([d.count for d in dims], [d.free for d in dims], shape)
    return None if steps is None else [ONE_MORE if n == 1 else Dim(0, s, n) for n, s in zip(shape, steps)]


def known_extents(shape: Sequence[int], total: int) -> tuple[int, ...] | None:
    """Return the shape with its -1 replaced by the extent that fits; None if it does not have ``total`` elements."""
    extents = [int(n) for n in shape]
    if extents.count(-1) == 1:
        product = prod(n for n in extents if n != -1)
        extents[extents.index(-1)] = total // product if product and total % product == 0 else 0
    return tuple(extents) if prod(extents) == total and all(n > 0 for n in extents) else None
