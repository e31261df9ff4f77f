# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves an axis between the partitions and the free dims.

Up to 32 x 32 the Vector engine transposes in any memory. Beyond, the Tensor engine does, from SBUF to PSUM, which is
exact for floats; integers go in blocks of 32 x 32.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from nki_mlir.dialects.access import PSUM, SBUF, Linear, Tile
from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.selection.emitter import TENSOR, VECTOR, Emitter
from nki_mlir.waist.tile_nest import TileOperand


def on_lanes(operand: TileOperand) -> bool:
    """Whether axis 0 of the nest goes along the operand's partitions, or leaves it where it is."""
    return not operand.on_chip or operand.lanes == 0 or (operand.lanes is None and operand.steps[0] == 0)


def relaid(emitter: Emitter, operand: TileOperand, extents: Sequence[int]) -> TileOperand:
    """A buffer with the operand's elements whose partitions go along axis 0."""
    counts = [n if operand.moves(a) else 1 for a, n in enumerate(extents)]
    tile = emitter.buffer(counts, operand.dtype)
    steps = tuple(step if n > 1 else 0 for step, n in tile.access.dims)
    target = TileOperand(tile.handle, SBUF, tile.base_shape, operand.dtype, operand.dtype, Linear(), Linear(),
                         (0, *steps[1:]), 0 if counts[0] > 1 else None)
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
    if max(src.shape) <= small:
        engine, size = VECTOR, small
    elif src.dtype.is_float:
        engine, size = TENSOR, machine.partitions
    else:
        engine, size = VECTOR, small
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
