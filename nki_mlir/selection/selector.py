# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses instructions for one loop nest: copies and expressions here, folds and masks in modules of their own."""

from dataclasses import replace

from nki_mlir.analysis.mask_boxes import Interval
from nki_mlir.dialects.access import SBUF, ZERO
from nki_mlir.selection import folds, masks
from nki_mlir.selection.cover import Cover
from nki_mlir.selection.emitter import Emitter
from nki_mlir.selection.transposes import on_lanes, relaid, transpose
from nki_mlir.waist.expressions import Node, is_copy
from nki_mlir.waist.tile_nest import TileNest, TileOperand


class Selector:
    """Emits the instructions of a nest. ``interval`` has the extremes of forms of its symbols where it stands.

    ``pieces`` is how many copies a transfer under a mask that is no box may take.
    """

    def __init__(self, emitter: Emitter, interval: Interval, pieces: int) -> None:
        self.emitter, self.interval, self.pieces = emitter, interval, pieces

    def select(self, nest: TileNest, fresh: bool = False) -> None:
        """``fresh``: a fold starts from its identity, not from what the output holds."""
        if nest.reduced:
            folds.select(self, nest, fresh)
        elif nest.mask:
            masks.select(self, self.by_lanes(nest))
        else:
            self.elementwise(self.by_lanes(nest))

    @staticmethod
    def by_lanes(nest: TileNest) -> TileNest:
        """The nest arranged by the axis along the partitions; where all is in HBM, any axis serves."""
        axis = nest.partition_axis()
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
        return TileOperand(tile.handle, SBUF, tile.base_shape, tile.dtype, tile.dtype, ZERO, ZERO, steps, 0)

    def converted(self, operand: TileOperand, nest: TileNest, node: Node) -> TileOperand:
        """A buffer with an expression of one operand, ``Input`` 0 of ``node``."""
        single = replace(nest, inputs=(operand,), body=node)
        return self.cover(single).value(node)
