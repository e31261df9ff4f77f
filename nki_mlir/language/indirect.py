# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts with tiles in them: rows addressed by an index tile, and free offsets known at run time."""

import math
from typing import Any

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa import indirect
from nki_mlir.frontend.index import Index
from nki_mlir.frontend.locations import user_location
from nki_mlir.frontend.strides import Dim
from nki_mlir.frontend.tensor import View, expand_ellipsis
from nki_mlir.language import assignment, creation
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import emit
from nki_mlir.scalar.dtypes import INT32


class IndirectFreeDim(KernelError):
    code = "err_indirect_indices_free_dim"
    message = "an index tile addresses dimension {dim} of {shape}; it can address rows only"
    fix = "index the first dimension that is no integer with the tile, the others with nl.arange or slices"


class IndirectNotSupported(KernelError):
    code = "err_indirect_indices_are_not_supported_with_nki_api"
    message = "{op} does not take a tensor indexed by a tile"
    fix = "gather the rows with nl.load first"


class PlainDynamicCopy(KernelError):
    code = "err_copy_dynamic_indirect_indices_not_natively_supported"
    message = "a tile is addressed by an offset known at run time only"
    fix = "use nisa.tensor_copy_dynamic_src or nisa.tensor_copy_dynamic_dst"


class DynamicIndex:
    """``offset_tile + index``: as a subscript, an index whose start is read from a tile at run time; else their sum."""

    def __init__(self, offset: View, index: Index) -> None:
        self.offset, self.index = offset, index

    @property
    def shape(self) -> tuple[int, ...]:
        return ops.broadcast_shape(self.offset.shape, self.index.shape, what="add")

    @property
    def dtype(self) -> Any:
        return ops.result_dtype("add", self.offset, self.index, None, False)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, (int, np.integer, Index)):
            return self.as_sum() + other
        return DynamicIndex(self.offset, self.index + other)

    __radd__ = __add__

    def as_sum(self) -> Any:
        """The tile that it is where it is no subscript."""
        return ops.binary("add", self.offset, self.index)


class IndirectView:
    """A tensor whose rows are addressed by ``rows`` [N, 1]: ``table`` is [all rows, F...]."""

    def __init__(self, table: View, rows: View) -> None:
        self.table, self.rows = table, rows
        self.dtype, self.buffer = table.dtype, table.buffer
        self.shape = (rows.shape[0], *table.shape[1:])

    def __getitem__(self, items: Any) -> "IndirectView":
        if items is Ellipsis or items is True or items == (Ellipsis,):
            return self
        raise IndirectNotSupported(op="a subscript").located(user_location())


class DynamicView:
    """An on-chip tensor [P, N] at a run-time free offset plus ``position``, an index over the result's axes."""

    def __init__(self, source: View, offset: View, position: Index, shape: tuple[int, ...]) -> None:
        self.source, self.offset, self.position, self.shape = source, offset, position, shape
        self.dtype, self.buffer = source.dtype, source.buffer


def is_indirect(items: Any) -> bool:
    return any(isinstance(i, (View, DynamicIndex)) for i in (items if isinstance(items, tuple) else (items,)))


def subscript(view: View, items: Any) -> Any:
    """A subscript that has a tile or a dynamic index in it."""
    items = expand_ellipsis(items if isinstance(items, tuple) else (items,), view.ndim)
    places = [k for k, i in enumerate(items) if isinstance(i, (View, DynamicIndex))]
    if not view.buffer.on_chip and any(isinstance(i, DynamicIndex) or _is_row_wise(i) for i in items):
        rows = [k for k, i in enumerate(items) if isinstance(i, View) and i.shape[0] > 1]
        if not any(_is_row_wise(i) for k in rows for i in items[:k]):
            return offset_rows(view, items)
        places = rows
    at = places[0]
    if len(places) > 1:
        raise IndirectFreeDim(dim=places[1], shape=view.shape).located(user_location())
    item = items[at]
    if view.buffer.on_chip and (isinstance(item, DynamicIndex) or item.shape == (1, 1)):
        return dynamic(view, items, at)
    if isinstance(item, DynamicIndex) or any(_is_wide(i) for i in items[:at]):
        raise IndirectFreeDim(dim=at, shape=view.shape).located(user_location())
    return rows_view(view, items, at)


def _is_wide(item: Any) -> bool:
    return isinstance(item, slice) or (isinstance(item, Index) and bool(item.shape))


def _is_row_wise(item: Any) -> bool:
    """Whether an index moves along axis 0, which a tile beside it counts, too."""
    return isinstance(item, Index) and bool(item.shape) and item.axes[0] != 0


def offset_rows(view: View, items: tuple) -> IndirectView:
    """Rows of an HBM tensor at ``tile + row``: the row's own offset is added to the tile's in a new index tile.

    Offsets count the greatest step that divides all; each is a row of the table, and rows may overlap.
    """
    offsets = [(dim, item if isinstance(item, DynamicIndex) else DynamicIndex(item, Index()))
               for dim, item in zip(view.dims, items) if isinstance(item, (View, DynamicIndex))]
    indices = iter(offset.index for _, offset in offsets)
    picked = view.subscript(tuple(next(indices) if isinstance(i, (View, DynamicIndex)) else i for i in items))
    picked = picked.settled("addressed by a tile")
    first, *rest = picked.dims
    unit = math.gcd(first.free, *(dim.free for dim, _ in offsets)) or 1
    row: Any = Index(0, {}, (first.free // unit, 0), (first.count, 1)) if first.free else 0
    reach = abs(first.free) * (first.count - 1)
    for dim, offset in offsets:
        reach += dim.free * (dim.count - 1 - offset.index.interval()[1])
        scaled = ops.binary("multiply", offset.offset.as_tile(), dim.free // unit, dtype=INT32)
        if scaled.shape[0] < first.count:
            scaled = scaled.broadcast_to((first.count, 1))
        row = ops.binary("add", scaled, row, dtype=INT32)
    return IndirectView(picked.like(dims=(Dim(0, unit, reach // unit + 1), *rest)), row)


def rows_view(view: View, items: tuple, at: int) -> IndirectView:
    """Rows along dimension ``at``: the index tile replaced by all rows, which become axis 0."""
    extent = view.shape[at]
    rows = items[at].as_tile()
    if any(isinstance(i, Index) and i.shape for i in items):
        rank = max(len(i.shape) for i in items if isinstance(i, Index))
        every = Index(0, {}, (1, *(0,) * (rank - 1)), (extent, *(1,) * (rank - 1)))
        table = view.subscript(tuple(every if k == at else i for k, i in enumerate(items)))
    else:
        table = view.subscript(tuple(slice(None) if k == at else i for k, i in enumerate(items)))
    if table.ndim == 1:
        table = table.with_unit_dims([1], 2)
    return IndirectView(table, rows)


def dynamic(view: View, items: tuple, at: int) -> DynamicView:
    """A free offset: the dimension ``at`` as a whole, and the position that is added to the offset."""
    item = items[at]
    offset, index = (item.offset, item.index) if isinstance(item, DynamicIndex) else (item, Index())
    others = [i for k, i in enumerate(items) if k != at and isinstance(i, Index) and i.shape]
    shape: tuple[int, ...] = (view.shape[0], 1)
    if others or index.shape:
        shape = ops.broadcast_shape(*(i.shape for i in (index, *others)), what="a subscript")
    whole = view.subscript(tuple(slice(None) if k == at or (isinstance(i, Index) and i.shape) else i
                                 for k, i in enumerate(items)))
    if whole.shape[0] != shape[0]:
        partitions = next(i for i in others if i.axes[0])
        whole = whole.subscript((slice(partitions.const, partitions.const + shape[0]),))
    return DynamicView(whole, offset.as_tile(), index.spread(shape), shape)


# -- operations --------------------------------------------------------------------------------------------------------
def mode_name(mode: Any) -> str:
    return "error" if mode is None else getattr(mode, "name", str(mode))


def gather(src: IndirectView, *, dst: Any = None, dtype: Any = None, mask: Any = None, mode: Any = None) -> Any:
    """The addressed rows as a new SBUF tile, or into ``dst``."""
    return ops.compute(indirect.DmaGatherOp, src.shape, dtype or src.dtype, {"src": src.table, "index": src.rows}, mask,
                       destination=dst, explicit_dtype=dtype is not None, mode=mode_name(mode))


def scatter(dst: IndirectView, value: Any, *, mask: Any = None, mode: Any = None, rmw: str = "bypass") -> None:
    """The value's rows to the addressed rows."""
    if not isinstance(value, View):
        value = creation.filled(dst.shape, float(value), dst.dtype)
    emit(indirect.DmaScatterOp, {"dst": dst.table, "src": value, "index": dst.rows}, mask, mode=mode_name(mode),
             rmw=rmw)


def copy_dynamic_src(src: Any, *, dst: Any = None, dtype: Any = None, mask: Any = None, engine: str = "unknown") -> Any:
    if not isinstance(src, DynamicView):
        return ops.copy(src, dtype=dtype, mask=mask)
    return ops.compute(indirect.TensorCopyDynamicSrcOp, src.shape, dtype or src.dtype,
                       {"src": src.source, "offset": src.offset}, mask, destination=dst,
                       explicit_dtype=dtype is not None, position=src.position, engine=engine)


def copy_dynamic_dst(dst: Any, src: Any, *, mask: Any = None, engine: str = "unknown") -> Any:
    if not isinstance(dst, DynamicView):
        assignment.assign(dst, src, mask)
        return dst
    emit(indirect.TensorCopyDynamicDstOp, {"dst": dst.source, "src": src, "offset": dst.offset}, mask,
             position=dst.position.spread(src.shape), engine=engine)
    return dst
