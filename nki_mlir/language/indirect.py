# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts with tiles in them: rows that an index tile selects, and run-time indices in any dimension.

A run-time index, the value of a tile plus an index, may stand beside slices, integers and indices. It acts like an
integer that is not known: it removes its dimension, and must be in the dimension's bounds. ``offset + index`` and
``nl.ds(offset, n)`` keep the dimension. A tile [N, 1] in HBM gives an index for each row.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from nki_mlir.capture.broadcasting import broadcast
from nki_mlir.capture.errors import BlockTensorNotTile, MixedIndexing
from nki_mlir.capture.index import DynamicSlice, Index, refuse_one_dimension
from nki_mlir.capture.strides import ONE_MORE, Limit, expand_ellipsis, first_lanes, from_front, slice_span, substitute
from nki_mlir.capture.tensor import View
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa.indirect import DmaGatherOp, DmaScatterOp
from nki_mlir.dialects.nki import movement
from nki_mlir.dialects.verifier import PartitionAccess, WrongDtype, WrongMemory
from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import Tensor, emit
from nki_mlir.scalar.dtypes import INT32, UINT32, DType


class ManyRunTimeIndices(KernelError, IndexError):
    code = "NKI-RUN-TIME-INDICES"
    message = "{count} dimensions of {shape} are indexed at run time; an access can have at most {most}"
    fix = "copy the part that the first of these indices selects to a tile, and index that"


class IndirectFreeDim(KernelError):
    code = "err_indirect_indices_free_dim"
    message = "an index tile addresses dimension {dim} of {shape}; it can address rows only"
    fix = "use the tile for the first dimension that no integer indexes, and nl.arange or slices for the others"


class DynamicIndex:
    """``offset_tile + index``: in a subscript, an index that is read from a tile at run time; elsewhere a sum."""

    def __init__(self, offset: View, index: Index) -> None:
        self.offset, self.index = offset, index

    @property
    def shape(self) -> tuple[int, ...]:
        return ops.broadcast_shape(self.offset.shape, self.index.shape, subject="add")

    @property
    def dtype(self) -> DType:
        return ops.result_dtype("add", self.offset, self.index, None, False)

    def __add__(self, other: Any) -> "DynamicIndex | Tensor":
        integers = isinstance(other, View) and {other.dtype, self.offset.dtype} <= {INT32, UINT32}
        if integers and math.prod(other.shape) == 1:
            return DynamicIndex(ops.binary("add", self.offset, other), self.index)
        if not isinstance(other, (int, np.integer, Index)):
            total: Tensor = self.as_sum() + other
            return total
        return DynamicIndex(self.offset, self.index + other)

    __radd__ = __add__

    def __sub__(self, other: object) -> "DynamicIndex | Tensor":
        return self + -other if isinstance(other, (int, np.integer, Index)) else self.as_sum() - other

    def as_sum(self) -> Any:
        """Return the tile of the sum, for uses outside of subscripts."""
        return ops.binary("add", self.offset, self.index)


SLICES = (slice, DynamicSlice)
PLAIN = {int, slice, Index, type(None), type(...)}      # subscripts without run-time indices


@dataclass
class RunTime:
    """A run-time subscript: the tile with its start, the index added to the start, and the extent if the subscript
    keeps the dimension."""

    offset: View
    index: Index
    size: int | None = None

    @staticmethod
    def of(item: object) -> "RunTime | None":
        size = item.size if isinstance(item, DynamicSlice) else None
        start = item.start if isinstance(item, DynamicSlice) else item
        if isinstance(start, DynamicIndex):
            return RunTime(start.offset, start.index, size)
        return RunTime(start, Index(), size) if isinstance(start, View) else None

    @property
    def rows(self) -> int:
        """The number of values."""
        return self.offset.shape[0]


def is_run_time(item: object) -> bool:
    return type(item) not in PLAIN and RunTime.of(item) is not None


class DynamicView:
    """The elements of a table that a subscript with run-time indices selects, counted from ``position`` on.

    ``indices`` has (index, scale, extent) of each such dimension; positions and indices are over the axes of the view.
    """

    def __init__(self, table: View, shape: tuple[int, ...], position: Index, run_time: Sequence[RunTime],
                 indices: Sequence[tuple[Index, int, int]], limits: Sequence[Limit], by_engine: bool) -> None:
        self.table, self.shape, self.position, self.run_time, self.indices = table, shape, position, run_time, indices
        self.limits, self.by_engine = tuple(limits), by_engine
        self.dtype, self.buffer, self.ndim = table.dtype, table.buffer, len(shape)

    def as_sum(self) -> View:
        """Raise the error for an operation other than a copy."""
        raise PlainDynamicCopy().here()

    def __getitem__(self, items: object) -> "DynamicView":
        """Return a part of a view in HBM, selected by slices and integers, or by index tensors. On chip only the
        complete view can be selected."""
        items = expand_ellipsis(items if isinstance(items, tuple) else (items,), self.ndim)
        if all(isinstance(i, slice) and i == slice(None) for i in items):
            return self
        if self.buffer.on_chip or any(is_run_time(i) for i in items) or any(f.rows > 1 for f in self.run_time):
            raise IndirectNotSupported(op="a subscript").here()
        static = fixed(items, self.shape)
        vectors = vectors_among(static.values(), items)
        shape, indexed = parts(static, self.shape)
        if vectors:
            shape = ops.broadcast_shape(*(i.shape for i in indexed), subject="a subscript")
        picked = [i.spread(shape) for i in indexed]
        limits = [l._replace(index=substitute(l.index, picked).spread(shape)) for l in self.limits]
        limits += [Limit(i, k, n, self.buffer.name) for k, (i, n) in enumerate(zip(picked, self.shape))
                   if not 0 <= i.interval()[0] <= i.interval()[1] < n]
        indices = [(substitute(i, picked).spread(shape), scale, extent) for i, scale, extent in self.indices]
        return DynamicView(self.table, shape, substitute(self.position, picked).spread(shape), self.run_time, indices,
                           limits, self.by_engine)

    def piece(self, tile: View) -> View:
        """Return a tile with the view's elements, limited to the bounds of its other dimensions."""
        return tile.like(limits=(*tile.limits, *self.limits)) if self.limits else tile

    def offsets(self) -> View:
        """Return the run-time offsets as a tile [rows, k] of int32 or uint32."""
        tiles = [f.offset.as_tile() for f in self.run_time]
        tiles = [t.reshape((t.shape[0], 1)) for t in tiles]
        if len(tiles) == 1 and tiles[0].dtype in (INT32, UINT32):
            return tiles[0]
        table = creation.new_tensor((max(t.shape[0] for t in tiles), len(tiles)), INT32)
        for k, tile in enumerate(tiles):
            column = table.subscript((slice(None), slice(k, k + 1)))
            ops.compute(movement.CopyOp, column.shape, INT32, {"src": tile.broadcast_to(column.shape)}, None,
                        destination=column)
        return table

    def attributes(self) -> dict[str, Any]:
        first_index, *further = self.indices
        second = further[0][0] if further else Index().spread(self.shape)
        return {"position": self.position, "first": first_index[0], "second": second,
                "scales": tuple(scale for _, scale, _ in self.indices),
                "extents": tuple(extent for _, _, extent in self.indices)}


class IndirectNotSupported(KernelError):
    code = "err_indirect_indices_are_not_supported_with_nki_api"
    message = "{op} does not take a tensor indexed by a tile"
    fix = "gather the rows with nl.load first"


class PlainDynamicCopy(KernelError):
    code = "err_copy_dynamic_indirect_indices_not_natively_supported"
    message = "a tile is addressed by an offset that is known only at run time"
    fix = "use nisa.tensor_copy_dynamic_src or nisa.tensor_copy_dynamic_dst"


def _plainly(self: "DynamicView | IndirectView", *operands: object) -> object:
    return self.as_sum()


def refuse_operators(view: type["DynamicView | IndirectView"]) -> None:
    """Let Python's operators raise the error for an operation other than a copy."""
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
        for form in ("", "r", "i"):
            setattr(view, f"__{form}{name}__", _plainly)
    for name in ("neg", "abs", "invert", "lt", "le", "gt", "ge"):
        setattr(view, f"__{name}__", _plainly)


refuse_operators(DynamicView)


# -- run-time indices --------------------------------------------------------------------------------------------------
def run_time_view(view: View, items: tuple[object, ...]) -> DynamicView:
    """Return the view of a subscript with run-time indices; ``items`` has an item per dimension."""
    run_time = {k: f for k, i in enumerate(items) if (f := RunTime.of(i)) is not None}
    check_offsets(view, items, run_time)
    static = fixed(items, view.shape, run_time)
    partition_axis = first_lanes(view.dims) if view.buffer.on_chip else None
    vectors = vectors_among([*static.values(), *(f.index for f in run_time.values())], items)
    shape, indices = advanced(static, run_time) if vectors else basic(view, static, run_time, partition_axis)
    return dynamic_view(view, static, run_time, shape, indices, partition_axis)


def fixed(items: Sequence[object], extents: Sequence[int],
          run_time: Container[int] = ()) -> dict[int, slice | Index | DynamicSlice]:
    """Return the subscripts that are not run-time indices: slices unchanged, others as indices that count from the
    front."""
    return {k: i if isinstance(i, SLICES) else from_front(i, n)
            for k, (i, n) in enumerate(zip(items, extents)) if k not in run_time}


def is_vector(item: object) -> TypeGuard[Index]:
    """Return whether a subscript is an index tensor."""
    return isinstance(item, Index) and bool(item.shape)


def vectors_among(indices: Iterable[object], items: Sequence[object]) -> list[Index]:
    """Return the index tensors of a subscript. A slice beside an index tensor is an error."""
    vectors = [i for i in indices if is_vector(i)]
    for index in vectors:
        refuse_one_dimension(index)
    if vectors and any(isinstance(i, SLICES) for i in items):
        raise MixedIndexing().here()
    return vectors


def check_offsets(view: View, items: tuple[object, ...], run_time: dict[int, RunTime]) -> None:
    """Check run-time indices. Indices for each row are for the first dimension that is not an integer, in HBM."""
    from nki_mlir.dialects.nisa.dynamic_access import MOST_INDICES  # start-up: few kernels index at run time
    if len(run_time) > MOST_INDICES:
        raise ManyRunTimeIndices(count=len(run_time), shape=view.shape, most=MOST_INDICES)
    for dim, f in run_time.items():
        if not f.offset.dtype.is_integer:
            raise WrongDtype(operand=f"index {dim}", op="a subscript", found=f.offset.dtype, expected="an integer type")
        if not f.offset.buffer.on_chip and not f.offset.shape:
            raise WrongMemory(operand=f"index {dim}", op="a subscript", expected="sbuf", found=f.offset.buffer.space)
        wide = f.size is not None or any(
            isinstance(i, SLICES) or (is_vector(i) and i.axes[0]) for i in items[:dim])
        if math.prod(f.offset.shape[1:]) > 1 or (f.rows > 1 and (wide or view.buffer.on_chip)):
            raise IndirectFreeDim(dim=dim, shape=view.shape)


def advanced(static: dict[int, Any], run_time: dict[int, RunTime]) -> tuple[tuple[int, ...], dict[int, Index]]:
    """Return the shape, and over its axes the index of each dimension that varies or has a run-time index."""
    indices = static | {k: f.index for k, f in run_time.items()}
    rank = max(len(i.shape) for i in indices.values())
    rows = [(f.rows, *(1,) * (rank - 1)) for f in run_time.values() if f.rows > 1]
    shape = ops.broadcast_shape(*(i.shape for i in indices.values()), *rows, subject="a subscript")
    return shape, {k: i.spread(shape) for k, i in indices.items() if k in run_time or i.shape}


def basic(view: View, static: dict[int, Any], run_time: dict[int, RunTime], partition_axis: int | None
          ) -> tuple[tuple[int, ...], dict[int, Index]]:
    """Return the same as ``advanced``, for slices and integers: an axis for each dimension that stays, at least two
    axes."""
    axes: list[tuple[int, int, bool]] = []          # dimension, extent, whether the index counts along the axis
    for dim in range(view.ndim):
        if dim in run_time:
            size, rows = run_time[dim].size, run_time[dim].rows
            if size is not None or rows > 1 or dim == partition_axis:
                axes.append((dim, size or rows, size is not None))
        elif isinstance(static[dim], SLICES):
            axes.append((dim, slice_span(static[dim], view.shape[dim])[2], True))
        elif dim == partition_axis:
            axes.append((dim, 1, False))
    if partition_axis is not None and axes[0][0] != partition_axis:
        raise BlockTensorNotTile(shape=tuple(n for _, n, _ in axes))
    dropped = [] if partition_axis is not None else [dim for dim in run_time if dim not in {dim for dim, _, _ in axes}]
    while len(axes) < 2:                            # an index leaves an axis of 1, else one is appended
        axes.append((dropped.pop(0) if dropped else view.ndim, 1, False))
        axes.sort()
    shape = tuple(n for _, n, _ in axes)
    indices = {dim: f.index.spread(shape) for dim, f in run_time.items()}
    for axis, (dim, _, counts) in enumerate(axes):
        if counts:
            along = Index().with_axes([int(a == axis) for a in range(len(shape))], shape)
            indices[dim] = indices[dim] + along if dim in indices else along
    return shape, indices


def parts(static: dict[int, Any], extents: Sequence[int]) -> tuple[tuple[int, ...], list[Index]]:
    """Return the shape that slices and integers leave, of at least two dimensions, and each dimension's index
    over it."""
    spans = {k: slice_span(i, extents[k]) for k, i in static.items() if isinstance(i, SLICES)}
    shape = tuple(count for _, _, count in spans.values())
    shape += (1,) * (2 - len(shape))
    along = {k: axis for axis, k in enumerate(spans)}
    picked: list[Index] = []
    for k, item in static.items():
        if k in spans:
            start, step, _ = spans[k]
            picked.append(start + Index().with_axes([step * (a == along[k]) for a in range(len(shape))], shape))
        else:
            picked.append(item)
    return shape, picked


def dynamic_view(view: View, static: Mapping[int, object], run_time: dict[int, RunTime], shape: tuple[int, ...],
                 indices: dict[int, Index], partition_axis: int | None) -> DynamicView:
    """Return the view over a table without the fixed dimensions.

    All other dimensions are complete; positions count their elements in row-major order.
    """
    by_engine = partition_axis is not None and partition_axis not in run_time
    picked = []
    limits = []
    for dim in range(view.ndim):
        item = static.get(dim, slice(None))
        if isinstance(item, Index):
            index = indices.get(dim)
            if by_engine and dim == partition_axis:
                item = partitions_of(index, item, shape)
            elif index is None:
                item = DynamicSlice(item, 1)
            else:
                item = slice(None)
                low, high = index.interval()
                if low < 0 or high >= view.shape[dim]:
                    limits.append(Limit(index, dim, view.shape[dim], view.buffer.name))
        picked.append(item)
    part = view.subscript(tuple(picked))
    order = [*([] if partition_axis is None else [partition_axis]),
             *(dim for dim in range(view.ndim) if dim != partition_axis and dim in indices)]
    counted = order[1:] if by_engine else [dim for dim in order if dim in indices]
    steps = {dim: math.prod(part.shape[j] for j in counted[n + 1:]) for n, dim in enumerate(counted)}
    position = Index().spread(shape)
    for dim in counted:
        position = position + indices[dim] * steps[dim]
    return DynamicView(restricted(part, order), shape, position, list(run_time.values()),
                       [(indices[dim], steps[dim], view.shape[dim]) for dim in run_time], limits, by_engine)


def partitions_of(index: Index | None, item: Index, shape: tuple[int, ...]) -> DynamicSlice:
    """Return the partitions that an engine's access uses."""
    if index is None:
        index = item.scalar_part().spread(shape)
    if any(index.axes[1:]) or (shape[0] > 1 and index.axes[0] != 1):
        raise PartitionAccess(what="a tile that is indexed at run time does not step through its partitions one by one")
    return DynamicSlice(index.scalar_part(), shape[0])


def restricted(view: View, order: Sequence[int]) -> View:
    """Return a view of the dimensions in ``order``; the others have one element. The view has at least
    two dimensions."""
    dims = [view.dims[k] for k in order]
    dims += [ONE_MORE] * (2 - len(dims))
    shape = tuple(d.count for d in dims)
    missing = (0,) * (len(dims) - len(order))
    return view.remapped(dims, lambda index: index.with_axes((*(index.axes[k] for k in order), *missing), shape)
                         if index.axes else index)


# -- rows that a tile names --------------------------------------------------------------------------------------------
class IndirectView:
    """A tensor whose rows are addressed by ``rows`` [N, 1]: ``table`` is [all rows, F...]."""

    def __init__(self, table: View, rows: View) -> None:
        self.table, self.rows = table, rows
        self.dtype, self.buffer = table.dtype, table.buffer
        self.shape = (rows.shape[0], *table.shape[1:])

    def __getitem__(self, items: object) -> "IndirectView":
        if items is Ellipsis or items is True or items == (Ellipsis,):
            return self
        raise IndirectNotSupported(op="a subscript").here()

    def as_sum(self) -> View:
        """Raise the error for an operation other than a copy."""
        raise IndirectNotSupported(op="an operation on tiles", fix="gather the rows with nl.load, compute on them, and "
                                   "scatter the results with nl.store").here()


refuse_operators(IndirectView)
ADDRESSED = (IndirectView, DynamicView)


def is_indirect(items: object) -> bool:
    return any([is_run_time(i) for i in (items if isinstance(items, tuple) else (items,))])


def subscript(view: View, items: object) -> "IndirectView | DynamicView":
    """Return the view of a subscript with a tile in it: rows of one dimension, or elements at run-time indices."""
    items = expand_ellipsis(items if isinstance(items, tuple) else (items,), view.ndim)
    columns = [k for k, i in enumerate(items) if isinstance(i, View) and i.shape[0] > 1]
    other_dims = [k for k, i in enumerate(items) if is_run_time(i) and k not in columns]
    # A tile of rows counts along axis 0: if another index does, too, all are run-time indices.
    rank = rank_of(items)
    if len(columns) != 1 or other_dims or any(is_vector(i) and len(i.shape) == rank and i.axes[0] for i in items):
        return run_time_view(view, items)
    at, = columns
    if any(isinstance(i, slice) or is_vector(i) for i in items[:at]) or math.prod(items[at].shape[1:]) > 1:
        raise IndirectFreeDim(dim=at, shape=view.shape).here()
    return rows_view(view, items, at)


def rank_of(items: Iterable[object]) -> int:
    """Return the rank of a subscript's index tensors. A tile of rows [N, 1] counts as an index tensor of rank 2."""
    return max([2, *(len(i.shape) for i in items if is_vector(i))])


def rows_view(view: View, items: tuple[Tensor, ...], at: int) -> IndirectView:
    """Return rows along dimension ``at``: the table has all rows, as axis 0, and the index tile selects among them."""
    extent = view.shape[at]
    rows = items[at].as_tile()
    if any(is_vector(i) for i in items):
        rank = rank_of(items)
        all_rows = Index(0, {}, (1, *(0,) * (rank - 1)), (extent, *(1,) * (rank - 1)))
        table = view.subscript(tuple(all_rows if k == at else of_each_row(i, rows, rank) for k, i in enumerate(items)))
    else:
        table = view.subscript(tuple(slice(None) if k == at else i for k, i in enumerate(items)))
    if table.ndim == 1:
        table = table.with_unit_dims([1], 2)
    return IndirectView(table, rows)


def of_each_row(item: object, rows: View, rank: int) -> object:
    """Return an index with extent 1 along the axis of the rows, which is the same for each row of the tile."""
    if not is_vector(item) or len(item.shape) < rank or item.shape[0] == 1:
        return item
    ops.broadcast_shape(item.shape, (rows.shape[0], *(1,) * (rank - 1)), subject="a subscript")
    return item.with_axes(item.axes, (1, *item.shape[1:]))


# -- operations --------------------------------------------------------------------------------------------------------
def mode_name(mode: object) -> str:
    return "error" if mode is None else getattr(mode, "name", str(mode))


def gather(src: IndirectView | DynamicView, *, dst: Any = None, dtype: object = None, mask: object = None,
           mode: object = None, engine: str = "unknown") -> Tensor:
    """Return the addressed elements as a new SBUF tile, or write them to ``dst``."""
    if isinstance(src, IndirectView):
        return ops.compute(DmaGatherOp, src.shape, src.dtype, {"src": src.table, "index": src.rows}, mask,
                           explicit_dtype=dtype, destination=dst, mode=mode_name(mode))
    from nki_mlir.dialects.nisa import dynamic_access as instructions  # start-up: few kernels index at run time
    cls, options = ((instructions.TensorCopyDynamicSrcOp, {"engine": engine}) if src.by_engine else
                (instructions.DmaDynamicReadOp, {"mode": mode_name(mode)}))
    views, attributes = {"src": src.table, "offset": src.offsets()}, src.attributes() | options
    if dst is None and not src.limits:
        return ops.compute(cls, src.shape, src.dtype, views, mask, explicit_dtype=dtype, **attributes)
    target = creation.new_tensor(src.shape, dtype or src.dtype) if dst is None else dst
    emit(cls, {"dst": src.piece(broadcast(target, src.shape)), **views}, mask, **attributes)
    return target


def scatter(dst: IndirectView | DynamicView, value: Any, *, mask: object = None, mode: object = None,
            rmw: str = "bypass", engine: str = "unknown") -> None:
    """Write the value's elements to the addressed ones."""
    if not isinstance(value, View):
        value = creation.filled(dst.shape, float(value), dst.dtype)
    if isinstance(dst, IndirectView):
        emit(DmaScatterOp, {"dst": dst.table, "src": value, "index": dst.rows}, mask, mode=mode_name(mode),
             rmw=rmw)
        return
    from nki_mlir.dialects.nisa import dynamic_access as instructions  # start-up: few kernels index at run time
    cls, options = ((instructions.TensorCopyDynamicDstOp, {"engine": engine}) if dst.by_engine else
                (instructions.DmaDynamicWriteOp, {"mode": mode_name(mode), "rmw": rmw}))
    source = dst.piece(broadcast(ops.match_destination(value, dst.shape, cls.name), dst.shape))
    emit(cls, {"dst": dst.table, "src": source, "offset": dst.offsets()}, mask, **dst.attributes(), **options)
