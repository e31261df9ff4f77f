# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computations that fill tiles, and copies that other computations need not wait for.

A computation reads the source of a copy instead of the copy, or writes its result directly to the copy's target.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Protocol

from nki_mlir.targets.cpu.function import ByteRegion, ScratchBuffer
from nki_mlir.targets.cpu.schedule import reach_of
from nki_mlir.waist.fusion import ElementMove
from nki_mlir.waist.nest import Nest


class OnRegions(Protocol):
    """A nest on the regions of its operands."""

    @property
    def nest(self) -> Nest: ...
    @property
    def regions(self) -> Sequence[ByteRegion]: ...


def writes_once(nest: Nest) -> bool:
    """Whether all positions of the parallel axes are different elements of the output."""
    reach = 1
    for step, extent in sorted(zip(nest.outputs[0].strides, nest.extents)):
        if step and extent > 1:
            if step < reach:
                return False
            reach += step * (extent - 1)
    return all(nest.outputs[0].strides[a] > 0 for a in range(len(nest.extents))
               if a not in nest.reduced and nest.extents[a] > 1)


def filled_tile(call: OnRegions) -> ScratchBuffer | None:
    """Return the buffer if a computation writes every element of it once; else None."""
    nest, tile = call.nest, call.regions[-1].root
    if not isinstance(tile, ScratchBuffer) or len(nest.outputs) != 1 or nest.mask or not writes_once(nest):
        return None
    count = prod(n for axis, n in enumerate(nest.extents) if axis not in nest.reduced)
    return tile if count * nest.outputs[0].dtype.itemsize == tile.size else None


def zeroed_tile(call: OnRegions) -> ScratchBuffer | None:
    """Return the buffer if a computation fills all of it with zeros; else None."""
    return filled_tile(call) if is_zero_fill(call.nest) else None


def is_zero_fill(nest: Nest) -> bool:
    """Whether a nest only stores zeros."""
    step = nest.step(nest.results[0]) if not (nest.inputs or nest.reduced or nest.forms or nest.mask) else None
    return step is not None and step.kind == "constant" and float(step.number) == 0


def writes_all_between(call: OnRegions) -> bool:
    """Whether a computation writes every element from its first to its last one, each once."""
    nest = call.nest
    if len(nest.outputs) != 1 or nest.mask or not writes_once(nest):
        return False
    first, last = reach_of(nest, len(nest.inputs))
    count = prod(n for axis, n in enumerate(nest.extents) if axis not in nest.reduced)
    return count * nest.outputs[0].dtype.itemsize == last + 1 - first


def move_of(copy: OnRegions) -> ElementMove:
    """Return a nest that moves each element of its one input, as a move through which operands are followed."""
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
