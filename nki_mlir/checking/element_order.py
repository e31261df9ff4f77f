# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Find instructions whose result depends on the order in which they move their elements.

Executors read all operands before they write a result. A DMA moves the elements of its operands in any order, and an
engine one after the other. So on the device an instruction may read an element that it has itself overwritten, or
write one element twice.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from nki_mlir.capture.races.overlaps import element
from nki_mlir.capture.races.owners import row_bytes
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.dialects.access import Tile, active_elements, same_buffer, values_of
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.op import NisaOp, Op
from nki_mlir.scalar.dtypes import convert
from nki_mlir.targets.interpreter.execute import Pattern
from nki_mlir.waist.overlap import may_overlap

MOST_POINTS = 1 << 24           # most points of an iteration space that is enumerated


class OperandElements(NamedTuple):
    """The elements of an operand: for each point of an iteration space, the flat position in the buffer, and the
    index of the point along each axis that the operand has."""

    positions: np.ndarray
    axes: dict[int, np.ndarray]


def overwritten_operand(op: Op, views: Sequence[View]) -> tuple[str, tuple[int, ...]] | None:
    """Return the name of the tensor and the index of an element that an instruction reads for one element of its
    result, and overwrites by another; None if there is none."""
    if not isinstance(op, NisaOp) or not (op.is_loop_nest or isinstance(op, DataAddressed)):
        return None
    buffers = {field.name: view.buffer for (field, _), view in zip(op.operands(), views)}
    for name, target in op.targets():
        for read, tile in op.sources():                         # an engine reads row operands before it writes
            if read == name or read in op.row_operands or not may_overlap(target, tile) or (
                    isinstance(op, DataAddressed) and {read, name} != {"dst", "src"}):
                continue
            sizes = target.dtype.itemsize, tile.dtype.itemsize
            elements = elements_of(op, (name, read))
            if elements and (at := shared_position(elements[0], elements[1], sizes)) >= 0:
                return buffers[read].name, index_of(buffers[read], at * min(sizes))
    return None


def moves_by_dma(op: Op) -> bool:
    """Return whether an instruction is a DMA, which alone accesses HBM."""
    return op.queued or not all(tile.on_chip for _, tile in op.operands())


def repeated_element(op: Op, views: Sequence[View]) -> tuple[str, tuple[int, ...]] | None:
    """Return the name of the tensor and the index of an element that an instruction which has run wrote twice, with
    different values; None if there is none. An instruction that adds to its elements must not write any of them
    twice."""
    if not isinstance(op, DataAddressed) or op.addressed_by_data != "dst" or op.mask or any(
            same_buffer(tile, op.dst) for name, tile in op.sources() if name != "dst"):
        return None
    positions = selected(op).reshape(-1)
    inside = positions >= 0
    numbers, counts = np.unique(positions[inside], return_counts=True)
    if not (counts > 1).any():
        return None
    twice = np.isin(positions, numbers[counts > 1])
    if op.rmw == "bypass":
        values = convert(operand(op.src), op.dst.dtype, op.src.dtype).reshape(-1)
        twice &= bits(operand(op.dst).reshape(-1)[positions]) != bits(values)
        if not twice.any():
            return None
    point = np.unravel_index(int(positions[int(np.argmax(twice))]), op.dst.shape)
    at = int(Pattern(op.dst).elements(np.asarray(op.dst.handle), (), np.array(point)[:, None])[0])
    buffer = next(view.buffer for (field, _), view in zip(op.operands(), views) if field.name == "dst")
    return buffer.name, index_of(buffer, at * op.dst.dtype.itemsize)


def elements_of(op: Op, names: Sequence[str]) -> list[OperandElements]:
    """Return the elements of operands in the order of the iteration space; [] if it is too large, or if all operands
    access the same element at each point."""
    tiles = {field.name: tile for field, tile in op.operands()}
    if isinstance(op, DataAddressed):
        return [] if op.mask else [addressed(op, name) for name in names]
    iteration = op.iteration()
    extents = iteration.extents
    if prod(extents) > MOST_POINTS or (len({(tiles[name].access, iteration.axes[name]) for name in names}) == 1):
        return []
    active = active_elements(op.mask, extents) if op.mask else np.ones(extents, np.bool_)
    points = np.nonzero(active)
    elements = []
    for name in names:
        pattern, axes = Pattern(tiles[name]), iteration.axes[name]
        moving = [n == extents[axis] for axis, n in zip(axes, pattern.shape)]       # the others are broadcast
        flat = pattern.partition(()) * pattern.row + pattern.free(()) + np.zeros(len(points[0]), np.int64)
        for axis, step, moves in zip(axes, pattern.steps, moving):
            flat += points[axis] * step if moves else 0
        elements.append(OperandElements(flat, {axis: points[axis] for axis, moves in zip(axes, moving) if moves}))
    return elements


def addressed(op: DataAddressed, name: str) -> OperandElements:
    """Return the elements of the table or the piece of an instruction whose elements data select."""
    pattern = Pattern(op.table if name == op.addressed_by_data else op.piece)
    within = selected(op).reshape(-1) if name == op.addressed_by_data else np.arange(prod(op.piece.shape))
    numbers = np.flatnonzero(within >= 0)
    points = np.array(np.unravel_index(within[numbers], pattern.shape))
    return OperandElements(pattern.elements(np.asarray(pattern.tile.handle), (), points), {0: numbers})


def selected(op: DataAddressed) -> np.ndarray:
    """Return the flat positions in the table that data select, for each element of the piece."""
    tiles = {field.name: operand(tile) for field, tile in op.operands()}
    extents = op.iteration().extents
    return op.selected(tiles, [values_of(form, extents) for form in op.index_forms()])


def bits(values: np.ndarray) -> np.ndarray:
    """Return numbers that are equal if the bits of the values are equal."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def operand(tile: Tile) -> np.ndarray:
    return Pattern(tile).at(np.asarray(tile.handle), ())


def shared_position(target: OperandElements, source: OperandElements, sizes: Sequence[int]) -> int:
    """Return a position, in the smaller of two element sizes, at which one point writes an element and another point
    reads it; -1 if there is none. Points differ if they differ along an axis that both operands have."""
    axes = [axis for axis in target.axes if axis in source.axes]
    (at, points), (read_at, read_points) = (
        in_units(e, size // min(sizes), axes) for e, size in zip((target, source), sizes))
    if not at.size:
        return -1
    order = np.argsort(at, kind="stable")
    nearest = order[np.minimum(np.searchsorted(at[order], read_at), len(at) - 1)]
    differs = (at[nearest] == read_at) & (points[:, nearest] != read_points).any(axis=0)
    return int(read_at[int(np.argmax(differs))]) if differs.any() else -1


def in_units(elements: OperandElements, units: int, axes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of each unit of the elements, and the index of its point along each of the axes."""
    positions = (elements.positions[:, None] * units + np.arange(units)).reshape(-1)
    points = np.array([np.repeat(elements.axes[axis], units) for axis in axes]).reshape(len(axes), len(positions))
    return positions, points


def index_of(buffer: Buffer, at: int) -> tuple[int, ...]:
    """Return the index in its tensor of the element that has the byte ``at`` of the buffer."""
    row = row_bytes(buffer)
    return element(buffer, at // row, at % row) if buffer.on_chip else element(buffer, 0, at)
