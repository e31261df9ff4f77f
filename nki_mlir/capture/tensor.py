# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors as base buffer plus strided view: subscripts, reshapes, broadcasts, and the bounds that are left to prove.

A ``View`` has a start (partition and free offset, both affine in loop variables) and per dimension a step through
partitions, a step through the free offset and an extent. Subscripting substitutes into that form, so that views of
views, block dimensions and strided patterns of any rank are one case. A bound that a subscript cannot prove by
itself is kept as a limit: the mask of the operation that uses the view, or an enclosing ``if``, may still exclude
the elements out of bounds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from nki_mlir.capture import errors, part_forms, strides
from nki_mlir.capture.affine import A, Affine, IndexChange, hold_nowhere, shares_variable
from nki_mlir.capture.index import DynamicSlice, Index, Mask, Symbol, broadcast_shape, refuse_one_dimension
from nki_mlir.capture.iterations import EnclosingIteration
from nki_mlir.capture.locations import user_frame, user_location
from nki_mlir.capture.strides import ONE_MORE, ZERO, Dim, Limit, Shape, from_front, slice_span, substitute
from nki_mlir.capture.view_rules import check_bits
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import HBM, Access, Tile
from nki_mlir.dialects.checked_bounds import record_check
from nki_mlir.dialects.verifier import OutOfBounds, PartitionAccess, TooManyPartitions
from nki_mlir.scalar.dtypes import DType

if TYPE_CHECKING:
    from typing_extensions import Self


# The forms of parts. The key has the view's form as an operand (if it is one), its memory and dims, and the subscripts
# without their starts.
_parts: dict[tuple[object, ...], "part_forms.PartForm"] = {}


@dataclass(eq=False, slots=True)
class Buffer:
    """One allocation. ``shape`` is as the kernel wrote it, ``partition_dim`` is the number of the
    partition dimension."""

    shape: tuple[int, ...]
    dtype: DType
    space: str
    name: str
    partition_dim: int = 0
    handle: Any = None          # an array (eager), or the holder of the SSA value (capture)
    scope: Any = None           # the block it was created in; eager: one object for each program
    role: str = "local"         # local, input or output
    shared: int | None = None   # of an output: its number among the tensors that all programs share
    created_at: Location | None = None      # where the kernel allocates it, for tensors in HBM
    read_at: Location | None = None     # where the kernel first reads it, for outputs that nothing has written before
    live_range: Any = None      # on chip (``on_chip_memory.OnChipTile``)
    movable: bool = False       # the compiler chose its memory, and copies it where an engine needs it elsewhere
    iteration: EnclosingIteration | None = None            # the iteration it was created in
    is_written: bool = False    # an operation has written to it


    origin: Any = None          # eager: its elements when all are unwritten, and
    unwritten: Any = None       # those that are still unwritten (``unwritten_tiles.Shadow``)
    fresh: bool = False         # a mask may have left elements unwritten (``builder.from_fresh``)

    @property
    def on_chip(self) -> bool:
        return self.space != HBM

    @property
    def physical_shape(self) -> tuple[int, ...]:
        """The shape with the partition dimension first; block dimensions (those before the partition) become
        free ones."""
        k = self.partition_dim if self.space != HBM else 0
        return self.shape if k == 0 else (self.shape[k], *self.shape[:k], *self.shape[k + 1:])


class View:
    """A buffer seen through a strided pattern. Immutable.

    ``mask`` restricts the operations that use the view; it is over the axes of the view. A subclass that refuses
    assignments to attributes has a subclass ``opened`` that accepts them: a view is of that class until all are set.
    """

    __slots__ = ("_tile", "buffer", "dims", "dtype", "free", "limits", "mask", "partition", "shape")
    opened: ClassVar[Any]
    closed: ClassVar[Any]

    def __init__(self, buffer: Buffer, partition: Index, free: Index, dims: tuple[Dim, ...], dtype: DType,
                 limits: tuple[Limit, ...] = (), mask: Mask | None = None) -> None:
        self.buffer, self.partition, self.free, self.dims, self.dtype = buffer, partition, free, dims, dtype
        self.limits, self.mask = limits, mask
        self.shape = Shape([d[2] for d in dims])
        self._tile: Tile | None = None          # memoized by ``plain_tile``; if set, the view is an operand
        if type(self) is not self.closed:
            self.__class__ = self.closed

    @classmethod
    def full(cls, buffer: Buffer) -> "Self":
        dims = part_forms.complete_dims(buffer.shape, buffer.partition_dim if buffer.on_chip else None)
        view: Self = cls.opened(buffer, ZERO, ZERO, dims, buffer.dtype)
        return view

    @classmethod
    def of_form(cls, buffer: Buffer, partition: Index, free: Index, dtype: DType, form: part_forms.PartForm,
                access: Access | None) -> "Self":
        """Return a view of a form, which is an operand if it has an access."""
        view: Self = object.__new__(cls.opened)
        view.buffer, view.partition, view.free, view.dtype = buffer, partition, free, dtype
        view.dims, view.shape, _, tile_form = form
        view.limits, view.mask, view._tile = (), None, None
        if access is not None:
            view._tile = tile = Tile(buffer.handle, buffer.space, buffer.physical_shape, buffer.dtype, access,
                                     buffer.name)
            tile._form = tile_form
        if cls.opened is not cls:
            view.__class__ = cls
        return view

    @classmethod
    def full_tile(cls, buffer: Buffer) -> "Self":
        """Return a view of all of an on-chip buffer whose partition dimension is the first."""
        form, access = part_forms.complete_part(buffer.shape, buffer.dtype.name, buffer.space)
        return cls.of_form(buffer, ZERO, ZERO, buffer.dtype, form, access)

    def like(self, *, partition: Index | None = None, free: Index | None = None, dims: tuple[Dim, ...] | None = None,
             dtype: DType | None = None, limits: tuple[Limit, ...] | None = None, mask: Mask | None = None) -> "Self":
        """Return the same view with some attributes replaced."""
        view: Self = self.opened(self.buffer, self.partition if partition is None else partition,
                                 self.free if free is None else free, self.dims if dims is None else dims,
                                 self.dtype if dtype is None else dtype, self.limits if limits is None else limits,
                                 self.mask if mask is None else mask)
        return view

    def remapped(self, dims: Sequence[Dim], change: IndexChange, partition: Index | None = None,
                 free: Index | None = None, limits: Sequence[Limit] = ()) -> "Self":
        """Return a view with other axes: ``change`` maps indices over the old axes to indices over the new ones."""
        changed = [l._replace(index=change(l.index)) for l in self.limits]
        mask = self.mask
        if mask is not None:
            mask = Mask(tuple((change(e), equal) for e, equal in mask.terms), mask.negated)
        return self.like(partition=partition, free=free, dims=tuple(dims), limits=(*changed, *limits), mask=mask)

    @property
    def ndim(self) -> int:
        return len(self.dims)

    # -- subscripts ----------------------------------------------------------------------------------------------------
    def subscript(self, items: object) -> "Self":
        part = self.numbered(items)
        return part if part is not None else self.unnumbered(items)

    def unnumbered(self, items: object) -> "Self":
        """Return the part that subscripts select, if some of them are not numbers but conditions, index tensors or
        symbols."""
        items = items if isinstance(items, tuple) else (items,)
        if len(items) == 1 and (mask := strides.condition_of(items[0])) is not None:
            mask = mask.spread(self.shape)
            return self.like(mask=mask if self.mask is None else self.mask & mask)
        items = strides.expand_ellipsis(items, self.ndim)
        if any(isinstance(i, Index) and i.shape for i in items):
            return self._advanced(items)
        return self._basic(items)

    def numbered(self, items: object) -> "Self | None":
        """Return the part of the view that subscripts of numbers select, if all elements of the view exist and the part
        is inside of it and not empty; else None. The forms of parts are memoized."""
        if self.limits or self.mask is not None:
            return None
        spans = strides.numbered_spans(items if isinstance(items, tuple) else (items,), self.dims)
        if spans is None:
            return None
        steps_and_counts, by_partition, by_free = spans
        buffer, dtype, tile = self.buffer, self.dtype, self._tile or self.plain_tile()
        on_chip = buffer.space != HBM
        key = (on_chip if tile is None else tile._form or tile.form, self.dims, *steps_and_counts)
        form = _parts.get(key)
        if form is None:
            if len(_parts) >= part_forms.MOST_PARTS:
                _parts.clear()
            form = _parts[key] = part_forms.part_form(self.dims, steps_and_counts, on_chip, tile)
        partition, free = self.partition.plus(by_partition), self.free.plus(by_free)
        pattern, access = form.pattern, None
        if pattern is not None and not (partition.symbols or free.symbols):
            access = part_forms.constant_access(dtype.name, partition.const if on_chip else None, free.const, pattern)
        return self.of_form(buffer, partition, free, dtype, form, access)

    def _advanced(self, items: Sequence[object]) -> "Self":
        for item in items:
            if isinstance(item, Index):
                refuse_one_dimension(item)
        if any(isinstance(i, (slice, DynamicSlice)) for i in items):
            raise errors.MixedIndexing
        shape: tuple[int, ...] = ()
        indices = []
        for item, dim in zip(items, self.dims):
            index = from_front(item, dim.count)
            indices.append(index)
            shape = broadcast_shape(shape, index.shape)
        return self._picked([i.spread(shape) for i in indices], shape)

    def _basic(self, items: Sequence[object]) -> "Self":
        partition, free, limits = self.partition, self.free, []
        starts: list[Index] = []
        spans: list[int] = []                       # as ``numbered_spans`` returns them
        for number, (item, (by_partition, by_free, extent)) in enumerate(zip(items, self.dims)):
            if isinstance(item, (slice, DynamicSlice)):
                start, step, count = slice_span(item, extent)
            else:
                start, step, count = from_front(item, extent), 0, 1
            starts.append(start)
            spans += step, count
            if by_partition:
                partition = partition + start * by_partition
            if by_free:
                free = free + start * by_free
            low, high = start.interval()
            if low < 0 or high + (count - 1) * step >= extent:
                limits.append(number)
        dims = strides.part_dims(self.dims, spans, self.buffer.on_chip)
        if not (limits or self.limits or self.mask is not None):
            return self.like(partition=partition, free=free, dims=dims)
        shape = tuple([d.count for d in dims])
        axes = strides.part_axes(self.dims, spans, self.buffer.on_chip)
        unused = [0] * (len(dims) - len(axes))
        picked = [start.with_axes([step if number == axis else 0 for axis in axes] + unused, shape)
                  for number, (start, step) in enumerate(zip(starts, spans[::2]))]
        return self.remapped(dims, lambda index: substitute(index, picked).spread(shape), partition, free,
                             [Limit(picked[number], number, self.dims[number].count) for number in limits])

    def _picked(self, picked: Sequence[Index], shape: tuple[int, ...]) -> "Self":
        """Return the part that one index per dimension selects. All have the new shape, which has two axes at least."""
        partition, free = self.partition, self.free
        steps_p, steps_f = [0] * len(shape), [0] * len(shape)
        limits = []
        for number, (index, dim) in enumerate(zip(picked, self.dims)):
            start = index.scalar_part()
            if dim.partition:
                partition = partition + start * dim.partition
            if dim.free:
                free = free + start * dim.free
            for axis, coefficient in enumerate(index.axes):
                if coefficient:
                    steps_p[axis] += dim.partition * coefficient
                    steps_f[axis] += dim.free * coefficient
            low, high = index.interval()
            if low < 0 or high >= dim.count:
                limits.append(Limit(index, number, dim.count))
        dims = [Dim(p, f, n) for p, f, n in zip(steps_p, steps_f, shape)]
        return self.remapped(dims, lambda index: substitute(index, picked).spread(shape), partition, free, limits)

    # -- other views ---------------------------------------------------------------------------------------------------
    def broadcast_to(self, shape: Sequence[int]) -> "Self":
        """Return a view that repeats elements (step 0) along dimensions of extent 1, including the partition. It has
        missing dimensions in front."""
        shape = tuple(shape)
        if shape == self.shape:
            return self
        dims = (ONE_MORE,) * (len(shape) - self.ndim) + self.dims
        if len(dims) != len(shape) or any(d.count not in (1, n) or n < 0 for d, n in zip(dims, shape)):
            raise errors.BadBroadcast(shape=tuple(self.shape), wanted=tuple(shape))
        spread = tuple(d if d.count == n else Dim(0, 0, n) for d, n in zip(dims, shape))
        return self.remapped(spread, lambda index: index.spread(shape))

    def with_unit_dims(self, axes: Sequence[int], rank: int) -> "Self":
        """Return a view with dimensions of extent 1 inserted at ``axes`` of the result, which has
        ``rank`` dimensions."""
        old_axes = [k for k in range(rank) if k not in axes]
        dims = [ONE_MORE] * rank
        for k, dim in zip(old_axes, self.dims):
            dims[k] = dim
        shape = tuple(d.count for d in dims)

        def change(index: A, /) -> A:
            coefficients = [0] * rank
            for k, c in zip(old_axes, index.axes):
                coefficients[k] = c
            return index.with_axes(coefficients, shape)
        return self.remapped(dims, change)

    def permuted(self, order: Sequence[int]) -> "Self":
        """Return the view with its dimensions in another order."""
        shape = tuple(self.dims[k].count for k in order)
        return self.remapped([self.dims[k] for k in order], lambda index: index.with_axes(
            [index.axes[k] for k in order], shape) if index.axes else index)

    def reshape(self, shape: Sequence[int], partition_dim: int | None = None) -> "Self":
        """Return the same elements in another shape, without moving data; the partition dimension stays
        one dimension."""
        shape = tuple(shape)
        if math.prod(shape) != math.prod(self.shape):
            raise errors.BadReshape(what=f"shape {self.shape} of {math.prod(self.shape)} elements does not reshape to "
                                    f"{shape}")
        lanes = next((k for k, d in enumerate(self.dims) if d.partition), None)
        if not self.buffer.on_chip or lanes is None:
            new_dims = strides.regrouped(self.dims, shape)
        else:
            at = lanes if partition_dim is None else partition_dim
            if at >= len(shape) or shape[at] != self.dims[lanes].count:
                raise errors.BadReshape(what=f"the reshape of {self.shape} to {shape} changes the partition dimension "
                                      f"{self.dims[lanes].count}")
            free = strides.regrouped(self.dims[:lanes] + self.dims[lanes + 1:], shape[:at] + shape[at + 1:])
            new_dims = None if free is None else [*free[:at], self.dims[lanes], *free[at:]]
        if new_dims is None:
            raise errors.BadReshape(what=f"a strided view of shape {self.shape} does not reshape to {shape} without a "
                                    "copy")
        return self.with_constant_limits("reshaped").like(dims=tuple(new_dims))

    def reinterpreted(self, dtype: DType) -> "Self":
        """Return the same bytes as another dtype; the last dimension scales with the sizes."""
        old, new = self.dtype.itemsize, dtype.itemsize
        if old == new:
            return self.like(dtype=dtype)
        *outer, inner = self.dims or (ONE_MORE,)
        check_bits((*self.shape[:-1], inner.count), self.dtype, dtype,
                   inner.count == 1 or (inner.free == 1 and not inner.partition),
                   [*(d.free for d in outer), self.free.const, *self.free.symbols.values()])
        dims = (*(Dim(d.partition, d.free * old // new, d.count) for d in outer),
                Dim(0, 1, inner.count * old // new))
        free = Index(self.free.const * old // new, {s: c * old // new for s, c in self.free.symbols.items()})
        return self.with_constant_limits("read as another dtype").like(dims=dims, free=free, dtype=dtype)

    def with_constant_limits(self, operation: str) -> "Self":
        """Return the view with limits that have no axes, since the axes are about to change; the other limits must
        hold here and now."""
        if self.mask is not None and any(any(e.axes) for e, _ in self.mask.terms):
            raise errors.MaskedView(what=operation)
        for limit in self.limits:
            if any(limit.index.axes):
                self.out_of_bounds(limit)
        return self.remapped(self.dims, Index.scalar_part) if self.limits or self.mask is not None else self

    # -- parts of operands ---------------------------------------------------------------------------------------------
    def as_tile(self) -> "Self":
        """Return the view with at least two dimensions, the partition (or the rows of an HBM tensor) first. Raise an
        error if its partitions are not in the form of a tile."""
        if self._tile is not None:
            return self
        dims = self.dims
        if len(dims) < 2:
            return self.with_unit_dims(range(len(dims), 2), 2)
        if self.buffer.space != HBM:
            partition_dim = dims[0]
            if any(d.partition and d.count > 1 for d in dims[1:]):
                if partition_dim.partition:
                    raise PartitionAccess(what="several axes of a tile step through its partitions")
                if not self.buffer.partition_dim:
                    raise errors.PartitionsNotFirst(shape=self.shape, count=max(d.count for d in dims if d.partition))
                raise errors.BlockTensorNotTile(shape=self.shape)
            if partition_dim.free and partition_dim.count > 1:
                if any(d.partition for d in dims):
                    raise PartitionAccess(what="the free offset of a tile differs from partition to partition")
                raise errors.BlockTensorNotTile(shape=self.shape)
            if partition_dim.count > part_forms.PARTITIONS:
                raise TooManyPartitions(count=partition_dim.count, limit=part_forms.PARTITIONS)
        return self

    def plain_tile(self) -> Tile | None:
        """Return the operand record if neither symbols nor a mask nor limits decide which elements are touched, else
        None."""
        if self._tile is None and not (self.limits or self.mask is not None or self.partition.symbols
                                       or self.free.symbols) and part_forms.is_tile(self.dims, self.buffer.on_chip):
            return tile_of(self, {})
        return self._tile

    def access(self, position_of: dict[Symbol, int]) -> Access:
        """Return the access pattern; ``position_of`` numbers the operation's symbols."""
        if self.partition.symbols or self.free.symbols:
            partition = self.partition.linear(position_of) if self.buffer.on_chip else None
            return Access(self.dtype, partition, self.free.linear(position_of),
                          part_forms.pattern_of(self.dims, self.buffer.on_chip))
        on_chip = self.buffer.on_chip
        return part_forms.constant_access(self.dtype.name, self.partition.const if on_chip else None, self.free.const,
                                          part_forms.pattern_of(self.dims, on_chip))

    def same_elements(self, other: "View") -> bool:
        return (self.buffer is other.buffer and self.dtype is other.dtype and self.dims == other.dims
                and self.partition.key == other.partition.key and self.free.key == other.free.key)

    def unproved(self, facts: Sequence[Affine], lift: IndexChange) -> list[Index]:
        """Return the indices that must be checked to be ``>= 0`` at run time. ``facts`` (the mask, enclosing ``if``s)
        are known to be.

        ``lift`` maps indices over the view's axes to indices over the operation's axes, as the facts have them. Without
        a related fact the interval is exact, so failing it is an error here and now; with one it is an upper estimate.
        The checks are a list, because a flat HBM offset cannot show that one dimension was overrun.
        """
        indices = []
        for limit in self.limits:
            index, extent = lift(limit.index), limit.extent
            low, high = index.interval()
            if low >= 0 and high < extent:
                continue
            related = [f for f in facts if shares_variable(f, index)]
            if not related and facts and hold_nowhere(facts):
                return []                           # nothing is accessed
            if not related:
                for symbol in index.symbols:
                    if symbol.parents:              # derived symbols vary together: the interval is only an estimate
                        symbol.request_number("a bound depends on its quotient or remainder")
                self.out_of_bounds(limit)
            low, high = index.interval_given(related)
            if (low < 0 or high >= extent) and (frame := user_frame()) is not None:
                record_check(user_location(), frame.f_code, limit.tensor or self.buffer.name, limit.dim)
            indices += [index] * (low < 0) + [extent - 1 - index] * (high >= extent)
        return indices

    def out_of_bounds(self, limit: Limit) -> None:
        low, high = limit.index.interval()
        raise OutOfBounds(tensor=limit.tensor or self.buffer.name, dim=limit.dim, low=low, high=high,
                          extent=limit.extent)


View.opened = View.closed = View


def tile_of(view: View, position_of: dict[Symbol, int]) -> Tile:
    """Return the operand record of a view for an operation whose symbols ``position_of`` numbers."""
    if view._tile is not None:
        return view._tile
    buffer = view.buffer
    tile = Tile(buffer.handle, buffer.space, buffer.physical_shape, buffer.dtype, view.access(position_of), buffer.name)
    if not (view.partition.symbols or view.free.symbols or view.limits or view.mask is not None):
        object.__setattr__(view, "_tile", tile)
    return tile
