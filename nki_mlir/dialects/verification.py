# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifies one operation: structure common to all (partition form, bounds, destinations) and the rules of its class."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from nki_mlir.dialects.access import Mask, Tile, active_elements, masked_box
from nki_mlir.dialects.op import Op, TileField
from nki_mlir.dialects.verifier import Check, Interval, OutOfBounds, OverlappingWrite


def verify(op: Op, operands: Sequence[tuple[TileField, Tile]] | None = None) -> None:
    """Check the rules of one operation except those that its mask decides (``verify_mask``) and bounds
    (``verify_bounds``)."""
    check = Check(op)
    for field, tile in op.operands() if operands is None else operands:
        check.tile(field.name, tile, field.writes)
    if op.engines and op.engine != "unknown":
        check.one_of("engine", ("unknown", *(engine.value for engine in op.engines)))
    for form in op.index_forms():
        bits = max(n.bit_length() for n in (form.const, *(c for _, c in (*form.symbols, *form.axes))))
        check.rule(bits < 64, f"takes an index with constants of 64 bits, got one of {bits + 1} bits",
                   "give numbers from -2**63 to 2**63 - 1")
    op.verify(check)


def verify_mask(op: Op, operands: Sequence[tuple[TileField, Tile]] | None = None) -> None:
    """Check that the unmasked part of an operation writes no element twice, and has complete groups of partitions."""
    for field, tile in op.operands() if operands is None else operands:
        if field.writes and names_twice(op, field.name, tile):
            raise OverlappingWrite(tile=tile.describe(), op=op.name)
    size = op.partition_group
    if size == 1 or not op.mask:
        return
    iteration = op.iteration()
    for constraint in op.mask:
        form, steps = constraint.form, dict(constraint.form.axes)
        if 0 not in steps:
            continue
        bound = form.const + (1 if steps[0] == -1 else 0)           # the first partition inside, or outside
        has_complete_groups = all(n % size == 0 for n in (bound, *(n for _, n in form.symbols)))
        outside = not form.symbols and steps == {0: -1} and bound >= iteration.extents[0]
        Check(op).rule(outside or (has_complete_groups and not constraint.equal and steps in ({0: 1}, {0: -1})),
                       f"a mask on partitions must select complete groups of {size} partitions, which work together",
                       f"let it end at a multiple of {size}")


def verify_bounds(op: Op, interval: Interval) -> None:
    """Check that every operand stays in its buffer, unless the op has a mask or limits that decide it at run time."""
    if op.mask or op.limits:
        return
    for field, tile in op.operands():
        in_buffer(tile, interval, field.name)


def in_buffer(tile: Tile, interval: Interval, label: str) -> None:
    """Check that a tile does not leave its buffer; ``interval`` returns the extremes of a start."""
    access = tile.access
    low, high = interval(access.free)
    reach = access.reach()
    if low + reach[0] < 0 or high + reach[1] >= tile.row:
        dim = "1 (free)" if tile.on_chip else "0 (flat)"
        raise OutOfBounds(tensor=tile.label or label, dim=dim, low=low + reach[0], high=high + reach[1],
                          extent=tile.row)
    if access.partition is not None:
        low, high = interval(access.partition)
        high += (tile.partitions - 1) * access.dims[0][0]
        if low < 0 or high >= tile.base_shape[0]:
            raise OutOfBounds(tensor=tile.label or label, dim=0, low=low, high=high, extent=tile.base_shape[0])


# -- overlap -----------------------------------------------------------------------------------------------------------
# Destinations that contain an element twice: no document says which write remains, and executors may differ.

Dims = tuple[tuple[int, int], ...]


def names_twice(op: Op, name: str, tile: Tile) -> bool:
    """Return whether the part of a tile that an operation's mask leaves contains an element more than once.

    Constraints on symbols are assumed to hold: a refused tile may be disjoint in every iteration, an accepted one is.
    """
    dims = tile.access.free_dims
    if not meets_itself(dims):
        return False
    mask = tuple(c for c in op.mask if not c.form.symbols)
    if not mask or not op.is_loop_nest:
        return True
    iteration = op.iteration()
    axes = iteration.axes[name]
    return masked_meets_itself(tile.access.dims, tile.on_chip, mask, tuple(iteration.extents), tuple(axes))


@lru_cache(1 << 12)
def meets_itself(dims: Dims) -> bool:
    """Return whether two positions of a pattern of ``(step, count)`` have one offset."""
    reach, nested = 0, True
    for step, count in sorted((abs(step), count) for step, count in dims if count > 1):
        nested = nested and step > reach
        reach += step * (count - 1)
    distinct = prod(count for _, count in dims)
    if nested or distinct > reach + 1:
        return not nested
    offsets = np.zeros(1, np.int64)
    for step, count in dims:
        offsets = (offsets[:, None] + np.arange(count) * abs(step)).reshape(-1)
    reached = np.zeros(reach + 1, np.bool_)
    reached[offsets] = True
    return int(np.count_nonzero(reached)) < distinct


@lru_cache(1 << 10)
def masked_meets_itself(dims: Dims, on_chip: bool, mask: Mask, extents: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Return whether two positions that a mask without symbols leaves in an iteration space have one offset."""
    starts, counts, remaining = masked_box(mask, extents, ())
    active = np.argwhere(active_elements(remaining, counts, (), starts)) + starts
    points = active[:, list(axes)] * [count > 1 for _, count in dims]
    distinct, steps = np.unique(points, axis=0), np.array([step for step, _ in dims])
    first_free = int(on_chip)                   # one offset in two partitions is two elements
    named = np.column_stack([distinct[:, :first_free], distinct[:, first_free:] @ steps[first_free:]])
    return len(np.unique(named, axis=0)) < len(distinct)
