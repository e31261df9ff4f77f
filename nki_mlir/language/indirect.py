# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts with tiles in them: rows addressed by an index tile, and the copies from and to such places."""

import math
from typing import Any

from nki_mlir.dialects.nisa import indirect
from nki_mlir.frontend.index import Index
from nki_mlir.frontend.strides import expand_ellipsis
from nki_mlir.frontend.tensor import View
from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import Tensor, emit
from nki_mlir.language.run_time_index import (
    DynamicView,
    IndirectFreeDim,
    IndirectNotSupported,
    is_run_time,
    read,
    run_time_view,
    write,
)


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


ADDRESSED = (IndirectView, DynamicView)


def is_indirect(items: object) -> bool:
    return any([is_run_time(i) for i in (items if isinstance(items, tuple) else (items,))])


def subscript(view: View, items: object) -> "IndirectView | DynamicView":
    """A subscript that has a tile in it: rows of one dimension, or places that run-time indices move."""
    items = expand_ellipsis(items if isinstance(items, tuple) else (items,), view.ndim)
    columns = [k for k, i in enumerate(items) if isinstance(i, View) and i.shape[0] > 1]
    others = [k for k, i in enumerate(items) if is_run_time(i) and k not in columns]
    if len(columns) != 1 or others or any(_is_row_wise(i) for i in items[:columns[0]]):
        return run_time_view(view, items)
    at, = columns
    if any(_is_wide(i) for i in items[:at]) or math.prod(items[at].shape[1:]) > 1:
        raise IndirectFreeDim(dim=at, shape=view.shape).here()
    return rows_view(view, items, at)


def _is_wide(item: object) -> bool:
    return isinstance(item, slice) or (isinstance(item, Index) and bool(item.shape))


def _is_row_wise(item: object) -> bool:
    """Whether an index moves along axis 0, which a tile beside it counts, too."""
    return isinstance(item, Index) and bool(item.shape) and item.axes[0] != 0


def rows_view(view: View, items: tuple[Tensor, ...], at: int) -> IndirectView:
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


# -- operations --------------------------------------------------------------------------------------------------------
def mode_name(mode: object) -> str:
    return "error" if mode is None else getattr(mode, "name", str(mode))


def gather(src: "IndirectView | DynamicView", *, dst: object = None, dtype: object = None, mask: object = None,
           mode: object = None, engine: str = "unknown") -> Tensor:
    """The addressed elements as a new SBUF tile, or into ``dst``."""
    if isinstance(src, DynamicView):
        return read(src, dst=dst, dtype=dtype, mask=mask, mode=mode_name(mode), engine=engine)
    return ops.compute(indirect.DmaGatherOp, src.shape, src.dtype, {"src": src.table, "index": src.rows}, mask,
                       asked=dtype, destination=dst, mode=mode_name(mode))


def scatter(dst: "IndirectView | DynamicView", value: Any, *, mask: object = None, mode: object = None,
            rmw: str = "bypass", engine: str = "unknown") -> None:
    """The value's elements to the addressed places."""
    if isinstance(dst, DynamicView):
        write(dst, value, mask=mask, mode=mode_name(mode), rmw=rmw, engine=engine)
        return
    if not isinstance(value, View):
        value = creation.filled(dst.shape, float(value), dst.dtype)
    emit(indirect.DmaScatterOp, {"dst": dst.table, "src": value, "index": dst.rows}, mask, mode=mode_name(mode),
             rmw=rmw)


