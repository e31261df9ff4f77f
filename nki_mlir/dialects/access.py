# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operands of operations, in plain Python: a base buffer plus an access pattern, linear forms, constraints.

An on-chip pattern has a partition start, a free offset inside each partition, and ``(step, count)`` pairs. The first
pair is the partition (step 1, or 0 if all lanes read one partition). An HBM pattern has one flat offset. All steps and
offsets are in elements of the pattern's dtype.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.scalar.dtypes import DType

HBM, SBUF, PSUM = "hbm", "sbuf", "psum"
SPACES = (HBM, SBUF, PSUM)


@dataclass(slots=True, unsafe_hash=True)
class Linear:
    """The form ``const + sum(c * symbol) + sum(c * axis)``; symbols and axes by position, zero coefficients
    left out.

    Immutable, though not declared so: compilations create very many, and a frozen dataclass is slow to create.
    """

    const: int = 0
    symbols: tuple[tuple[int, int], ...] = ()
    axes: tuple[tuple[int, int], ...] = ()

    def interval(self, ranges: "Ranges", counts: tuple[int, ...] = ()) -> tuple[int, int]:
        """Return the least and the greatest value over the symbols' ranges and the axes' counts."""
        low = high = self.const
        for position, c in self.symbols:
            least, greatest = ranges[position]
            low += min(c * least, c * greatest)
            high += max(c * least, c * greatest)
        for axis, c in self.axes:
            reach = c * (counts[axis] - 1)
            low += min(0, reach)
            high += max(0, reach)
        return low, high

    def plus(self, other: "Linear", factor: int = 1) -> "Linear":
        """Return ``self + factor * other``."""
        return Linear(self.const + factor * other.const,
                      _merge(self.symbols, other.symbols, factor) if other.symbols else self.symbols,
                      _merge(self.axes, other.axes, factor) if other.axes else self.axes)

    def substitute(self, position: int, value: int) -> "Linear":
        """Return the form with a symbol replaced by a value; the positions of other symbols stay."""
        c = dict(self.symbols).get(position, 0)
        return Linear(self.const + c * value, tuple(s for s in self.symbols if s[0] != position), self.axes)

    def over(self, forms: "Sequence[Linear] | Mapping[int, Linear]") -> "Linear":
        """Return the form with each symbol replaced by a form."""
        total = Linear(self.const, (), self.axes)
        for position, c in self.symbols:
            total = total.plus(forms[position], c)
        return total

    def counted_from(self, starts: Sequence[int]) -> "Linear":
        """Return the form over axes that are counted from ``starts``."""
        return Linear(self.const + sum(c * starts[axis] for axis, c in self.axes), self.symbols, self.axes)

    def at(self, values: "Sequence[int] | Mapping[int, int]") -> int:
        """Return the value for given symbol values (axes taken as 0)."""
        return self.const + sum([c * values[position] for position, c in self.symbols]) if self.symbols else self.const


def _merge(a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...], factor: int) -> tuple[tuple[int, int], ...]:
    total = dict(a)
    for key, c in b:
        total[key] = total.get(key, 0) + factor * c
    return tuple(sorted((k, c) for k, c in total.items() if c))


Ranges = tuple[tuple[int, int], ...]            # least and greatest value of each symbol
ZERO = Linear()


class Constraint(NamedTuple):
    """The condition ``form >= 0`` or, with ``equal``, ``form == 0``, over an op's iteration axes and symbols."""

    form: Linear
    equal: bool = False


Mask = tuple[Constraint, ...]                   # a conjunction; empty: no mask


def positions(factor: int, least: int, greatest: int, equal: bool, extent: int) -> tuple[int, int]:
    """Return the first and last position of an axis where ``factor * position + rest`` can be >= 0 or, with ``equal``,
    0.

    The rest is between ``least`` and ``greatest``.
    """
    low, high = 0, extent - 1
    for c, a in ((greatest, factor), (-least, -factor))[:2 if equal else 1]:
        if a > 0:
            low = max(low, -(c // a))
        else:
            high = min(high, c // -a)
    return low, high


def masked_box(mask: Mask, extents: Sequence[int], values: Sequence[int]) -> tuple[list[int], list[int], Mask]:
    """Return the smallest box that satisfies the constraints on one axis each: starts, counts, and the remaining
    mask."""
    low, high, remaining = [0] * len(extents), [n - 1 for n in extents], []
    for constraint in mask:
        const, axes = constraint.form.at(values), constraint.form.axes
        if len(axes) > 1:
            remaining.append(constraint)
        elif axes:
            (axis, a), = axes
            begin, end = positions(a, const, const, constraint.equal, extents[axis])
            low[axis], high[axis] = max(low[axis], begin), min(high[axis], end)
        elif const < 0 or (constraint.equal and const > 0):
            high[0] = -1
    return low, [max(0, h - l + 1) for l, h in zip(low, high)], tuple(remaining)


def values_of(form: Linear, counts: Sequence[int], values: Sequence[int] = (), starts: Sequence[int] = ()
              ) -> np.ndarray:
    """Return the values of a form over a box at the origin or at ``starts``, for these values of its symbols,
    as int64."""
    rank = len(counts)
    total = np.full((1,) * rank, form.at(values), np.int64)
    for axis, c in form.axes:
        along = (np.arange(counts[axis]) + (starts[axis] if starts else 0)) * c
        total = total + along.reshape([-1 if a == axis else 1 for a in range(rank)])
    return np.broadcast_to(total, tuple(counts)) if prod(counts) else total


def active_elements(mask: Mask, counts: Sequence[int], values: Sequence[int] = (), starts: Sequence[int] = ()
                    ) -> np.ndarray:
    """Return a boolean array over the box: true where all constraints hold."""
    active = np.ones(tuple(counts), np.bool_)
    for constraint in mask:
        position = values_of(constraint.form, counts, values, starts)
        active &= (position == 0) if constraint.equal else (position >= 0)
    return active


@dataclass(slots=True)
class Access:
    """The elements of its buffer that a tile has, as a pattern. ``partition`` is None in HBM. Immutable, as above."""

    dtype: DType
    partition: Linear | None
    free: Linear
    dims: tuple[tuple[int, int], ...]
    _hash: int = field(default=0, init=False, compare=False, repr=False)
    _shape: tuple[int, ...] | None = field(default=None, init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        if not self._hash:          # passes look up patterns often; these parts differ in most of them
            partition = self.partition
            self._hash = hash((self.free.const, self.dims, None if partition is None else partition.const))
        return self._hash

    @property
    def shape(self) -> tuple[int, ...]:
        if self._shape is None:
            self._shape = tuple([count for _, count in self.dims])
        return self._shape

    @property
    def free_dims(self) -> tuple[tuple[int, int], ...]:
        """The dims that step through the free offset: all but the partition on chip, all in HBM."""
        return self.dims if self.partition is None else self.dims[1:]

    def reach(self) -> tuple[int, int]:
        """Return the least and the greatest free offset relative to the start."""
        low = sum(min(0, step * (count - 1)) for step, count in self.free_dims)
        high = sum(max(0, step * (count - 1)) for step, count in self.free_dims)
        return low, high

    def box(self, starts: Sequence[int], counts: Sequence[int]) -> "Access":
        """Return the pattern of a box of the tile."""
        offsets = [start * step for start, (step, _) in zip(starts, self.dims)]
        dims = tuple((step, n) for (step, _), n in zip(self.dims, counts))
        if self.partition is None:
            return Access(self.dtype, None, self.free.plus(Linear(sum(offsets))), dims)
        partition, free = self.partition.plus(Linear(offsets[0])), self.free.plus(Linear(sum(offsets[1:])))
        return Access(self.dtype, partition, free, dims)

    def shifted(self, dim: int, steps: Linear) -> "Access":
        """Return the pattern that starts ``steps`` steps of a dim later."""
        step = self.dims[dim][0]
        if dim == 0 and self.partition is not None:
            return Access(self.dtype, self.partition.plus(steps, step), self.free, self.dims)
        return Access(self.dtype, self.partition, self.free.plus(steps, step), self.dims)

    def over(self, change: Callable[[Linear], Linear]) -> "Access":
        """Return the pattern with its start forms changed."""
        partition = None if self.partition is None else change(self.partition)
        return Access(self.dtype, partition, change(self.free), self.dims)

    def symbols_used(self) -> set[int]:
        forms = (self.partition, self.free) if self.partition is not None else (self.free,)
        return {position for form in forms for position, _ in form.symbols}


class Form:
    """The part that tiles share if they differ only in their buffers and starts. Equal forms are one object."""

    __slots__ = ("covers_buffer", "row")

    def __init__(self, space: str, base_shape: tuple[int, ...], base_dtype: DType, dtype: DType,
                 dims: tuple[tuple[int, int], ...]) -> None:
        on_chip = space != HBM
        extents = base_shape[1:] if on_chip else base_shape
        self.row = prod(extents) * base_dtype.itemsize // dtype.itemsize
        lanes = not on_chip or dims[0][1] == base_shape[0]
        self.covers_buffer = lanes and prod([count for _, count in dims[on_chip:]]) == self.row


class Layout:
    """The part that tiles share if they differ only in their buffers (``Tile.layout``). Equal layouts are one
    object."""

    __slots__ = ("form",)

    def __init__(self, space: str, base_shape: tuple[int, ...], base_dtype: DType, access: Access) -> None:
        self.form = _form(space, base_shape, base_dtype, access.dtype, access.dims)


_form, _layout = lru_cache(1 << 16)(Form), lru_cache(1 << 16)(Layout)


Bounds = tuple[int, int, int, int]   # first partition, the one after the last; first byte, the one after the last


@lru_cache(1 << 16)
def _extent(dims: tuple[tuple[int, int], ...], dtype: DType) -> Bounds:
    """Return for an on-chip pattern: its partitions, the distances in bytes from its start to its first byte and to the
    byte after its last, and the bytes of an element."""
    low, high = Access(dtype, ZERO, ZERO, dims).reach()
    return dims[0][1], low * dtype.itemsize, (high + 1) * dtype.itemsize, dtype.itemsize


@dataclass(eq=False, slots=True)
class Tile:
    """An operand: a base buffer (``handle``: an array, an SSA value) and its access pattern. Immutable, as above."""

    handle: Any
    space: str
    base_shape: tuple[int, ...]                 # physical: partitions first on chip
    base_dtype: DType
    access: Access
    label: str = ""                             # its name in messages
    _layout: Layout | None = field(default=None, init=False, repr=False)
    _form: Form | None = field(default=None, init=False, repr=False)
    _bounds: Bounds | None = field(default=None, init=False, repr=False)

    @property
    def bounds(self) -> Bounds:
        """On chip: the first partition, the partition after the last, the first byte and the byte after the last.
        Symbols of the start count as 0."""
        if self._bounds is None:
            access = self.access
            partitions, low, high, size = _extent(access.dims, access.dtype)
            first_partition = access.partition.const if access.partition is not None else 0
            start = access.free.const * size
            self._bounds = first_partition, first_partition + partitions, start + low, start + high
        return self._bounds

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            self._layout = _layout(self.space, self.base_shape, self.base_dtype, self.access)
        return self._layout

    @property
    def form(self) -> Form:
        if self._form is None and self._layout is not None:
            self._form = self._layout.form
        elif self._form is None:
            access = self.access
            self._form = _form(self.space, self.base_shape, self.base_dtype, access.dtype, access.dims)
        return self._form

    def starting(self, handle: Any, access: Access) -> "Tile":
        """Return the tile in another buffer of the same shape, or with another start."""
        tile = Tile(handle, self.space, self.base_shape, self.base_dtype, access, self.label)
        tile._form = self.form
        if access is self.access:
            tile._layout = self._layout
        return tile

    def on(self, handle: object, label: str | None = None) -> "Tile":
        """Return the same elements of another buffer, which messages may name by another label."""
        tile = Tile(handle, self.space, self.base_shape, self.base_dtype, self.access,
                    self.label if label is None else label)
        tile._layout, tile._form = self._layout or self.layout, self._form
        return tile

    def patterned(self, *, partition: Linear | None = None, free: Linear | None = None,
                  dims: tuple[tuple[int, int], ...] | None = None) -> "Tile":
        """Return the tile with some parts of its pattern replaced."""
        old = self.access
        access = Access(old.dtype, old.partition if partition is None else partition,
                        old.free if free is None else free, old.dims if dims is None else dims)
        return Tile(self.handle, self.space, self.base_shape, self.base_dtype, access, self.label)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.access.shape

    @property
    def dtype(self) -> DType:
        return self.access.dtype

    @property
    def on_chip(self) -> bool:
        return self.space != HBM

    @property
    def partitions(self) -> int:
        return self.access.dims[0][1] if self.on_chip else 1

    @property
    def free_elements(self) -> int:
        """Elements per partition (all elements in HBM)."""
        return prod([count for _, count in self.access.free_dims])

    @property
    def row(self) -> int:
        """Elements of the pattern's dtype in one partition of the buffer (the complete buffer in HBM)."""
        return self.layout.form.row

    @property
    def offset(self) -> Linear:
        """The first element, counted from the start of the buffer in elements of the pattern's dtype."""
        start = self.access.partition
        return self.access.free if start is None else self.access.free.plus(start, self.row)

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances in the buffer between neighbors along each dim."""
        steps = [step for step, _ in self.access.dims]
        return (steps[0] * self.row, *steps[1:]) if self.on_chip else tuple(steps)

    def describe(self) -> str:
        extents = ", ".join(map(str, self.shape))
        return f"{self.label or self.space}[{extents}] {self.dtype} in {self.space}"


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense buffer's dims."""
    return tuple([prod(shape[d + 1:]) for d in range(len(shape))])


def joined_dims(dims: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the (step, count) of the dims with more than one element. Neighbors whose elements follow each other at
    one step are joined."""
    joined: list[tuple[int, int]] = []
    for step, count in dims:
        if count == 1:
            continue
        if joined and joined[-1][0] == step * count:
            joined[-1] = step, joined[-1][1] * count
        else:
            joined.append((step, count))
    return tuple(joined)


def is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements with these strides are contiguous and in row-major order."""
    return all(n == 1 or stride == step for n, stride, step in zip(shape, strides, dense(shape)))


def full_tile(handle: object, shape: Sequence[int], dtype: DType, space: str) -> Tile:
    """Return all of a buffer as a tile."""
    steps, start = dense(shape), None if space == HBM else ZERO
    if start is not None:
        steps = (1, *steps[1:])
    return Tile(handle, space, tuple(shape), dtype, Access(dtype, start, ZERO, tuple(zip(steps, shape))))


def same_buffer(a: Tile, b: Tile) -> bool:
    """Return whether two operands have one base buffer. An SSA value is a new Python object at each access."""
    return a.handle is b.handle or (not isinstance(a.handle, np.ndarray) and a.handle == b.handle)


def same_pattern(a: Tile, b: Tile) -> bool:
    """Return whether two operands have the same elements of their buffers, in the same order. Their shapes may differ:
    axes of one element and axes that step like one do not count."""
    x, y = a.access, b.access
    return x == y or ((x.dtype, x.partition, x.free) == (y.dtype, y.partition, y.free)
                      and normal_dims(a) == normal_dims(b))


def normal_dims(tile: Tile) -> tuple[tuple[int, int], ...]:
    """Return the partitions of a tile on chip, and its other dims joined: tiles of one dtype that start at one element
    have the same elements in the same order if their normal dims are equal."""
    partitions = [(step if count > 1 else 0, count) for step, count in tile.access.dims[:tile.on_chip]]
    return *partitions, *joined_dims(tile.access.free_dims)


def in_shape(tile: Tile, shape: tuple[int, ...]) -> Tile | None:
    """Return the elements of a tile, in their order, as a tile of another shape with as many partitions; None if they
    have no such pattern."""
    if tile.shape == shape:
        return tile
    dims, remaining = list(tile.access.dims[:tile.on_chip]), list(reversed(joined_dims(tile.access.free_dims)))
    if prod(shape) != prod(tile.shape) or (tile.on_chip and shape[:1] != tile.shape[:1]):
        return None
    for extent in shape[tile.on_chip:]:
        if extent == 1:
            dims.append((1, 1))
            continue
        step, count = remaining.pop()
        if count % extent:
            return None
        dims.append((step * (count // extent), extent))
        if count > extent:
            remaining.append((step, count // extent))
    return tile.patterned(dims=tuple(dims))


def same_elements(a: Tile, b: Tile) -> bool:
    """Return whether two operands are the same memory, element for element."""
    return same_buffer(a, b) and a.access == b.access
