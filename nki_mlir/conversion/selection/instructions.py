# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of the kernel that still have a mask, which no instruction of the machine has.

A mask that is a box makes the instruction smaller, and its operands are moved where the box begins at a partition that
the engine does not. Under any other mask a transfer becomes one for each box. Instructions that are loop nests do not
come here with other masks: they are structured operations by then.
"""

from dataclasses import replace
from typing import Any

from nki_mlir.conversion.selection import masks
from nki_mlir.conversion.selection.emitter import Emitter
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import NisaOp
from nki_mlir.transforms.mask_boxes import Box, Interval, box_of, in_box


class MaskedInstruction:
    """One such instruction, to be emitted without its mask. ``pieces`` bounds the transfers it may become."""

    def __init__(self, emitter: Emitter, interval: Interval, pieces: int) -> None:
        self.emitter, self.interval, self.pieces = emitter, interval, pieces

    def convert(self, op: NisaOp) -> None:
        box = box_of(op.mask, op.iteration().extents, self.interval)
        if box is None:
            return None
        small: Any = self.in_box(op, box)
        if not box.rest:
            return self.plain(small)
        if isinstance(op, DmaCopyOp):
            return masks.in_boxes(self.emitter, box.rest, box.counts, self.pieces,
                                  lambda starts, counts: self.plain(self.in_box(small, Box(starts, counts, ()))))
        raise Unsupported(feature=f"a mask that is no box on '{op.full_name()}'",
                          instead="mask the operands when they are loaded, or split the operation")

    def in_box(self, op: Any, box: Box) -> Any:
        return in_box(op, box, tuple(replace(c, form=c.form.moved(box.starts)) for c in op.limits))

    def plain(self, op: Any) -> None:
        """Emit it without what is left of its mask."""
        op.mask, op.engine = (), op.runs_on.value
        for piece in self.emitter.pieces(op):
            self.emitter.reach(piece)
