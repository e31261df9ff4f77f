# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses instructions for copies and expressions, and transposes their operands; ``folds.select`` serves any nest."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from nki_mlir.analysis.mask_boxes import Interval
from nki_mlir.dialects.access import PSUM, SBUF, Tile
from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.selection.cover import Cover
from nki_mlir.selection.emitter import TENSOR, VECTOR, Emitter
from nki_mlir.waist.expression import Node, is_copy
from nki_mlir.waist.tile_operand import TileNest, TileOperand, partition_axis, walked


class Selector:
    """Emits the instructions of a nest. ``interval`` returns the extremes of forms of its symbols at its position.

    ``pieces`` is the largest number of copies for a transfer under a mask that does not select a box of elements.
    """

    def __init__(self, emitter: Emitter, interval: Interval, pieces: int) -> None:
        self.emitter, self.interval, self.pieces = emitter, interval, pieces

    @staticmethod
    def by_lanes(nest: TileNest) -> TileNest:
        """Return the nest arranged by the axis along the partitions. If no operand on chip has such an axis, and the
        result is in HBM, use axis 0, unless an operand on chip has it within its partition."""
        axis = partition_axis(nest)
        if axis is None and nest.extents and not nest.output.on_chip and all(map(on_lanes, nest.inputs)):
            axis = 0
        return nest.arranged(axis)

    def elementwise(self, nest: TileNest) -> None:
        """Emit an arranged nest without mask."""
        self.emitter.bound(nest.extents, nest.limits)
        if is_copy(nest.body) and self.copied(nest):
            return None
        limit = self.emitter.machine.partitions
        if nest.extents[0] > limit:                     # only tensors in HBM have this many
            for part in nest.windows(0, limit):
                self.elementwise(part)
            return None
        axes = frozenset(range(1, len(nest.extents)))
        cover = self.cover(nest).in_parts(nest.body)
        if nest.output.on_chip:
            return cover.assign(nest.body, nest.output.tile(nest.extents), axes)
        return self.emitter.copy(nest.output.tile(nest.extents), cover.value(nest.body).tile(nest.extents))

    def copied(self, nest: TileNest) -> bool:
        """Emit a nest that copies its input, if a copy or a transpose suffices."""
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
        return Cover(self.emitter, nest, lambda operand: self.on_chip(operand, nest))

    def on_chip(self, operand: TileOperand, nest: TileNest) -> TileOperand:
        """Return the operand on chip, with axis 0 along its partitions."""
        if not operand.on_chip:
            return self.loaded(operand, nest)
        return operand if on_lanes(operand) else with_partition_layout(self.emitter, operand, nest.extents)

    def loaded(self, operand: TileOperand, nest: TileNest) -> TileOperand:
        """Return an SBUF buffer with the elements of an HBM operand, each once in a partition."""
        counts = [n if a == 0 or operand.moves(a) else 1 for a, n in enumerate(nest.extents)]
        tile = self.emitter.buffer(counts, operand.dtype)
        self.emitter.copy(tile, operand.tile(counts))
        steps = tuple(0 if a == 0 or not operand.moves(a) else step for a, (step, _) in enumerate(tile.access.dims))
        return walked(tile, steps, 0)

    def converted(self, operand: TileOperand, nest: TileNest, node: Node) -> TileOperand:
        """Compute the expression ``node``, whose ``Input`` 0 is the operand, into a new buffer, and return it."""
        single = replace(nest, inputs=(operand,)).with_body(node)
        return self.cover(single).in_parts(node).value(node)


# -- transposes --------------------------------------------------------------------------------------------------------
# A transpose moves an axis between the partitions and the free dims. Up to 32 x 32 the Vector engine transposes in any
# memory. Beyond that size the Tensor engine transposes floats exactly, from SBUF to PSUM; integers go in blocks of 32 x
# 32.

def on_lanes(operand: TileOperand) -> bool:
    """Return whether axis 0 of the nest steps along the operand's partitions, or not at all; true in HBM, which has
    none."""
    return not operand.on_chip or operand.lanes == 0 or (operand.lanes is None and operand.strides[0] == 0)


def with_partition_layout(emitter: Emitter, operand: TileOperand, extents: Sequence[int]) -> TileOperand:
    """Return a buffer with the operand's elements, laid out so that axis 0 of the nest goes along the partitions."""
    counts = [n if operand.moves(a) else 1 for a, n in enumerate(extents)]
    tile = emitter.buffer(counts, operand.dtype)
    steps = tuple(step if n > 1 else 0 for step, n in tile.access.dims)
    target = walked(tile, (0, *steps[1:]), 0 if counts[0] > 1 else None)
    transpose(emitter, target, operand, counts)
    return target


def transpose(emitter: Emitter, dst: TileOperand, src: TileOperand, counts: Sequence[int]) -> None:
    """Emit ``dst = src``: axis 0 goes along the partitions of dst, but not of src."""
    lanes = src.lanes if src.lanes is not None else 0
    rows = counts[lanes] if lanes else 1                        # partitions of src
    other_axes = [a for a in range(1, len(counts)) if a != lanes and counts[a] > 1]
    for index in itertools.product(*(range(counts[a]) for a in other_axes)):
        starts = [0] * len(counts)
        for axis, position in zip(other_axes, index):
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
