# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The factors by which engines take longer for elements that are not adjacent in memory.

The interface of an engine moves sectors of 16 bytes, one every two cycles of an engine that reads an element a cycle.
So adjacent elements never wait for it, nor do elements of 4 bytes with a step of two; with a step of 16 bytes or more,
each element takes a sector and the interface moves half as many elements (architecture guide: its bandwidth halves;
others measured the same for copies and for factors of products).
"""

from collections.abc import Sequence
from functools import lru_cache
from math import ceil

from nki_mlir.dialects.access import Tile
from nki_mlir.machine import Machine


@lru_cache(maxsize=65_536)
def access_factor_of_dims(dims: tuple[tuple[int, int], ...], itemsize: int) -> float:
    """Return the factor, 1.0 to 2.0, by which the interface takes longer for a partition's elements than for adjacent
    ones. ``dims`` are (step, count) pairs in elements, the innermost last."""
    inner = [(abs(step), count) for step, count in dims if count > 1]
    if not inner:
        return 1.0
    step, count = inner[-1]
    for outer, outer_count in reversed(inner[:-1]):         # dims that continue each other are joined
        if outer != step * count:
            break
        count *= outer_count
    if step == 0:
        return 1.0                                          # one element, repeated
    reach = ((count - 1) * step + 1) * itemsize
    sectors = min(count, ceil(reach / Machine.sector_bytes))
    return max(1.0, min(2.0, 2.0 * sectors / count))


def access_factor(tile: Tile) -> float:
    """Return the factor of an access to a tile on chip; a single element in each partition is read once."""
    return access_factor_of_dims(tile.access.free_dims, tile.dtype.itemsize)


def adjacent(tile: Tile) -> bool:
    """Return whether the innermost elements of a partition are next to each other."""
    return next((step == 1 for step, count in reversed(tile.access.free_dims) if count > 1), True)


def slowest(dst: Tile, sources: Sequence[Tile]) -> float:
    """Return the factor of an instruction that reads ``sources`` one after the other and writes ``dst`` meanwhile."""
    read = [access_factor(tile) for tile in sources if tile.free_elements > 1]
    return max(sum(read), access_factor(dst)) / max(1, len(read))
