# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles in other layouts: a pass that stores a tile in another layout changes each computation that uses the tile."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.contraction import NestContraction, TileProduct, contraction_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.native_nodes import Compute, RoutineCall, ScratchBuffer, compute
from nki_mlir.waist.nest import Nest, Operand

SlotRanges = dict[int, tuple[int, int]]         # the least and greatest value of each slot
Moves = Sequence[tuple[int, tuple[int, int]]]   # steps in bytes, each with its least and its greatest count


class TileLayout(Protocol):
    """The layout of a tile in memory. Distances, steps and sizes are in bytes."""

    def moved(self, distance: int) -> int:
        """Return the distance from the tile's begin in this layout to the element that is ``distance`` bytes from it in
        the old layout."""
        ...

    def step(self, step: int) -> int:
        """Return the step in this layout of a step in the old layout."""
        ...

    def size(self, size: int) -> int:
        """Return the size in this layout of a region of whole rows that has ``size`` bytes in the old layout."""
        ...

    def divided(self, nest: Nest, number: int, product: NestContraction | None) -> Nest | None:
        """Return the nest with its axes divided so that operand ``number`` has constant steps along each axis in this
        layout; None if that is impossible. ``product`` is the nest as a product in the old layout."""
        ...

    def contains(self, size: int, offset: Linear, moves: Moves) -> bool:
        """Return whether the elements of ``size`` bytes that the moves from ``offset`` reach have constant steps in
        this layout."""
        ...

    def preserves_speed(self, before: NestContraction, after: NestContraction | None) -> bool:
        """Return whether the product ``after`` on tiles in this layout is as fast as ``before``, the product on tiles
        in the old layout."""
        ...


def change_layouts(function: NativeFunction,
                   layout_of: Callable[[ScratchBuffer, Sequence[RoutineCall]], TileLayout | None]) -> None:
    """Store tiles in the layouts that ``layout_of`` returns, if all calls that use a tile can address it there."""
    new_calls: dict[RoutineCall, Compute] = {}
    for buffer, users in function.users().items():
        calls = [new_calls.get(user, user) for user in users]
        if not calls or (layout := layout_of(buffer, calls)) is None:
            continue
        changed = [in_layout(call, buffer, layout, function.ranges) for call in calls]
        if all(changed):
            new_calls |= {user: call for user, call in zip(users, changed) if call is not None}
            buffer.size = layout.size(buffer.size)
    function.replace_calls(new_calls)


def in_layout(call: RoutineCall, buffer: ScratchBuffer, layout: TileLayout, ranges: SlotRanges) -> Compute | None:
    """Return the computation that uses a buffer in a layout; None if its elements have no constant steps there."""
    if not isinstance(call, Compute):
        return None
    nest, regions, product = call.nest, list(call.regions), contraction_of(call.nest)
    for k, region in enumerate(regions):
        if region.root is not buffer:
            continue
        divided = layout.divided(nest, k, product)
        if divided is None:
            return None
        operand = divided.operands[k]
        size = operand.dtype.itemsize
        steps = [step * size for step in operand.strides]
        moves = [*zip(steps, [(0, extent - 1) for extent in divided.extents]),
                 *[(step, ranges[slot]) for slot, step in region.offset.symbols]]
        if not layout.contains(size, region.offset, moves):
            return None
        nest = with_operand(divided, k, Operand(operand.dtype, tuple([layout.step(step) // size for step in steps])))
        offset = Linear(layout.moved(region.offset.const),
                        tuple([(slot, layout.step(step)) for slot, step in region.offset.symbols]))
        regions[k] = replace(region, size=layout.size(region.size), offset=offset)
    if product is not None and not layout.preserves_speed(product, contraction_of(nest)):
        return None
    if isinstance(call.function, TileProduct):
        addresses = tuple([region.address for region in regions])
        return Compute(replace(call.function, nest=nest), addresses, nest, regions)
    return compute(nest, regions, call.symbols, call.streams)


def with_operand(nest: Nest, number: int, operand: Operand) -> Nest:
    operands = [operand if k == number else other for k, other in enumerate(nest.operands)]
    return replace(nest, inputs=tuple(operands[:len(nest.inputs)]), outputs=tuple(operands[len(nest.inputs):]))
