# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses instructions for one loop nest: here for folds, which are reductions and matrix products.

``selector.py`` chooses for other nests without a mask, ``masks.py`` for those with one.
"""

from dataclasses import replace
from enum import Enum

from nki_mlir.analysis.mask_boxes import Box, box_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import PSUM, Tile, active_elements
from nki_mlir.dialects.nisa.elementwise import TensorTensorOp
from nki_mlir.dialects.nisa.matmul import NcMatmulOp
from nki_mlir.dialects.nisa.reduction import PARTITION_REDUCTIONS, TensorPartitionReduceOp, TensorReduceOp
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, UINT8, DType
from nki_mlir.selection import masks
from nki_mlir.selection.emitter import GPSIMD, TENSOR, VECTOR
from nki_mlir.selection.selector import Selector
from nki_mlir.waist.expression import Convert, Input, reads_output
from nki_mlir.waist.recognize import Fold, Product, fold_of, product_of
from nki_mlir.waist.tile_operand import TileNest, TileOperand, partition_axis


class FoldStart(Enum):
    """The start of a fold: the output's old values, or the identity. The identity replaces either only outputs into
    which active elements fold, or all outputs."""

    OLD, ACTIVE, ALL = range(3)


def select(selector: Selector, nest: TileNest, start: FoldStart = FoldStart.OLD) -> None:
    """Emit a nest. ``start``: the start of a fold."""
    if nest.reduced:
        select_fold(selector, nest, start)
    elif nest.mask:
        masks.select(selector, selector.by_lanes(nest))
    else:
        selector.elementwise(selector.by_lanes(nest))


def select_fold(selector: Selector, nest: TileNest, start: FoldStart) -> None:
    """Emit a nest with reduced axes."""
    if not reads_output(nest.body):
        return _assignment(selector, nest)
    fold = step_by_step_fold(nest)
    if fold is None:
        raise Unsupported(feature="a fold that is not an ALU operation of its output and a value",
                          instead="yield scalar.alu(output, value)")
    product = product_of(nest)
    if product is not None and product.in_float32 and len(nest.reduced) == 1:
        tiles = _product(nest, product)
        if tiles is not None:
            return _products(selector, tiles, start is not FoldStart.OLD)
    return _reduction(selector, nest, start)


def step_by_step_fold(nest: TileNest) -> Fold | None:
    """Return the fold of a nest into its output, step by step in the dtype of the output."""
    fold = fold_of(nest)
    return fold if fold is not None and not fold.converts and ALU[fold.fn].reduce is not None else None


def _assignment(selector: Selector, nest: TileNest) -> None:
    """Write a value that does not change along the reduced axes to each result that has an active element."""
    nest = nest.arranged(partition_axis(nest))
    emitter = selector.emitter
    emitter.bound(nest.extents, nest.limits)
    counts = tuple(1 if a in nest.reduced else n for a, n in enumerate(nest.extents))
    flags = touched(selector, nest) if nest.mask else None
    single = replace(nest, extents=counts, reduced=frozenset(), mask=())
    if flags is None:
        return selector.elementwise(single)
    cover = selector.cover(single).in_parts(nest.body)
    return masks.write_where(emitter, nest.output.tile(counts), cover.value(nest.body).tile(counts), flags)


# -- reductions --------------------------------------------------------------------------------------------------------
def _reduction(selector: Selector, nest: TileNest, start: FoldStart) -> None:
    # the partition axis of the result or, if it has none, of the folded values
    nest = nest.arranged(partition_axis(nest))
    fold = step_by_step_fold(nest)                                   # the forms refer to the arranged axes
    assert fold is not None
    fn, element = fold.fn, nest.expression(fold.value)
    emitter, flags, fresh = selector.emitter, None, start is not FoldStart.OLD
    everything = frozenset(range(1, len(nest.extents)))
    counts = tuple(1 if a in nest.reduced else n for a, n in enumerate(nest.extents))
    if nest.mask:
        emitter.bound((), ())                               # limits only have to hold for the active elements
        cover, flags = masks.cover(selector, nest), touched(selector, nest) if start is not FoldStart.ALL else None
        operand = element
        if fn == "add" and isinstance(element, Convert) and element.value.dtype.is_integer:
            operand = element.value                             # a sum of integers is exact, one of float32 is not
        filled = cover.buffer(operand.dtype, everything)
        cover.in_parts(operand).assign(operand, filled.tile(nest.extents), everything)
        identity = ALU[fn].identity(operand.dtype)
        assert identity is not None
        src = masks.replaced(selector, nest, filled.tile(nest.extents), float(identity))
    else:
        emitter.bound(nest.extents, nest.limits)
        src = selector.cover(nest).in_parts(element).read(element, element.dtype, everything,
                                                          widened=ALU[fn].group == "bitwise")
    dst = nest.output.tile(counts)
    if fresh and nest.output.on_chip and flags is None:
        return reduce_tile(selector, nest, fn, src, dst, element.dtype)
    result = emitter.buffer(counts, dst.dtype if fresh else element.dtype)
    reduce_tile(selector, nest, fn, src, result, element.dtype)
    if not fresh:
        total = dst if nest.output.on_chip and flags is None else emitter.buffer(counts, dst.dtype)
        emitter.emit(TensorTensorOp, VECTOR, dst=total, lhs=selector.on_chip(nest.output, nest).tile(counts),
                     rhs=result, op=fn)
        result = total
    return emitter.copy(dst, result) if flags is None else masks.write_where(emitter, dst, result, flags)


def reduce_tile(selector: Selector, nest: TileNest, fn: str, src: Tile, dst: Tile, compute: DType) -> None:
    """Emit the reduction of ``src`` to ``dst`` along the nest's reduced axes."""
    emitter = selector.emitter
    axes = tuple(sorted(nest.reduced - {0}))
    if compute is not FLOAT32 and ALU[fn].group != "bitwise":
        raise Unsupported(feature=f"a reduction by '{fn}' in {compute}", instead="reduce in float32")
    if 0 not in nest.reduced:
        return emitter.emit(TensorReduceOp, VECTOR, dst=dst, src=src, op=fn, axes=axes)
    if fn not in PARTITION_REDUCTIONS:
        raise Unsupported(feature=f"a reduction over partitions by '{fn}'",
                          instead="transpose the tile and reduce its free axis")
    if axes:
        rows = emitter.buffer((src.shape[0], *dst.shape[1:]), compute)
        emitter.emit(TensorReduceOp, VECTOR, dst=rows, src=src, op=fn, axes=axes)
        src = rows
    return emitter.emit(TensorPartitionReduceOp, GPSIMD, dst=dst, src=src, op=fn)


def touched(selector: Selector, nest: TileNest) -> Tile | None:
    """Return a tile of flags of the results of a masked fold that have an active element; None if all have one."""
    counts = tuple(1 if a in nest.reduced else n for a, n in enumerate(nest.extents))
    if not any(f.symbols for f in masks.forms_of(nest.mask)):
        if active_elements(nest.mask, nest.extents).any(axis=tuple(nest.reduced)).all():
            return None
    flags = selector.emitter.buffer(counts, UINT8)
    reduce_tile(selector, nest, "maximum", masks.predicate(selector, nest).tile(nest.extents), flags, FLOAT32)
    return flags


# -- matrix products ---------------------------------------------------------------------------------------------------
def _product(nest: TileNest, product: Product) -> TileNest | None:
    """Return the nest, arranged by the contracted axis, and its stationary and moving operands as inputs."""
    (contracted,) = nest.reduced
    nest = nest.arranged(contracted, keep=nest.output.lanes)
    rows = nest.output.lanes
    free = [a for a in range(1, len(nest.extents)) if nest.extents[a] > 1]
    a, b = (nest.inputs[k] for k in product.inputs)
    if rows is None:
        return None
    for stationary, moving in ((a, b), (b, a)):
        columns = [axis for axis in free if axis != rows]
        if (nest.extents[rows] == 1 or (stationary.moves(rows) and not moving.moves(rows))) and all(
                moving.moves(axis) and not stationary.moves(axis) for axis in columns) and all(
                o.moves(0) or nest.extents[0] == 1 for o in (a, b)):
            return replace(nest, inputs=(stationary, moving))
    return None


def _products(selector: Selector, nest: TileNest, fresh: bool) -> None:
    """Emit a product for each box of active elements. Boxes that add to the same result are adjacent: their results are
    in one box."""
    box = box_of(nest.mask, nest.extents, selector.interval)
    if box is None:
        return None
    nest = masks.boxed(nest, box)
    if not nest.mask:
        return _contraction(selector, nest, fresh)

    def product(starts: tuple[int, ...], counts: tuple[int, ...]) -> None:
        _contraction(selector, masks.boxed(nest, Box(starts, counts, ())), fresh)
    return masks.in_boxes(selector.emitter, nest.mask, nest.extents, selector.pieces, product, last_axis=0)


def _contraction(selector: Selector, nest: TileNest, fresh: bool) -> None:
    """Emit products of tiles, cut to the sizes that the engine takes, accumulated over the contracted axis."""
    machine, emitter = selector.emitter.machine, selector.emitter
    rows = nest.output.lanes
    assert rows is not None
    columns = [a for a in range(1, len(nest.extents)) if a != rows]
    axes = (rows, *columns) if columns else (rows, 0)       # a single column has no axis along which it moves
    for strip in nest.windows(columns[0], machine.moving_free_max) if len(columns) == 1 else [nest]:
        counts = (strip.extents[rows], *(strip.extents[a] for a in columns)) if columns else (strip.extents[rows], 1)
        emitter.bound(strip.extents, strip.limits)
        result = strip.output.tile(counts, axes)
        direct = result.space == PSUM and result.dtype is FLOAT32
        total = result if direct else emitter.buffer(counts, FLOAT32, PSUM)
        for k, part in enumerate(strip.windows(0, machine.partitions)):
            left, right = _multipliable(selector, part)
            emitter.emit(NcMatmulOp, TENSOR, dst=total, accumulate=k > 0 or (direct and not fresh),
                         stationary=left.tile((part.extents[0], counts[0]), (0, rows)),
                         moving=right.tile((part.extents[0], *counts[1:]), (0, *axes[1:])))
        if direct:
            continue
        if not fresh:
            before = emitter.buffer(counts, result.dtype)
            emitter.copy(before, result)
            emitter.emit(TensorTensorOp, VECTOR, dst=before, lhs=before, rhs=total, op="add")
            total = before
        emitter.copy(result, total)


def _multipliable(selector: Selector, nest: TileNest) -> list[TileOperand]:
    """Return both inputs in memories and dtypes that the Tensor engine accepts: no integers, and float32 only together
    with float32."""
    operands = [selector.on_chip(o, nest) for o in nest.inputs]
    dtypes = {o.dtype for o in operands}
    if any(d.is_integer for d in dtypes) or (len(dtypes) > 1 and FLOAT32 in dtypes):
        return [o if o.dtype is FLOAT32 else selector.converted(o, nest, Convert(FLOAT32, Input(o.dtype, 0)))
                for o in operands]
    return operands
