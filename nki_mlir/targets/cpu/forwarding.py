# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computations that fill tiles, and copies that other computations need not wait for.

A computation reads the source of a copy instead of the copy, or writes its result directly to the copy's target.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple, Protocol

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.native_nodes import ScratchBuffer
from nki_mlir.targets.cpu.schedule import dims_of, reach_of
from nki_mlir.waist.fusion import ElementMove
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.overlap import ByteRegion


class OnRegions(Protocol):
    """A nest on the regions of its operands."""

    @property
    def nest(self) -> Nest: ...
    @property
    def regions(self) -> Sequence[ByteRegion]: ...


def writes_once(nest: Nest) -> bool:
    """Return whether all positions of the parallel axes are different elements of the output."""
    reach = 1
    for step, extent in sorted(zip(nest.outputs[0].strides, nest.extents)):
        if step and extent > 1:
            if step < reach:
                return False
            reach += step * (extent - 1)
    return all(nest.outputs[0].strides[a] > 0 for a in range(len(nest.extents))
               if a not in nest.reduced and nest.extents[a] > 1)


def filled_tile(call: OnRegions) -> ScratchBuffer | None:
    """Return the buffer of which a computation writes every element once; None if there is none."""
    nest, tile = call.nest, call.regions[-1].root
    if not isinstance(tile, ScratchBuffer) or len(nest.outputs) != 1 or nest.mask or not writes_once(nest):
        return None
    count = prod(n for axis, n in enumerate(nest.extents) if axis not in nest.reduced)
    return tile if count * nest.outputs[0].dtype.itemsize == tile.size else None


def zeroed_tile(call: OnRegions) -> ScratchBuffer | None:
    """Return the buffer that a computation fills with zeros completely; None if there is none."""
    return filled_tile(call) if is_zero_fill(call.nest) else None


def is_zero_fill(nest: Nest) -> bool:
    """Return whether a nest only stores zeros."""
    step = nest.step(nest.results[0]) if not (nest.inputs or nest.reduced or nest.forms or nest.mask) else None
    return step is not None and step.kind == "constant" and float(step.number) == 0


def written_elements(nest: Nest) -> list[tuple[int, int]]:
    """Return (step, count) of the axes along which a nest writes each element once. Adjacent axes are merged, the
    smallest step comes first."""
    dims: list[tuple[int, int]] = []
    for step, count in sorted(zip(nest.outputs[0].strides, nest.extents)):
        if dims and step == dims[-1][0] * dims[-1][1]:
            dims[-1] = dims[-1][0], dims[-1][1] * count
        elif step and count > 1:
            dims.append((step, count))
    return dims


def writes_all_between(call: OnRegions) -> bool:
    """Return whether a computation writes each element once, without gaps between the first and the last one."""
    nest = call.nest
    if len(nest.outputs) != 1 or nest.mask or not writes_once(nest):
        return False
    first, last = reach_of(nest, len(nest.inputs))
    count = prod(n for axis, n in enumerate(nest.extents) if axis not in nest.reduced)
    return count * nest.outputs[0].dtype.itemsize == last + 1 - first


def move_of(copy: OnRegions) -> ElementMove:
    """Return a copy as a move, which rewrites operands of other nests from its target to its source, or back."""
    return ElementMove(copy.nest, copy.regions[0].offset, copy.regions[1].offset)


def reading_source(nest: Nest, number: int, region: ByteRegion, copy: OnRegions) -> tuple[Nest, ByteRegion] | None:
    """Return a nest that reads an input from the source of a copy instead of from its target, and the region of the
    source. Return None if it cannot read the source."""
    source = move_of(copy).at_source(nest.inputs[number], region.offset, nest.extents)
    if source is None:
        return None
    inputs = tuple([source[0] if k == number else operand for k, operand in enumerate(nest.inputs)])
    return replace(nest, inputs=inputs), replace(copy.regions[0], offset=source[1])


def writing_target(nest: Nest, region: ByteRegion, copy: OnRegions) -> tuple[Nest, ByteRegion] | None:
    """Return a nest that writes its output to the target of a copy instead of to its source, and the region of the
    target. Return None if the copy has other or more elements."""
    target = move_of(copy).at_target(nest.outputs[0], region.offset, nest.extents)
    count = prod(n for axis, n in enumerate(nest.extents) if axis not in nest.reduced)
    if target is None or count != copy.nest.elements:
        return None
    return replace(nest, outputs=(target[0],)), replace(copy.regions[1], offset=target[1])


# -- parts of tiles ----------------------------------------------------------------------------------------------------
class ByteBox(NamedTuple):
    """The same bytes of some rows of a tile, whose rows are ``line`` bytes apart; the ends are one past the last ones.
    """

    line: int
    rows: tuple[int, int]
    columns: tuple[int, int]

    @classmethod
    def filled_by(cls, offset: Linear, dims: Sequence[tuple[int, int]], size: int) -> "ByteBox | None":
        """Return the bytes at an offset in a tile of ``size``, by a step and a count for each axis, if they are a box;
        else None."""
        width, rows, remaining = 1, 1, sorted(dims)
        while remaining and remaining[0][0] == width:
            width *= remaining.pop(0)[1]
        line = remaining[0][0] if remaining else size
        for step, count in remaining:
            if step != line * rows:
                return None
            rows *= count
        return cls.enclosing(offset, [(1, width), (line, rows)], line)

    @classmethod
    def enclosing(cls, offset: Linear, dims: Sequence[tuple[int, int]], line: int) -> "ByteBox | None":
        """Return the smallest box with these bytes of a tile, whose rows are ``line`` bytes apart; None if they are not
        known or not in one."""
        if offset.symbols or offset.axes or offset.const < 0 or any(step < 0 for step, _ in dims):
            return None
        row, column = divmod(offset.const, line)
        down = sum([step // line * (count - 1) for step, count in dims if step % line == 0])
        along = sum([step * (count - 1) for step, count in dims if step % line])
        return cls(line, (row, row + down + 1), (column, column + along + 1)) if column + along < line else None

    def contains(self, offset: Linear, dims: Sequence[tuple[int, int]]) -> bool:
        """Return whether all bytes at an offset, by a step and a count for each axis, are in the box."""
        box = ByteBox.enclosing(offset, dims, self.line)
        return box is not None and all(start <= first and last <= end for (start, end), (first, last) in (
            (self.rows, box.rows), (self.columns, box.columns)))


def written_box(call: OnRegions) -> ByteBox | None:
    """Return the box of a buffer that a computation writes, each element once; None if it writes none."""
    nest, region = call.nest, call.regions[-1]
    if not isinstance(region.root, ScratchBuffer) or len(nest.outputs) != 1 or nest.mask or not writes_once(nest):
        return None
    dims = [(step, count) for step, count in dims_of(nest, len(nest.inputs)) if step and count > 1]
    return ByteBox.filled_by(region.offset, [(1, nest.outputs[0].dtype.itemsize), *dims], region.root.size)


def stays_inside(box: ByteBox, tile: ScratchBuffer, call: OnRegions) -> bool:
    """Return whether a computation uses only elements of a tile that are in a box."""
    return all(box.contains(region.offset, [(1, operand.dtype.itemsize), *dims_of(call.nest, number)])
               for number, (operand, region) in enumerate(zip(call.nest.operands, call.regions)) if region.root is tile)
