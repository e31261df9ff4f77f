# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of the kernel that still have a mask, which no instruction of the machine has.

A mask that is a box makes the instruction smaller, and its operands are moved where the box begins at a partition that
the engine does not. Under any other mask a transfer becomes one for each box, and an instruction that works on each
row by itself one for each group of rows with the same active elements, which transfers bring together. Instructions
that are loop nests do not come here with other masks: they are structured operations by then.
"""

from collections.abc import Sequence
from dataclasses import replace

from nki_mlir.analysis.mask_boxes import Box, Interval, RowGroup, box_of, in_box, lawful, on_group, row_groups
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, SBUF, Access, Linear, Tile, active_elements
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import NisaOp
from nki_mlir.selection import masks
from nki_mlir.selection.emitter import Emitter


class MaskedInstruction:
    """One such instruction, to be emitted without its mask. ``pieces`` bounds the transfers it may become."""

    def __init__(self, emitter: Emitter, interval: Interval, pieces: int) -> None:
        self.emitter, self.interval, self.pieces = emitter, interval, pieces

    def convert(self, op: NisaOp) -> None:
        box = box_of(op.mask, op.iteration().extents, self.interval)
        if box is None:
            return None
        small = self.in_box(op, box)
        if not box.rest:
            return self.plain(lawful(small))
        if isinstance(op, DmaCopyOp):
            return masks.in_boxes(self.emitter, box.rest, box.counts, self.pieces,
                                  lambda starts, counts: self.plain(self.in_box(small, Box(starts, counts, ()))))
        if op.rows_apart:
            return self.by_rows(small)
        raise Unsupported(feature=f"a mask that is no box on '{op.full_name()}'",
                          instead="mask the operands when they are loaded, or split the operation")

    def by_rows(self, op: NisaOp) -> None:
        """The instruction for each group of rows; a case for each value of a symbol that the mask depends on."""
        extents, left = op.iteration().extents, self.pieces
        for values, mask in masks.cases(self.emitter.ranges, op.mask):
            groups = row_groups(op, active_elements(mask, extents))
            left -= sum(len(list(group.runs())) for group in groups)
            if left < 0:
                raise Unsupported(feature=f"'{op.full_name()}' under a mask that leaves more than {self.pieces} pieces "
                                          "of rows", instead="mask the operands when they are loaded")
            with self.emitter.where(values):
                for group in groups:
                    self.on_rows(op, group)

    def on_rows(self, op: NisaOp, group: RowGroup) -> None:
        """The instruction on buffers with the active elements of some rows, which are brought there and back."""
        axes = op.iteration().axes

        def buffer(name: str, tile: Tile, shape: tuple[int, ...]) -> Tile:
            space = HBM if tile.space == HBM else SBUF
            return replace(self.emitter.buffer(shape, tile.dtype, space), label=tile.label)
        made = on_group(op, group, buffer)
        read = {name for name, _ in op.sources()}
        for field, tile in op.operands():
            if field.name in read:
                self.moved(group, axes[field.name], getattr(made, field.name), tile, inwards=True)
        self.plain(made)
        for field, tile in op.operands():
            if field.writes:
                self.moved(group, axes[field.name], getattr(made, field.name), tile, inwards=False)

    def moved(self, group: RowGroup, axes: Sequence[int], own: Tile, tile: Tile, inwards: bool) -> None:
        """Copies between an operand and the buffer that has the group's part of it."""
        done = set()
        for row, first, rows, (start, *places), count in group.runs():
            element = dict(zip(group.free, places))
            starts = tuple(row if a == 0 else element.get(a, 0) for a in axes)
            counts = tuple(rows if a == 0 else count if a == group.free[-1] else 1 if a in group.free else n
                           for a, n in zip(axes, tile.shape))
            if (starts, counts) not in done:        # operands without some of the axes are the same for several runs
                done.add((starts, counts))
                there = replace(tile, access=tile.access.box(starts, counts))
                here = replace(own, access=self.in_group(group, axes, own, first, start, counts))
                self.emitter.copy(*((here, there) if inwards else (there, here)))

    @staticmethod
    def in_group(group: RowGroup, axes: Sequence[int], own: Tile, row: int, place: int, counts: Sequence[int]
                 ) -> Access:
        """The same elements in the buffer, in as many dims as the operand has."""
        steps = dict(zip((a for a in axes if a not in group.free[1:]), (step for step, _ in own.access.dims)))
        steps[group.free[-1]] = steps.get(group.free[0], 0)
        dims = tuple((steps.get(a, 1), n) for a, n in zip(axes, counts))
        flat = place * steps[group.free[-1]]
        if own.access.partition is None:
            return Access(own.dtype, None, Linear(flat + row * steps.get(0, 0)), dims)
        return Access(own.dtype, Linear(row if axes[0] == 0 else 0), Linear(flat), dims)

    def in_box(self, op: NisaOp, box: Box) -> NisaOp:
        return in_box(op, box, tuple(replace(c, form=c.form.moved(box.starts)) for c in op.limits))

    def plain(self, op: NisaOp) -> None:
        """Emit it without what is left of its mask."""
        op.mask = ()
        for piece in self.emitter.pieces(op):
            self.emitter.reach(piece)
