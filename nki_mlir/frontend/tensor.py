# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors as base buffer plus strided view: subscripts, reshapes, broadcasts, and what is left to prove in bounds.

A ``View`` has a start (partition and free offset, both affine in loop variables) and per dimension a step through
partitions, a step through the free offset and an extent. Subscripting substitutes into that form, so that views of
views, block dimensions and strided patterns of any rank are one case. What a subscript cannot prove in bounds by itself
is kept as a limit: the mask of the operation that uses the view, or an enclosing ``if``, may still exclude it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.dialects.access import HBM, Access, Tile
from nki_mlir.dialects.verifier import OutOfBounds, PartitionAccess, TooManyPartitions
from nki_mlir.frontend.errors import BadReshape, BlockTensorNotTile, MixedIndexing, RankTooSmall, TooManySubscripts
from nki_mlir.frontend.index import Index, Mask, Symbol, check_placed
from nki_mlir.frontend.index_tensors import DynamicSlice
from nki_mlir.scalar.dtypes import DType

PARTITIONS = 128


@dataclass(eq=False)
class Buffer:
    """One allocation. ``shape`` is as the kernel wrote it, ``partition_dim`` says which dimension is the partition."""

    shape: tuple[int, ...]
    dtype: DType
    space: str
    name: str
    partition_dim: int = 0
    handle: Any = None          # an array (eager) or an SSA value (capture)
    scope: Any = None           # the block it was created in
    role: str = "local"         # local, input or output

    @property
    def on_chip(self) -> bool:
        return self.space != HBM

    @property
    def physical_shape(self) -> tuple[int, ...]:
        """Partitions first; block dimensions (those before the partition) become free ones."""
        if not self.on_chip or self.partition_dim == 0:
            return self.shape
        k = self.partition_dim
        return (self.shape[k], *self.shape[:k], *self.shape[k + 1:])


class Dim(NamedTuple):
    """One dimension of a view: steps through partitions and free offset, and its extent."""

    partition: int
    free: int
    count: int


class Limit(NamedTuple):
    """``index`` (over the view's axes) must lie in ``[0, extent)``; ``dim`` is for the message."""

    index: Index
    dim: int
    extent: int


ZERO = Index()
ONE_MORE = Dim(0, 0, 1)


class View:
    """A buffer seen through a strided pattern. Immutable."""

    __slots__ = ("buffer", "dims", "dtype", "free", "limits", "mask", "partition")

    def __init__(self, buffer: Buffer, partition: Index, free: Index, dims: tuple[Dim, ...], dtype: DType,
                 limits: tuple[Limit, ...] = (), mask: Mask | None = None) -> None:
        self.buffer, self.partition, self.free, self.dims, self.dtype = buffer, partition, free, dims, dtype
        self.limits, self.mask = limits, mask

    @classmethod
    def whole(cls, buffer: Buffer) -> "View":
        dims, step = [], 1
        for k in range(len(buffer.shape) - 1, -1, -1):
            if buffer.on_chip and k == buffer.partition_dim:
                dims.append(Dim(1, 0, buffer.shape[k]))
            else:
                dims.append(Dim(0, step, buffer.shape[k]))
                step *= buffer.shape[k]
        return cls(buffer, ZERO, ZERO, tuple(reversed(dims)), buffer.dtype)

    def like(self, **changes: Any) -> "View":
        parts = {name: getattr(self, name) for name in View.__slots__} | changes
        return type(self)(**parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(d.count for d in self.dims)

    @property
    def ndim(self) -> int:
        return len(self.dims)

    # -- subscripts ----------------------------------------------------------------------------------------------------
    def subscript(self, items: Any) -> "View":
        items = items if isinstance(items, tuple) else (items,)
        if len(items) == 1 and isinstance(items[0], Mask):
            return self.like(mask=items[0] if self.mask is None else self.mask & items[0])
        items = expand_ellipsis(items, self.ndim)
        advanced = [i for i in items if isinstance(i, Index) and i.shape]
        if advanced:
            return self._advanced(items)
        return self._basic(items)

    def _advanced(self, items: Sequence[Any]) -> "View":
        if any(isinstance(i, (slice, DynamicSlice)) for i in items):
            raise MixedIndexing
        indices = [Index.of(i) for i in items]
        for index in indices:
            check_placed(index)
        shape = np.broadcast_shapes(*(i.shape for i in indices))
        return self._picked([i.spread(shape) for i in indices], shape)

    def _basic(self, items: Sequence[Any]) -> "View":
        # An integer removes its dimension, except the partition of a tile: a tile keeps its axis 0.
        starts, spans = [], []
        for item, dim in zip(items, self.dims):
            if isinstance(item, (slice, DynamicSlice)):
                start, step, count = slice_span(item, dim.count)
                starts.append(start)
                spans.append((step, count))
            else:
                index = Index.of(item)
                if index.is_constant and index.const < 0:
                    index = index + dim.count
                starts.append(index)
                spans.append((1, 1) if dim.partition and self.buffer.on_chip else None)
        shape = tuple(span[1] for span in spans if span is not None)
        picked, axis = [], 0
        for start, span in zip(starts, spans):
            axes = [0] * len(shape)
            if span is not None:
                axes[axis] = span[0]
                axis += 1
            picked.append(Index(start.const, start.symbols, tuple(axes), shape))
        return self._picked(picked, shape)

    def _picked(self, picked: Sequence[Index], shape: tuple[int, ...]) -> "View":
        """Substitute one index per dimension, all of the new shape."""
        partition, free = self.partition, self.free
        steps_p, steps_f = [0] * len(shape), [0] * len(shape)
        limits = [Limit(substitute(l.index, picked), l.dim, l.extent) for l in self.limits]
        for k, (index, dim) in enumerate(zip(picked, self.dims)):
            start = index.scalar_part()
            if dim.partition:
                partition = partition + start * dim.partition
            if dim.free:
                free = free + start * dim.free
            for axis, c in enumerate(index.axes):
                if c:
                    steps_p[axis] += dim.partition * c
                    steps_f[axis] += dim.free * c
            low, high = index.interval()
            if low < 0 or high >= dim.count:
                limits.append(Limit(index, k, dim.count))
        dims = tuple(Dim(p, f, n) for p, f, n in zip(steps_p, steps_f, shape))
        if self.buffer.on_chip and len(dims) < 2:       # a tile has two dimensions at least; [n] reads as [n, 1]
            dims += (ONE_MORE,) * (2 - len(dims))
            limits = [Limit(trailing_axes(l.index, len(dims)), l.dim, l.extent) for l in limits]
        return self.like(partition=partition, free=free, dims=dims, limits=tuple(limits))

    # -- other views ---------------------------------------------------------------------------------------------------
    def broadcast_to(self, shape: Sequence[int]) -> "View":
        """Repeat extents of 1 (step 0), the partition included; missing dimensions are put in front."""
        shape = tuple(shape)
        if shape == self.shape:
            return self
        dims = (ONE_MORE,) * (len(shape) - self.ndim) + self.dims
        if len(dims) != len(shape) or any(d.count not in (1, n) for d, n in zip(dims, shape)):
            raise BadReshape(what=f"shape {self.shape} does not broadcast to {shape}")
        made = tuple(d if d.count == n else Dim(0, 0, n) for d, n in zip(dims, shape))
        limits = tuple(Limit(l.index.spread(shape), l.dim, l.extent) for l in self.limits)
        return self.like(dims=made, limits=limits)

    def with_unit_dims(self, axes: Sequence[int], rank: int) -> "View":
        """Dimensions of extent 1 put in at ``axes`` of the result, which has ``rank`` dimensions."""
        own = iter(self.dims)
        dims = tuple(ONE_MORE if k in axes else next(own, ONE_MORE) for k in range(rank))
        return self.like(dims=dims, limits=self.settled())

    def reshape(self, shape: Sequence[int], partition_dim: int | None = None) -> "View":
        """Another shape of the same elements, without moving data; the partition dimension stays one dimension."""
        shape = tuple(shape)
        if math.prod(shape) != math.prod(self.shape):
            raise BadReshape(what=f"{math.prod(self.shape)} elements of shape {self.shape} do not reshape to {shape}")
        own = next((k for k, d in enumerate(self.dims) if d.partition), None)
        if not self.buffer.on_chip or own is None:
            made = regrouped(self.dims, shape)
        else:
            at = own if partition_dim is None else partition_dim
            if at >= len(shape) or shape[at] != self.dims[own].count:
                raise BadReshape(what=f"the partition dimension {self.dims[own].count} of {self.shape} is not kept "
                                      f"in {shape}")
            free = regrouped(self.dims[:own] + self.dims[own + 1:], shape[:at] + shape[at + 1:])
            made = None if free is None else (*free[:at], self.dims[own], *free[at:])
        if made is None:
            raise BadReshape(what=f"a strided view of shape {self.shape} does not reshape to {shape} without a copy")
        return self.like(dims=tuple(made), limits=self.settled())

    def reinterpreted(self, dtype: DType) -> "View":
        """The same bytes as another dtype; the last dimension scales with the sizes."""
        old, new = self.dtype.itemsize, dtype.itemsize
        if old == new:
            return self.like(dtype=dtype)
        *rest, last = self.dims
        scaled = last.count * old
        if (last.count > 1 and last.free != 1) or last.partition or scaled % new:
            raise BadReshape(what=f"the last dimension of {self.shape} {self.dtype} cannot be read as {dtype}")
        steps = [d.free * old for d in rest]
        if any(s % new for s in steps) or (self.free.const * old) % new or any(
                c * old % new for c in self.free.symbols.values()):
            raise BadReshape(what=f"the elements of {self.shape} {self.dtype} are not aligned for {dtype}")
        dims = (*(Dim(d.partition, s // new, d.count) for d, s in zip(rest, steps)), Dim(0, 1, scaled // new))
        free = Index(self.free.const * old // new, {s: c * old // new for s, c in self.free.symbols.items()})
        return self.like(dims=dims, free=free, dtype=dtype, limits=self.settled())

    def settled(self) -> tuple[Limit, ...]:
        """Limits without axes; the others must hold here and now, since the axes are about to change."""
        for limit in self.limits:
            if any(limit.index.axes):
                self.out_of_bounds(limit)
        return tuple(Limit(l.index.scalar_part(), l.dim, l.extent) for l in self.limits)

    # -- what an operation needs ---------------------------------------------------------------------------------------
    def as_tile(self) -> "View":
        """Two dimensions at least, the partition (or the rows of an HBM tensor) first; checks the partition form."""
        dims = self.dims
        if len(dims) < 2:
            limits = tuple(Limit(trailing_axes(l.index, 2), l.dim, l.extent) for l in self.limits)
            return self.like(dims=dims + (ONE_MORE,) * (2 - len(dims)), limits=limits)
        if self.buffer.on_chip:
            if any(d.partition and d.count > 1 for d in dims[1:]):
                if dims[0].partition:
                    raise PartitionAccess(what="several axes of a tile step through its partitions")
                raise BlockTensorNotTile(shape=self.shape)
            if dims[0].free and dims[0].count > 1:
                if any(d.partition for d in dims):
                    raise PartitionAccess(what="the free offset of a tile depends on its partition axis")
                raise BlockTensorNotTile(shape=self.shape)
            if dims[0].count > PARTITIONS:
                raise TooManyPartitions(count=dims[0].count, limit=PARTITIONS)
        return self

    def access(self, place: dict[Symbol, int]) -> Access:
        """The pattern; ``place`` numbers the operation's symbols."""
        if self.buffer.on_chip:
            first = self.dims[0]
            dims = ((first.partition if first.count > 1 else 1, first.count),
                    *((d.free, d.count) for d in self.dims[1:]))
            return Access(self.dtype, self.partition.linear(place), self.free.linear(place), dims)
        return Access(self.dtype, None, self.free.linear(place), tuple((d.free, d.count) for d in self.dims))

    def same_place(self, other: "View") -> bool:
        return (self.buffer is other.buffer and self.dtype is other.dtype and self.dims == other.dims
                and self.partition.key == other.partition.key and self.free.key == other.free.key)

    def unproved(self, facts: Sequence[Index]) -> list[Index]:
        """What must still be checked to be ``>= 0`` at run time, given that ``facts`` (mask, enclosing ``if``) are.

        Without a related fact the interval is exact, so failing it is an error here and now; with one it is an upper
        estimate. A flat HBM offset cannot show that one dimension was overrun, hence the list.
        """
        found = []
        for limit in self.limits:
            index, extent = limit.index, limit.extent
            low, high = index.interval()
            if low >= 0 and high < extent:
                continue
            related = [f for f in facts if shares_variable(f, index)]
            if not related:
                for symbol in index.symbols:
                    if symbol.parents:              # derived symbols vary together: the interval is only an estimate
                        symbol.ask("a bound depends on its quotient or remainder")
                self.out_of_bounds(limit)
            low, high = index.interval_given(related)
            found += [index] * (low < 0) + [extent - 1 - index] * (high >= extent)
        return found

    def out_of_bounds(self, limit: Limit) -> None:
        low, high = limit.index.interval()
        raise OutOfBounds(tensor=self.buffer.name, dim=limit.dim, low=low, high=high, extent=limit.extent)


def shares_variable(a: Index, b: Index) -> bool:
    return not a.symbols.keys().isdisjoint(b.symbols) or any(x and y for x, y in zip(a.axes[::-1], b.axes[::-1]))


def trailing_axes(index: Index, rank: int) -> Index:
    """The index with axes of extent 1 put behind its own."""
    missing = rank - len(index.shape)
    return Index(index.const, index.symbols, index.axes + (0,) * missing, index.shape + (1,) * missing)


def substitute(index: Index, inner: Sequence[Index]) -> Index:
    """``index`` with axis k replaced by the affine index ``inner[k]``."""
    return sum((i * c for i, c in zip(inner, index.axes) if c), Index(index.const, index.symbols))


def expand_ellipsis(items: tuple, rank: int) -> tuple:
    """One subscript a dimension: ``...`` and missing trailing ones become full slices."""
    at = next((k for k, i in enumerate(items) if i is Ellipsis), len(items))
    given = [i for i in items if i is not Ellipsis]
    if len(given) > rank:
        raise TooManySubscripts(given=len(given), rank=rank)
    return (*given[:at], *[slice(None)] * (rank - len(given)), *given[at:])


def slice_span(item: Any, extent: int) -> tuple[Index, int, int]:
    """(start, step, count); a symbolic start keeps its symbol, the count must fold to a number."""
    if isinstance(item, DynamicSlice):
        return Index.of(item.start), 1, item.size
    # Python clips slices; a kernel's slice beyond the tensor is a mistake and keeps its written extent.
    start, stop = 0 if item.start is None else item.start, extent if item.stop is None else item.stop
    if isinstance(start, (int, np.integer)) and isinstance(stop, (int, np.integer)):
        start, stop = (int(b) + extent if b < 0 else int(b) for b in (start, stop))
    start, step = Index.of(start), 1 if item.step is None else int(item.step)
    if step <= 0:
        raise BadReshape(what=f"a slice has step {step}; steps are positive")
    length = (Index.of(stop) - start).as_int("the extent of a slice depends on it")
    return start, step, max(0, -(-length // step))


def regrouped(dims: Sequence[Dim], shape: Sequence[int]) -> list[Dim] | None:
    """Free dims with another shape where the elements' order allows it without a copy, else None (as NumPy does)."""
    old = [d for d in dims if d.count != 1]
    if any(d.free == 0 for d in old) and [d.count for d in old] != [n for n in shape if n != 1]:
        return None
    made: list[Dim] = []
    k = 0
    sizes = list(shape)
    j = 0
    while j < len(sizes):
        if sizes[j] == 1:
            made.append(ONE_MORE)
            j += 1
            continue
        # Group the fewest old and new dims whose extents have one product.
        new_group, old_group = [sizes[j]], []
        j += 1
        while math.prod(new_group) != math.prod(d.count for d in old_group) or not old_group:
            if math.prod(new_group) > math.prod(d.count for d in old_group):
                if k >= len(old):
                    return None
                old_group.append(old[k])
                k += 1
            else:
                if j >= len(sizes):
                    return None
                new_group.append(sizes[j])
                j += 1
        for outer, inner in zip(old_group, old_group[1:]):
            if outer.free != inner.free * inner.count:
                return None
        step = old_group[-1].free
        group = []
        for n in reversed(new_group):
            group.append(Dim(0, step, n))
            step *= n
        made += reversed(group)
    return made


def check_on_chip_shape(shape: tuple[int, ...], partition_dim: int) -> None:
    """Rules for creating an on-chip tensor."""
    if len(shape) < 2:
        raise RankTooSmall(shape=shape, extent=shape[0] if shape else 1)
    if shape[partition_dim] > PARTITIONS:
        raise TooManyPartitions(count=shape[partition_dim], limit=PARTITIONS)


def tile_of(view: View, place: dict[Symbol, int]) -> Tile:
    """The operand of an operation whose symbols are numbered by ``place``."""
    buffer = view.buffer
    return Tile(buffer.handle, buffer.space, buffer.physical_shape, buffer.dtype, view.access(place), buffer.name)
