# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses instructions for one loop nest: copies, expressions and folds here, masks in a module of their own."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from nki_mlir.analysis.mask_boxes import Box, Interval, box_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import PSUM, SBUF, Tile, active_elements
from nki_mlir.dialects.nisa.elementwise import TensorTensorOp
from nki_mlir.dialects.nisa.matmul import NcMatmulOp, NcTransposeOp
from nki_mlir.dialects.nisa.reduction import TensorPartitionReduceOp, TensorReduceOp
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, UINT8, DType
from nki_mlir.selection import masks
from nki_mlir.selection.cover import Cover
from nki_mlir.selection.emitter import GPSIMD, TENSOR, VECTOR, Emitter
from nki_mlir.waist.expression import Convert, Input, Node, is_copy, reads_output
from nki_mlir.waist.recognize import Fold, Product, fold_of, product_of
from nki_mlir.waist.tile_operand import TileNest, TileOperand, partition_axis, walked


class Selector:
    """Emits the instructions of a nest. ``interval`` has the extremes of forms of its symbols where it stands.

    ``pieces`` is how many copies a transfer under a mask that is no box may take.
    """

    def __init__(self, emitter: Emitter, interval: Interval, pieces: int) -> None:
        self.emitter, self.interval, self.pieces = emitter, interval, pieces

    def select(self, nest: TileNest, fresh: bool = False) -> None:
        """``fresh``: a fold starts from its identity, not from what the output holds."""
        if nest.reduced:
            select_fold(self, nest, fresh)
        elif nest.mask:
            masks.select(self, self.by_lanes(nest))
        else:
            self.elementwise(self.by_lanes(nest))

    @staticmethod
    def by_lanes(nest: TileNest) -> TileNest:
        """The nest arranged by the axis along the partitions; where all is in HBM, any axis serves."""
        axis = partition_axis(nest)
        return nest.arranged(0 if axis is None and nest.extents and not nest.output.on_chip else axis)

    def elementwise(self, nest: TileNest) -> None:
        """Emit an arranged nest without mask."""
        self.emitter.bound(nest.extents, nest.limits)
        if is_copy(nest.body) and self.copied(nest):
            return None
        limit = self.emitter.machine.partitions
        if nest.extents[0] > limit:                     # only HBM has so many
            for part in nest.windows(0, limit):
                self.elementwise(part)
            return None
        axes = frozenset(range(1, len(nest.extents)))
        cover = self.cover(nest)
        if nest.output.on_chip:
            return cover.assign(nest.body, nest.output.tile(nest.extents), axes)
        return self.emitter.copy(nest.output.tile(nest.extents), cover.value(nest.body).tile(nest.extents))

    def copied(self, nest: TileNest) -> bool:
        """Emit a nest that copies its input, if it takes no more than a copy or a transpose."""
        src, dst = nest.inputs[0], nest.output
        if not src.on_chip or not dst.on_chip or on_lanes(src):
            self.emitter.copy(dst.tile(nest.extents), src.tile(nest.extents))
            return True
        if all(dst.moves(a) == src.moves(a) for a, n in enumerate(nest.extents) if n > 1):
            transpose(self.emitter, dst, src, nest.extents)
            return True
        return False

    # -- operands ------------------------------------------------------------------------------------------------------
    def cover(self, nest: TileNest) -> Cover:
        return Cover(self.emitter, nest, lambda operand: self.brought(operand, nest))

    def brought(self, operand: TileOperand, nest: TileNest) -> TileOperand:
        """The operand on chip, its partitions along axis 0."""
        if not operand.on_chip:
            return self.loaded(operand, nest)
        return operand if on_lanes(operand) else relaid(self.emitter, operand, nest.extents)

    def loaded(self, operand: TileOperand, nest: TileNest) -> TileOperand:
        """An SBUF buffer with the elements of an HBM operand, each once in a partition."""
        counts = [n if a == 0 or operand.moves(a) else 1 for a, n in enumerate(nest.extents)]
        tile = self.emitter.buffer(counts, operand.dtype)
        self.emitter.copy(tile, operand.tile(counts))
        steps = tuple(0 if a == 0 or not operand.moves(a) else step for a, (step, _) in enumerate(tile.access.dims))
        return walked(tile, steps, 0)

    def converted(self, operand: TileOperand, nest: TileNest, node: Node) -> TileOperand:
        """A buffer with an expression of one operand, ``Input`` 0 of ``node``."""
        single = replace(nest, inputs=(operand,)).with_body(node)
        return self.cover(single).value(node)


# -- transposes --------------------------------------------------------------------------------------------------------
# Moves an axis between the partitions and the free dims.
# Up to 32 x 32 the Vector engine transposes in any memory. Beyond, the Tensor engine does, from SBUF to PSUM, which is
# exact for floats; integers go in blocks of 32 x 32.

def on_lanes(operand: TileOperand) -> bool:
    """Whether axis 0 of the nest goes along the operand's partitions, or leaves it where it is."""
    return not operand.on_chip or operand.lanes == 0 or (operand.lanes is None and operand.strides[0] == 0)


def relaid(emitter: Emitter, operand: TileOperand, extents: Sequence[int]) -> TileOperand:
    """A buffer with the operand's elements whose partitions go along axis 0."""
    counts = [n if operand.moves(a) else 1 for a, n in enumerate(extents)]
    tile = emitter.buffer(counts, operand.dtype)
    steps = tuple(step if n > 1 else 0 for step, n in tile.access.dims)
    target = walked(tile, (0, *steps[1:]), 0 if counts[0] > 1 else None)
    transpose(emitter, target, operand, counts)
    return target


def transpose(emitter: Emitter, dst: TileOperand, src: TileOperand, counts: Sequence[int]) -> None:
    """dst = src, where axis 0 goes along the partitions of dst but not along those of src."""
    lanes = src.lanes if src.lanes is not None else 0
    rows = counts[lanes] if lanes else 1                        # partitions of src
    others = [a for a in range(1, len(counts)) if a != lanes and counts[a] > 1]
    for index in itertools.product(*(range(counts[a]) for a in others)):
        starts = [0] * len(counts)
        for axis, position in zip(others, index):
            starts[axis] = position
        _transpose_tile(emitter, dst.at(starts).tile((counts[0], rows), (0, lanes)),
                        src.at(starts).tile((rows, counts[0]), (lanes, 0)))


def _transpose_tile(emitter: Emitter, dst: Tile, src: Tile) -> None:
    machine = emitter.machine
    small = machine.transpose_vector_max
    by_tensor = max(src.shape) > small and src.dtype.is_float
    engine, size = (TENSOR, machine.partitions) if by_tensor else (VECTOR, small)
    for p, f in itertools.product(range(0, src.shape[0], size), range(0, src.shape[1], size)):
        counts = min(size, src.shape[0] - p), min(size, src.shape[1] - f)
        source, target = _block(src, (p, f), counts), _block(dst, (f, p), counts[::-1])
        if target.dtype is source.dtype:
            emitter.emit(NcTransposeOp, engine, dst=target, src=source)
            continue
        middle = emitter.buffer(target.shape, source.dtype, PSUM if engine is TENSOR else SBUF)
        emitter.emit(NcTransposeOp, engine, dst=middle, src=source)
        emitter.copy(target, middle)


def _block(tile: Tile, starts: tuple[int, int], counts: tuple[int, int]) -> Tile:
    return replace(tile, access=tile.access.box(starts, counts))


# -- folds: reductions over free axes and over partitions, and matrix products -----------------------------------------
ACROSS_PARTITIONS = ("add", "maximum", "bitwise_or", "bitwise_and")


def select_fold(selector: Selector, nest: TileNest, fresh: bool) -> None:
    """Emit a nest with reduced axes."""
    if not reads_output(nest.body):
        return _assignment(selector, nest)
    fold = own_fold(nest)
    if fold is None:
        raise Unsupported(feature="a fold that is no ALU operation of its output and a value",
                          instead="yield scalar.alu(output, value)")
    product = product_of(nest)
    if product is not None and product.in_float32 and len(nest.reduced) == 1:
        tiles = _product(nest, product)
        if tiles is not None:
            return _products(selector, tiles, fresh)
    return _reduction(selector, nest, fresh)


def own_fold(nest: TileNest) -> Fold | None:
    """What a nest folds into its output, step by step in the dtype of that."""
    fold = fold_of(nest)
    return fold if fold is not None and not fold.converts and ALU[fold.fn].reduce is not None else None


def _assignment(selector: Selector, nest: TileNest) -> None:
    """A value that does not change along the reduced axes, written to each result that an active element goes into."""
    nest = nest.arranged(partition_axis(nest))
    emitter = selector.emitter
    emitter.bound(nest.extents, nest.limits)
    counts = tuple(1 if a in nest.reduced else n for a, n in enumerate(nest.extents))
    flags = touched(selector, nest) if nest.mask else None
    single = replace(nest, extents=counts, reduced=frozenset(), mask=())
    if flags is None:
        return selector.elementwise(single)
    cover = selector.cover(single)
    return masks.write_where(emitter, nest.output.tile(counts), cover.value(nest.body).tile(counts), flags)


# -- reductions --------------------------------------------------------------------------------------------------------
def _reduction(selector: Selector, nest: TileNest, fresh: bool) -> None:
    nest = nest.arranged(partition_axis(nest))             # of the result, or else of what is folded
    fold = own_fold(nest)                                   # its forms are of the arranged axes
    assert fold is not None
    fn, element = fold.fn, nest.expression(fold.value)
    emitter, flags = selector.emitter, None
    everything = frozenset(range(1, len(nest.extents)))
    counts = tuple(1 if a in nest.reduced else n for a, n in enumerate(nest.extents))
    if nest.mask:
        emitter.bound((), ())                               # for the active elements alone limits would have to hold
        cover, flags = masks.cover(selector, nest), touched(selector, nest)
        operand = element
        if fn == "add" and isinstance(element, Convert) and element.value.dtype.is_integer:
            operand = element.value                             # a sum of integers is exact, one of float32 is not
        filled = cover.buffer(operand.dtype, everything)
        cover.assign(operand, filled.tile(nest.extents), everything)
        identity = ALU[fn].identity(operand.dtype)
        assert identity is not None
        src = masks.replaced(selector, nest, filled.tile(nest.extents), float(identity))
    else:
        emitter.bound(nest.extents, nest.limits)
        src = selector.cover(nest).read(element, element.dtype, everything, widened=ALU[fn].group == "bitwise")
    dst = nest.output.tile(counts)
    if fresh and nest.output.on_chip and flags is None:
        return reduce_tile(selector, nest, fn, src, dst, element.dtype)
    result = emitter.buffer(counts, dst.dtype if fresh else element.dtype)
    reduce_tile(selector, nest, fn, src, result, element.dtype)
    if not fresh:
        total = dst if nest.output.on_chip and flags is None else emitter.buffer(counts, dst.dtype)
        emitter.emit(TensorTensorOp, VECTOR, dst=total, lhs=selector.brought(nest.output, nest).tile(counts),
                     rhs=result, op=fn)
        result = total
    return emitter.copy(dst, result) if flags is None else masks.write_where(emitter, dst, result, flags)


def reduce_tile(selector: Selector, nest: TileNest, fn: str, src: Tile, dst: Tile, compute: DType) -> None:
    """dst = src reduced along the nest's reduced axes."""
    emitter = selector.emitter
    axes = tuple(sorted(nest.reduced - {0}))
    if compute is not FLOAT32 and ALU[fn].group != "bitwise":
        raise Unsupported(feature=f"a reduction by '{fn}' in {compute}", instead="reduce in float32")
    if 0 not in nest.reduced:
        return emitter.emit(TensorReduceOp, VECTOR, dst=dst, src=src, op=fn, axes=axes)
    if fn not in ACROSS_PARTITIONS:
        raise Unsupported(feature=f"a reduction over partitions by '{fn}'",
                          instead="transpose the tile and reduce its free axis")
    if axes:
        rows = emitter.buffer((src.shape[0], *dst.shape[1:]), compute)
        emitter.emit(TensorReduceOp, VECTOR, dst=rows, src=src, op=fn, axes=axes)
        src = rows
    return emitter.emit(TensorPartitionReduceOp, GPSIMD, dst=dst, src=src, op=fn)


def touched(selector: Selector, nest: TileNest) -> Tile | None:
    """Flags of the results of a masked fold that some active element goes into; None where that is all of them."""
    counts = tuple(1 if a in nest.reduced else n for a, n in enumerate(nest.extents))
    if not any(f.symbols for f in masks.forms_of(nest.mask)):
        if active_elements(nest.mask, nest.extents).any(axis=tuple(nest.reduced)).all():
            return None
    flags = selector.emitter.buffer(counts, UINT8)
    reduce_tile(selector, nest, "maximum", masks.predicate(selector, nest).tile(nest.extents), flags, FLOAT32)
    return flags


# -- matrix products ---------------------------------------------------------------------------------------------------
def _product(nest: TileNest, product: Product) -> TileNest | None:
    """The nest, arranged by the contracted axis, with its stationary and its moving operand as inputs."""
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
    """A product for each box of active elements. Those that go into one result are neighbours: it is in one box."""
    box = box_of(nest.mask, nest.extents, selector.interval)
    if box is None:
        return None
    nest = masks.boxed(nest, box)
    if not nest.mask:
        return _contraction(selector, nest, fresh)

    def product(starts: tuple[int, ...], counts: tuple[int, ...]) -> None:
        _contraction(selector, masks.boxed(nest, Box(starts, counts, ())), fresh)
    return masks.in_boxes(selector.emitter, nest.mask, nest.extents, selector.pieces, product, last=0)


def _contraction(selector: Selector, nest: TileNest, fresh: bool) -> None:
    """Products of tiles, as many as the sizes take, accumulated over the contracted axis."""
    machine, emitter = selector.emitter.machine, selector.emitter
    rows = nest.output.lanes
    assert rows is not None
    columns = [a for a in range(1, len(nest.extents)) if a != rows]
    axes = (rows, *columns) if columns else (rows, 0)       # one column, along no axis
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
    """Both inputs where and as the Tensor engine takes them: no integers, and float32 only together with float32."""
    operands = [selector.brought(o, nest) for o in nest.inputs]
    dtypes = {o.dtype for o in operands}
    if any(d.is_integer for d in dtypes) or (len(dtypes) > 1 and FLOAT32 in dtypes):
        return [o if o.dtype is FLOAT32 else selector.converted(o, nest, Convert(FLOAT32, Input(o.dtype, 0)))
                for o in operands]
    return operands
