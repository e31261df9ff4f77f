# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers masks, which no machine instruction has: a transfer becomes boxes, a computation a copy under a predicate.

A transfer with HBM moves only the active elements, by one DMA for each box of them. If the mask depends on a loop
variable, each value of the variable has a condition with separate DMAs. A computation on chip computes all elements
into a buffer, then copies the elements whose predicate is not 0; affine selections fill the predicate tile.

An instruction of the kernel may still have a mask. If the mask is a box, the instruction shrinks to the box, and its
operands are copied if the engine cannot begin at the first partition of the box. Under any other mask, a transfer is
split into one transfer for each box. A row-wise instruction is split into one for each group of rows with the same
active elements; transfers gather these rows. Loop nests have been converted to structured operations before this pass
sees their masks.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from nki_mlir.analysis.mask_boxes import Box, Interval, RowGroup, box_of, in_box, on_group, row_groups, verified_on_box
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import (
    HBM,
    PSUM,
    SBUF,
    Access,
    Constraint,
    Linear,
    Mask,
    Ranges,
    Tile,
    active_elements,
    same_elements,
)
from nki_mlir.dialects.nisa.elementwise import AffineSelectOp, TensorCopyPredicatedOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, MemsetOp, TensorCopyOp
from nki_mlir.dialects.op import NisaOp, changed
from nki_mlir.dialects.verification import in_buffer
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.scalar.dtypes import UINT8
from nki_mlir.selection.cover import Cover
from nki_mlir.selection.emitter import GPSIMD, VECTOR, Emitter
from nki_mlir.selection.selector import Selector
from nki_mlir.waist.expression import is_copy
from nki_mlir.waist.overlap import may_overlap
from nki_mlir.waist.tile_operand import TileNest, TileOperand, walked

Starts = tuple[int, ...]
Corner = tuple[Starts, Starts]          # starts and counts of a box


def select(selector: Selector, nest: TileNest) -> None:
    """Emit an arranged nest with a mask and without folds."""
    box = box_of(nest.mask, nest.extents, selector.interval)
    if box is None:
        return None
    nest = boxed(nest, box)
    if not nest.mask:
        return selector.elementwise(nest)
    # An instruction over all elements would also check the limits of inactive elements.
    selector.emitter.bound((), ())
    if is_copy(nest.body) and _by_dma(nest):
        return boxes(selector, nest, nest.output, nest.inputs[0])
    result = cover(selector, nest).in_parts(nest.body).value(nest.body)
    if nest.output.on_chip and contains(selector.interval, nest.output.tile(nest.extents)):
        return write_where(selector.emitter, nest.output.tile(nest.extents), result.tile(nest.extents),
                           predicate(selector, nest).tile(nest.extents))
    return boxes(selector, nest, nest.output, result)


def boxed(nest: TileNest, box: Box) -> TileNest:
    """Return the nest, restricted to a box that contains all its active elements."""
    for axis, (start, count) in enumerate(zip(box.starts, box.counts)):
        nest = nest.window(axis, start, count)
    return replace(nest, mask=box.mask)


def forms_of(mask: Mask) -> list[Linear]:
    return [c.form for c in mask]


def _by_dma(nest: TileNest) -> bool:
    """Return whether DMA transfers alone can copy: one side is in HBM."""
    spaces = {o.space for o in (nest.inputs[0], nest.output)}
    return PSUM not in spaces and spaces != {SBUF}


# -- transfers ---------------------------------------------------------------------------------------------------------
def contains(interval: Interval, tile: Tile) -> bool:
    """Return whether all elements of a tile, active or not, are in its buffer."""
    try:
        in_buffer(tile, interval, "")
    except OutOfBounds:
        return False
    return True


def cover(selector: Selector, nest: TileNest) -> Cover:
    """Cover a nest as if all its elements were active."""
    return Cover(selector.emitter, nest, lambda operand: gathered(selector, nest, operand))


def gathered(selector: Selector, nest: TileNest, operand: TileOperand) -> TileOperand:
    """Return the operand with elements that an engine may all read: a buffer with the active elements, if inactive ones
    may be outside of the tensor."""
    all_in = contains(selector.interval, operand.tile(nest.extents))
    if operand.on_chip and all_in:
        return selector.on_chip(operand, nest)
    static = not any(f.symbols for f in forms_of(nest.mask))
    if not static and all_in:                       # inactive elements can be read without effect
        return selector.loaded(operand, nest)
    tile = selector.emitter.buffer(nest.extents, operand.dtype)
    selector.emitter.emit(MemsetOp, VECTOR, dst=tile, value=0.0)
    steps = tuple(0 if a == 0 else step for a, (step, _) in enumerate(tile.access.dims))
    target = walked(tile, steps, 0)
    boxes(selector, nest, target, operand)
    return target


def boxes(selector: Selector, nest: TileNest, dst: TileOperand, src: TileOperand) -> None:
    """Copy the active elements of src to dst, box by box."""
    def copy(starts: Starts, counts: Starts) -> None:
        selector.emitter.bound(counts, tuple(c._replace(form=c.form.counted_from(starts)) for c in nest.limits))
        selector.emitter.copy(dst.at(starts).tile(counts), src.at(starts).tile(counts))
    in_boxes(selector.emitter, nest.mask, nest.extents, selector.pieces, copy)
    selector.emitter.bound((), ())


def in_boxes(emitter: Emitter, mask: Mask, extents: Sequence[int], limit: int,
             emit: Callable[[Starts, Starts], None], last_axis: int = -1) -> None:
    """Call ``emit(starts, counts)`` for each box, under a condition for each value of a symbol that the mask depends
    on.

    Axis ``last_axis`` is split last, so that positions along it stay in one box.
    """
    planned, remaining = [], limit
    for values, case_mask in cases(emitter.ranges, mask):
        boxes = list(itertools.islice(_boxes(case_mask, extents, limit, last_axis), remaining + 1))
        remaining -= len(boxes)
        if remaining < 0:
            raise Unsupported(feature=f"a transfer or product under a mask of more than {limit} boxes",
                              instead="raise pieces= of linalg-to-nisa, or select on chip")
        if boxes:
            planned.append((values, boxes))
    for values, boxes in planned:
        with emitter.where(values):
            for starts, counts in boxes:
                emit(starts, counts)


def cases(ranges: Ranges, mask: Mask) -> Iterator[tuple[dict[int, int], Mask]]:
    """Yield each combination of values of the symbols in a mask, with the mask for these values."""
    symbols = sorted({s for form in forms_of(mask) for s, _ in form.symbols})
    for values in itertools.product(*(range(low, high + 1) for low, high in (ranges[s] for s in symbols))):
        symbol_values = dict(zip(symbols, values))
        yield symbol_values, tuple(Constraint(Linear(c.form.at(symbol_values), (), c.form.axes), c.equal) for c in mask)


def _boxes(mask: Mask, extents: Sequence[int], limit: int, last_axis: int) -> Iterator[Corner]:
    """Partition the active elements into boxes. The search stops in each part once there are more than ``limit``
    boxes."""
    box = box_of(mask, extents, lambda form: (form.const, form.const))
    if box is None:
        return
    if not box.mask:
        yield box.starts, box.counts
        return
    axis = min((a for c in box.mask for a, _ in c.form.axes), key=lambda a: (a == last_axis, a))
    # (starts, counts) on the other axes -> [start, count] along the axis
    open_boxes: dict[Corner, list[int]] = {}
    for position in range(box.counts[axis]):
        at = [position if a == axis else 0 for a in range(len(extents))]
        fixed = tuple(c._replace(form=c.form.counted_from(at)) for c in box.mask)
        counts = [1 if a == axis else n for a, n in enumerate(box.counts)]
        inner = set(itertools.islice(_boxes(fixed, counts, limit, last_axis), limit + 1))
        for key in [k for k in open_boxes if k not in inner]:
            yield _along(box, axis, key, open_boxes.pop(key))
        for key in sorted(inner):
            open_boxes.setdefault(key, [position, 0])[1] += 1
    for key, run in open_boxes.items():
        yield _along(box, axis, key, run)


def _along(box: Box, axis: int, key: Corner, run: list[int]) -> Corner:
    starts, counts = key
    starts = tuple(b + (run[0] if a == axis else s) for a, (b, s) in enumerate(zip(box.starts, starts)))
    return starts, tuple(run[1] if a == axis else n for a, n in enumerate(counts))


# -- predicates --------------------------------------------------------------------------------------------------------
def predicate(selector: Selector, nest: TileNest) -> TileOperand:
    """Return a buffer that holds 1 for the active elements and 0 for the others."""
    cover = selector.cover(nest)
    flags = cover.buffer(UINT8, frozenset(a for f in forms_of(nest.mask) for a, _ in f.axes if a > 0))
    counts = [n if a == 0 or flags.moves(a) else 1 for a, n in enumerate(nest.extents)]
    selector.emitter.emit(MemsetOp, VECTOR, dst=flags.tile(counts), value=1.0)
    cleared(selector.emitter, nest.mask, flags.tile(counts), 0.0)
    return flags


def cleared(emitter: Emitter, mask: Mask, tile: Tile, value: float) -> None:
    """Overwrite the inactive elements of a tile with a value."""
    for constraint in mask:
        emitter.emit(AffineSelectOp, GPSIMD, dst=tile, src=tile, predicate=constraint.form, equal=constraint.equal,
                     value=value)


def replaced(selector: Selector, nest: TileNest, tile: Tile, value: float) -> Tile:
    """Return a tile whose inactive elements are overwritten with a value: the buffer itself, or a copy."""
    emitter = selector.emitter
    if tile.dtype.is_float or tile.dtype.bits < 32:
        cleared(emitter, nest.mask, tile, value)
        return tile
    filled = emitter.buffer(tile.shape, tile.dtype)         # affine_select would round 32-bit integers to float32
    emitter.emit(MemsetOp, VECTOR, dst=filled, value=value)
    write_where(emitter, filled, tile, predicate(selector, nest).tile(nest.extents))
    return filled


def write_where(emitter: Emitter, dst: Tile, value: Tile, flags: Tile) -> None:
    """Copy ``value`` to ``dst`` where the flags are not 0. Both have one dtype, so the bits do not change."""
    emitter.emit(TensorCopyPredicatedOp, VECTOR, dst=dst, src=value, predicate=flags)


def writes_sources(op: NisaOp) -> bool:
    """Return whether a part of an instruction may write elements that another part reads. If a source has the
    destination's elements on the same axes, no part does: it writes only elements that it reads."""
    axes, written = op.iteration().axes, op.targets()
    sources = [(name, tile) for name, tile in op.sources() if name not in dict(written)]
    return any(may_overlap(dst, src, op.ranges) and not (same_elements(dst, src) and axes[name] == axes[source])
               for name, dst in written for source, src in sources)


# -- instructions of the kernel that still have a mask -----------------------------------------------------------------
class MaskedInstruction:
    """Rewrites a masked instruction into instructions without masks; ``pieces`` bounds how many transfers it may
    become."""

    def __init__(self, emitter: Emitter, interval: Interval, pieces: int) -> None:
        self.emitter, self.interval, self.pieces = emitter, interval, pieces

    def convert(self, op: NisaOp) -> None:
        box = box_of(op.mask, op.iteration().extents, self.interval)
        if box is None:
            return None
        small = self.in_box(op, box)
        if not box.mask:
            return self.plain(verified_on_box(small))
        if isinstance(op, DmaCopyOp):
            return self.in_transfers(small, box)
        if op.rows_apart:
            return self.by_rows(small)
        raise Unsupported(feature=f"a mask that does not select a box of elements on '{op.full_name()}'",
                          instead="mask the operands when they are loaded, or split the operation")

    def in_transfers(self, op: NisaOp, box: Box) -> None:
        """Emit a transfer for each box of active elements. If one part could change an element that a later one reads,
        all use a buffer."""
        (_, src), = op.sources()
        (_, dst), = op.targets()
        steps = [op]
        if writes_sources(op):
            buffer = self.emitter.buffer(src.shape, src.dtype, src.space)
            steps = [changed(op, None, dst=buffer), changed(op, None, src=buffer, dst=dst)]
        for step in steps:
            def transfer(starts: Starts, counts: Starts, step: NisaOp = step) -> None:
                self.plain(self.in_box(step, Box(starts, counts, ())))
            in_boxes(self.emitter, box.mask, box.counts, self.pieces, transfer)

    def by_rows(self, op: NisaOp) -> None:
        """Emit the instruction once for each group of rows. If the mask depends on a symbol, do so under a condition
        for each of its values."""
        extents, remaining = op.iteration().extents, self.pieces
        for values, mask in cases(self.emitter.ranges, op.mask):
            groups = row_groups(op, active_elements(mask, extents))
            remaining -= sum(len(list(group.runs())) for group in groups)
            if remaining < 0:
                raise Unsupported(feature=f"'{op.full_name()}' under a mask that leaves more than {self.pieces} pieces "
                                          "of rows", instead="mask the operands when they are loaded")
            with self.emitter.where(values):
                parts = [self.on_buffers(op, group) for group in groups]
                if first := writes_sources(op):         # a group may write what another one reads
                    for group, part in zip(groups, parts):
                        self.gather(op, group, part, is_written=False)
                for group, part in zip(groups, parts):
                    if not first:
                        self.gather(op, group, part, is_written=False)
                    self.gather(op, group, part, is_written=True)
                    self.plain(part)
                    self.scatter(op, group, part)

    def on_buffers(self, op: NisaOp, group: RowGroup) -> NisaOp:
        """Return the instruction on buffers for the active elements of a group of rows."""
        def buffer(name: str, tile: Tile, shape: tuple[int, ...]) -> Tile:
            space = HBM if tile.space == HBM else SBUF
            return replace(self.emitter.buffer(shape, tile.dtype, space), label=tile.label)
        return on_group(op, group, buffer)

    def gather(self, op: NisaOp, group: RowGroup, part: NisaOp, is_written: bool) -> None:
        """Copy the active elements of operands that the instruction reads to the group's buffers: with ``is_written``,
        of the operands that it also writes, else of the others."""
        axes, read = op.iteration().axes, {name for name, _ in op.sources()}
        for field, tile in op.operands():
            if field.name in read and field.writes == is_written:
                self.moved(group, axes[field.name], getattr(part, field.name), tile, inwards=True)

    def scatter(self, op: NisaOp, group: RowGroup, part: NisaOp) -> None:
        """Copy the results from the group's buffers to their elements."""
        axes = op.iteration().axes
        for name, tile in op.targets():
            self.moved(group, axes[name], getattr(part, name), tile, inwards=False)

    def moved(self, group: RowGroup, axes: Sequence[int], group_tile: Tile, tile: Tile, inwards: bool) -> None:
        """Copy the group's rows of an operand to its buffer (``inwards``), or back."""
        copied = set()
        for row, first_row, rows, (start, *indices), count in group.runs():
            element = dict(zip(group.free, indices))
            starts = tuple(row if a == 0 else element.get(a, 0) for a in axes)
            counts = tuple(rows if a == 0 else count if a == group.free[-1] else 1 if a in group.free else n
                           for a, n in zip(axes, tile.shape))
            # if an operand lacks some axes, several runs share its elements
            if (starts, counts) not in copied:
                copied.add((starts, counts))
                operand_part = replace(tile, access=tile.access.box(starts, counts))
                group_part = replace(group_tile, access=self.in_group(group, axes, group_tile, first_row, start,
                                                                      counts))
                self.emitter.copy(*((group_part, operand_part) if inwards else (operand_part, group_part)))

    @staticmethod
    def in_group(group: RowGroup, axes: Sequence[int], group_tile: Tile, row: int, position: int, counts: Sequence[int]
                 ) -> Access:
        """Return the access to one run's elements in the group's buffer, with the same number of dims as the
        operand."""
        steps = dict(zip((a for a in axes if a not in group.free[1:]), (step for step, _ in group_tile.access.dims)))
        steps[group.free[-1]] = steps.get(group.free[0], 0)
        dims = tuple((steps.get(a, 1), n) for a, n in zip(axes, counts))
        flat = position * steps[group.free[-1]]
        if group_tile.access.partition is None:
            return Access(group_tile.dtype, None, Linear(flat + row * steps.get(0, 0)), dims)
        return Access(group_tile.dtype, Linear(row if axes[0] == 0 else 0), Linear(flat), dims)

    def in_box(self, op: NisaOp, box: Box) -> NisaOp:
        return in_box(op, box, tuple(c._replace(form=c.form.counted_from(box.starts)) for c in op.limits))

    def plain(self, op: NisaOp) -> None:
        """Emit the instruction without a mask."""
        op.mask = ()
        for piece in self.emitter.pieces(op):
            if isinstance(piece, TensorCopyOp) and piece.dst.space == piece.src.space == SBUF and not (
                    self.emitter.reachable(piece.dst) and self.emitter.reachable(piece.src)):
                self.emitter.copy(piece.dst, piece.src)     # a transfer, which can begin at any partition
            else:
                self.emitter.emit_with_copies(piece)
