# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts of tensors: integers, slices, ``...`` and ``nl.ds``, and run-time indices in a register or a tile.

An integer, a register or a tile of one integer selects an element of a dimension. A tile of several integers gathers a
row for each. Index vectors of the beta generation (``nl.arange``, ``nl.mgrid``) describe a strided view.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nki_mlir.capture.errors import BadSliceSize, TwoEllipses
from nki_mlir.capture.index import DynamicSlice, Index, broadcast_shape, refuse_one_dimension
from nki_mlir.capture.strides import EVERYTHING, NUMBERS, Shape, expand_ellipsis
from nki_mlir.diagnostics import KernelError
from nki_mlir.language.current.errors import core_rule, integer, invalid, of_core, out_of_range, require, step_fix
from nki_mlir.language.current.memory import Indirection, VirtualRegister
from nki_mlir.language.current.tensor import NkiTensor, one_index


@dataclass(frozen=True)
class RegisterSlice:
    """A slice ``ds(start, size)`` whose start is known at run time: a register or a tile of one integer."""

    start: VirtualRegister | NkiTensor
    size: int


def ds(start: object, size: int) -> "slice | RegisterSlice":
    """Return the slice ``start : start + size``. ``start`` may be a register or a tile of one integer."""
    count = integer(size, "ds size")
    core_rule(count >= 0, BadSliceSize, size=count)
    if isinstance(start, (VirtualRegister, NkiTensor)):
        one_index(start, "ds start")
        return RegisterSlice(start, count)
    begin = integer(start, "ds start")
    return slice(begin, begin + count, 1)


def subscript(tensor: NkiTensor, key: object) -> NkiTensor:
    """Return the view ``tensor[key]``. Integers drop their dimension, but an on-chip view keeps dimension 0 and at
    least one free dimension."""
    items = key if isinstance(key, tuple) else (key,)
    if (part := _plain_part(tensor, items)) is not None:
        return part
    if len(items) != tensor.ndim or not all([type(item) in NUMBERS for item in items]):
        items = _one_a_dimension(tensor, items)
        if any(isinstance(i, Index) for i in items):
            return picked(tensor, items)
    view = tensor
    dropped: list[int] = []
    shape, strides, offset = [*view.shape], [*view.strides], view.offset
    for dim, item in enumerate(items):
        if isinstance(item, (slice, int, np.integer)) and not isinstance(item, bool):
            drop, extent, stride = not isinstance(item, slice), shape[dim], strides[dim]
            if item == EVERYTHING:
                continue
            if dim == 0:
                view.check_sliceable()
            start, stop, step = _bounds(item, extent) if isinstance(item, slice) else _element(item, dim, extent)
            shape[dim], strides[dim], offset = -((start - stop) // step), stride * step, offset + start * stride
        else:
            if isinstance(item, NkiTensor) and item.size > 1:
                _check_gathered(tensor, item, dim, dropped)
            view, drop = _pick(view.of_pattern(shape, strides, offset), dim, item)
            shape = [*view.shape]
        if drop:
            dropped.append(dim)
    if dropped:
        dims = _remaining_dims(len(shape), dropped, tensor.on_chip)
        shape, strides = [shape[d] for d in dims], [strides[d] for d in dims]
    return view.of_pattern(shape, strides, offset)


def _one_a_dimension(tensor: NkiTensor, items: tuple[object, ...]) -> tuple[object, ...]:
    """Return a subscript for each dimension: ``...`` and missing ones become full slices."""
    core_rule(sum(i is Ellipsis for i in items) <= 1, TwoEllipses)
    count = sum(i is not Ellipsis for i in items)
    if count > tensor.ndim:
        inserts = any(i is None for i in items)
        out_of_range(f"too many indexes for shape {list(tensor.shape)}: {count}", "insert a dimension with "
                     "tile.expand_dim(dim)" if inserts else "give at most one subscript for each dimension",
                     code="NKI-SUBSCRIPT")
    return expand_ellipsis(items, tensor.ndim)


def _check_gathered(tensor: NkiTensor, indices: NkiTensor, dim: int, dropped: list[int]) -> None:
    """Check that a tensor of several indices can gather rows along a dimension; integers have dropped those before."""
    require(dropped == list(range(dim)), f"a tensor of {indices.size} indices can only index the first "
                                         f"dimension that no integer indexes, not dimension {dim}",
            fix="put it first, and integers or slices after it")
    require(not tensor.on_chip or dim == 0, "on chip a tensor of indices selects partitions",
            fix="use nisa.local_gather or nisa.nc_n_gather along the free dimensions")


def _remaining_dims(rank: int, dropped: list[int], on_chip: bool) -> list[int]:
    """Return the dimensions that a view keeps of those that integers index, and of the others."""
    removed = [d for d in dropped if d > 0 or not on_chip]
    if removed and rank - len(removed) < (2 if on_chip else 1):
        removed.pop()
    return [d for d in range(rank) if d not in removed]


def _plain_part(tensor: NkiTensor, items: tuple[object, ...]) -> NkiTensor | None:
    """Return the part of a tensor that slices between numbers inside of it select, one for each dimension; None for
    other subscripts."""
    shape = tensor.shape
    if len(items) != len(shape) or tensor.indirection is not None:
        return None
    extents, offset, strides = [], tensor.offset, tensor.strides
    for item, extent, stride in zip(items, shape, strides):
        if type(item) is not slice or item.step is not None:
            return None
        start, stop = item.start, item.stop
        if start is None and stop is None:
            extents.append(extent)
            continue
        if type(start) is not int or type(stop) is not int or not 0 <= start <= stop <= extent:
            return None
        extents.append(stop - start)
        offset += start * stride
    return NkiTensor.opened.of_parts(tensor.storage, _shape(*extents), strides, offset, tensor.dtype, tensor.base)


@lru_cache(4096)
def _shape(*extents: int) -> Shape:
    """Return the shape of these extents: one object for equal ones, which tables of shapes find fast."""
    return Shape(extents)


def _pick(view: NkiTensor, dim: int, item: object) -> tuple[NkiTensor, bool]:
    """Apply an item of a subscript that is neither an integer nor a slice of integers. Return the view with dimension
    ``dim`` restricted, and whether to drop it."""
    match item:
        case None:
            return view, False
        case VirtualRegister():
            return _dynamic(view, dim, item, 1), True
        case RegisterSlice():
            return _dynamic(view, dim, item.start, item.size), False
        case bool() | np.bool_():
            invalid("a bool cannot be an index", fix="use an integer, or select elements with nl.where",
                    code="NKI-SUBSCRIPT")
        case tuple() | list():
            invalid("nested tuple/list indexes not supported", fix="give each dimension an integer, a slice or a tile",
                    code="NKI-SUBSCRIPT")
        case NkiTensor():
            require(item.dtype.is_integer, f"an index tensor must have integers, got a tensor of {item.dtype}",
                    fix="create the tile with dtype=nl.int32", code="NKI-SUBSCRIPT")
            return (_dynamic(view, dim, item, 1), True) if item.size == 1 else (_rows(view, dim, item), False)
        case DynamicSlice():
            invalid("nl.ds of the beta generation (neuronxcc.nki) indexes a tensor of the current one (nki)",
                    fix="import nl from nki, or migrate the file that calls it: nki-migrate FILE",
                    code="NKI-GENERATIONS")
    invalid(f"a value of type {type(item).__name__} cannot be an index",
            fix="use integers, slices, nl.ds, nl.arange or nl.mgrid, a register or a tile of integers",
            code="NKI-SUBSCRIPT")


def _element(item: int | np.integer, dim: int, extent: int) -> tuple[int, int, int]:
    position = int(item) + extent if item < 0 else int(item)
    if not 0 <= position < extent:
        out_of_range(f"index {item} of dimension {dim} with size {extent}: index out of range of tensor dimension",
                     f"use -{extent} to {extent - 1}")
    return position, position + 1, 1


def _bounds(item: slice, extent: int) -> tuple[int, int, int]:
    start = 0 if item.start is None else integer(item.start, "slice", "NKI-SUBSCRIPT")
    stop = extent if item.stop is None else integer(item.stop, "slice", "NKI-SUBSCRIPT")
    start, stop = start + extent if start < 0 else start, stop + extent if stop < 0 else stop
    step = 1 if item.step is None else integer(item.step, "slice step", "NKI-SUBSCRIPT")
    if step < 1:
        invalid("slice step cannot be zero or negative", fix=step_fix(step), code="NKI-SLICE-STEP")
    if start < 0 or stop > extent or start > stop:
        fix = "start the slice at 0 or more, and before its end"
        if stop > extent:
            fix = f"end the slice at {extent}, for example with min(stop, {extent})"
            if item.step is not None and 0 < start < (size := stop - start) <= extent:            # nl.ds sets the step
                fix += (f"; nl.ds({start}, {size}) takes a start and a size, so {start} up to {size} is "
                        f"nl.ds({start}, {size - start})")
        out_of_range(f"slice {start}:{stop} of a dimension with size {extent}: index out of range of tensor dimension",
                     fix)
    return start, stop, step


def _dynamic(view: NkiTensor, dim: int, index: VirtualRegister | NkiTensor, size: int) -> NkiTensor:
    view.check_direct("a second index")
    view.check_steps(dim, "indexed")
    indirection = Indirection("scalar", index, view.strides[dim], view.shape[dim] - size + 1, dim)
    shape = (*view.shape[:dim], size, *view.shape[dim + 1:])
    return view.like(shape=shape, indirection=indirection)


def _rows(view: NkiTensor, dim: int, index: NkiTensor) -> NkiTensor:
    """Return a gather view with one row of dimension ``dim`` for each index."""
    view.check_direct("a second index")
    require(index.size == index.shape[0], f"a tile of indices must have shape [N, 1], got {list(index.shape)}",
            fix="give a tile of shape (N, 1)")
    indirection = Indirection("vector", index, view.strides[dim], view.shape[dim])
    return view.like(shape=(*view.shape[:dim], index.size, *view.shape[dim + 1:]), indirection=indirection)


# -- index vectors -----------------------------------------------------------------------------------------------------
def picked(tensor: NkiTensor, items: Sequence[object]) -> NkiTensor:
    """Return the view whose element ``(i, j)`` is element ``(items[0][i, j], items[1][i, j], ...)``. Each item is an
    integer or an index vector, one per dimension."""
    try:
        return _picked(tensor, items)
    except KernelError as error:
        raise of_core(error) from None


def _picked(tensor: NkiTensor, items: Sequence[object]) -> NkiTensor:
    for item in items:
        if isinstance(item, Index):
            refuse_one_dimension(item)
    if len(items) != tensor.ndim or any(isinstance(i, slice) for i in items):
        invalid("a subscript mixes slices with index tensors",
                fix="give an integer or an index tensor for each dimension, or slices and integers only",
                code="err_unsupported_mixing_basic_advanced_tensor_indexing")
    indices: list[Index] = []
    shape: tuple[int, ...] = ()
    for dim, (item, extent) in enumerate(zip(items, tensor.shape)):
        index = Index.of(item)
        if index.is_constant and index.const < 0:
            index = index + extent
        low, high = index.interval()
        if low < 0 or high >= extent:
            out_of_range(f"indices {low} to {high} of dimension {dim} with size {extent}: "
                         "index out of range of tensor dimension", f"keep the indices below {extent}")
        indices.append(index)
        shape = broadcast_shape(shape, index.shape)
    spread = [index.spread(shape) for index in indices]
    if tensor.on_chip:
        along = {axis for axis, c in enumerate(spread[0].axes) if c and shape[axis] > 1}
        require(along <= {0}, "the first dimension of index tensors is the partition's",
                fix="put the index of partitions first: nl.arange(n)[:, None]")
        require(shape[0] == 1 or not any(i.axes[0] for i in spread[1:]),
                "the index of a free dimension varies along the partition",
                fix="gather the elements of each partition with a DMA or nisa.nc_n_gather")
    steps = [sum(i.axes[axis] * step for i, step in zip(spread, tensor.strides)) for axis in range(len(shape))]
    start = sum(i.const * step for i, step in zip(spread, tensor.strides))
    return tensor.like(shape=shape, strides=steps, offset=tensor.offset + start)
