# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of the kernel that still have a mask, which no instruction of the machine has.

A mask that is a box makes the instruction smaller, and its operands are moved where the box begins at a partition that
the engine does not. Under any other mask the instruction writes a buffer, from which the active elements are copied.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nki_mlir.conversion.selection import masks
from nki_mlir.conversion.selection.emitter import VECTOR, Emitter
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Constraint, Linear, Mask, Tile
from nki_mlir.dialects.nisa.movement import DmaCopyOp, MemsetOp
from nki_mlir.dialects.nisa.reduction import TensorReduceOp
from nki_mlir.dialects.op import NisaOp
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import UINT8
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
        for field, tile in small.operands():
            if not masks.contains(self.interval, tile):
                raise Unsupported(feature=f"operand '{field.name}' of '{op.full_name()}', which is outside its buffer "
                                          "where the mask does not hold", instead="mask it when it is loaded")
        if isinstance(small, TensorReduceOp):
            return self.reduction(small)
        if small.iteration().reduced or len(small.targets()) != 1:
            raise Unsupported(feature=f"a mask that is no box on '{op.full_name()}'",
                              instead="mask the operands when they are loaded, or split the operation")
        return self.elementwise(small)

    def in_box(self, op: Any, box: Box) -> Any:
        return in_box(op, box, tuple(replace(c, form=c.form.moved(box.starts)) for c in op.limits))

    def plain(self, op: Any) -> None:
        """Emit it without what is left of its mask."""
        op.mask, op.engine = (), op.runs_on.value
        for piece in self.emitter.pieces(op):
            self.emitter.reach(piece)

    def elementwise(self, op: Any) -> None:
        """The result goes to a buffer first, and from there where the mask holds."""
        (name, dst), = op.targets()
        axes = op.iteration().axes[name]
        mask = tuple(Constraint(Linear(c.form.const, c.form.symbols, tuple((axes.index(a), k) for a, k in c.form.axes)),
                                c.equal) for c in op.mask)
        result = self.emitter.buffer(dst.shape, dst.dtype)
        if any(n == name for n, _ in op.sources()):
            self.emitter.copy(result, dst)
        setattr(op, name, result)
        self.plain(op)
        masks.write_where(self.emitter, dst, result, self.flags(mask, dst.shape))

    def reduction(self, op: TensorReduceOp) -> None:
        """What is masked off is replaced by the identity; a result into which nothing goes keeps its value."""
        compute, mask, kept = op.compute, op.mask, op.dst
        identity = ALU[op.op].identity(compute)
        if identity is None:
            raise Unsupported(feature=f"a mask that is no box on a reduction by '{op.op}'",
                              instead="mask the operands when they are loaded")
        filled = self.emitter.buffer(op.src.shape, compute)
        self.emitter.copy(filled, op.src)
        masks.cleared(self.emitter, mask, filled, identity)
        result = self.emitter.buffer(kept.shape, kept.dtype)
        op.src, op.dst = filled, result
        self.plain(op)
        touched = self.emitter.buffer(kept.shape, UINT8)
        self.emitter.emit(TensorReduceOp, VECTOR, dst=touched, src=self.flags(mask, filled.shape), op="maximum",
                          axes=op.axes)
        masks.write_where(self.emitter, kept, result, touched)

    def flags(self, mask: Mask, shape: Sequence[int]) -> Tile:
        """A tile of 1 for the active elements and 0 for the others."""
        tile = self.emitter.buffer(shape, UINT8)
        self.emitter.emit(MemsetOp, VECTOR, dst=tile, value=1.0)
        masks.cleared(self.emitter, mask, tile, 0.0)
        return tile
