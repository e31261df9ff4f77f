# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Destinations that name an element twice: which of two writes stays no document says, and executors may differ."""

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.dialects.access import Mask, Tile, active_elements, masked_box

if TYPE_CHECKING:
    from nki_mlir.dialects.op import Op

Dims = tuple[tuple[int, int], ...]


def names_twice(op: "Op", name: str, tile: Tile) -> bool:
    """Whether what an operation's mask leaves of a tile names an element more than once.

    Constraints on symbols are taken to hold: what is refused may be apart in every iteration, what is not is apart.
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
    """Whether two places of a pattern of ``(step, count)`` have one offset."""
    reach, apart = 0, True
    for step, count in sorted((abs(step), count) for step, count in dims if count > 1):
        apart = apart and step > reach
        reach += step * (count - 1)
    places = prod(count for _, count in dims)
    if apart or places > reach + 1:
        return not apart
    offsets = np.zeros(1, np.int64)
    for step, count in dims:
        offsets = (offsets[:, None] + np.arange(count) * abs(step)).reshape(-1)
    named = np.zeros(reach + 1, np.bool_)
    named[offsets] = True
    return int(np.count_nonzero(named)) < places


@lru_cache(1 << 10)
def masked_meets_itself(dims: Dims, on_chip: bool, mask: Mask, extents: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """The same of the places that a mask without symbols leaves of an iteration space."""
    starts, counts, rest = masked_box(mask, extents, ())
    active = np.argwhere(active_elements(rest, counts, (), starts)) + starts
    found = active[:, list(axes)] * [count > 1 for _, count in dims]
    places, steps = np.unique(found, axis=0), np.array([step for step, _ in dims])
    behind = int(on_chip)                   # one offset in two partitions is two elements
    named = np.column_stack([places[:, :behind], places[:, behind:] @ steps[behind:]])
    return len(np.unique(named, axis=0)) < len(places)
