# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Access patterns whose starts may differ between groups of operations that become equal instructions.

The module finds these patterns, removes their starts from the keys of operations, and joins the patterns of a buffer
that overlap or adjoin to clusters, whose distances the keys of groups contain (``operation_groups.py``).
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from nki_mlir.dialects.access import SBUF, Access, Linear, Tile
from nki_mlir.dialects.attributes import elements, read_access
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.mlir_ops import OperationParts
from nki_mlir.dialects.op import Op, changed
from nki_mlir.scalar.dtypes import DType
from nki_mlir.waist.byte_nest import nest_of
from nki_mlir.waist.overlap import ANYWHERE


class PatternCluster(NamedTuple):
    """Movable patterns of one buffer that overlap or adjoin, or that overlap the space between. Clusters do not touch,
    so the distance between them does not matter. ``start`` is the start of its first pattern; ``low`` and ``high`` are
    its elements in each partition."""

    slot: int
    start: int
    low: int
    high: int


def is_movable(access: Access, space: str, shape: tuple[int, ...], dtype: DType) -> bool:
    """Return whether the start of a pattern may differ between groups: in HBM, and in SBUF if it is a part of its
    buffer. In PSUM a pattern may cross banks."""
    return access.partition is None or (space == SBUF and access.dtype is dtype and prod(access.shape) < prod(shape))


def reach_of(access: Access) -> tuple[int, int]:
    """Return the first element of a pattern in each partition and the element after its last, counted from its start.
    If registers are part of the pattern, it may reach anything."""
    if access.free.symbols:
        return -ANYWHERE, ANYWHERE
    nest = nest_of(access.free_dims, 1)
    return nest.shift, nest.shift + nest.extent


def clusters_of(slots: Sequence[int], starts: Sequence[tuple[int, int]], reaches: Sequence[tuple[int, int]]
                ) -> tuple[list[PatternCluster], tuple[tuple[int, int], ...]]:
    """Return the clusters of buffers whose patterns are all movable, and the ``distances`` of a key."""
    origins: dict[int, int] = {}                # by slot, the start of its first pattern
    origin_of = [origins.setdefault(slots[number], start) for number, start in starts]
    from_origin = tuple([start - origin for (_, start), origin in zip(starts, origin_of)])
    clusters, numbers = clusters_from_origins(tuple(slots), tuple([number for number, _ in starts]), from_origin,
                                              tuple(reaches))
    at_starts = [PatternCluster(slot, start + origins[slot], low + origins[slot], high + origins[slot])
                 for slot, start, low, high in clusters]
    return at_starts, tuple([(-1, start) if number < 0 else (number, start - at_starts[number].start)
                             for number, (_, start) in zip(numbers, starts)])


@lru_cache(maxsize=4_096)
def clusters_from_origins(slots: tuple[int, ...], numbers: tuple[int, ...], starts: tuple[int, ...],
                          reaches: tuple[tuple[int, int], ...]
                          ) -> tuple[tuple[PatternCluster, ...], tuple[int, ...]]:
    """Return the clusters of patterns, and the number of each pattern's cluster (-1 if a pattern of its buffer may not
    move). Starts are counted from the start of the first pattern in the buffer."""
    fixed = {slot for number, slot in enumerate(slots) if number not in numbers}
    by_slot: dict[int, list[tuple[int, int, int]]] = {}
    for index, (number, start, (low, high)) in enumerate(zip(numbers, starts, reaches)):
        by_slot.setdefault(slots[number], []).append((start + low, start + high, index))
    cluster_of: dict[int, PatternCluster] = {}         # by the number of the pattern
    for slot, patterns in by_slot.items():
        if slot in fixed:
            continue
        patterns.sort()
        members: list[int] = []
        begin, end, _ = patterns[0]
        for low, high, index in (*patterns, (2 * ANYWHERE, 0, -1)):
            if low > end:
                cluster_of |= dict.fromkeys(members, PatternCluster(slot, starts[min(members)], begin, end))
                members, begin, end = [], low, high
            members.append(index)
            end = max(end, high)
    clusters: dict[PatternCluster, int] = {}
    for index in range(len(starts)):
        if (cluster := cluster_of.get(index)) is not None:
            clusters.setdefault(cluster, len(clusters))
    return tuple(clusters), tuple([clusters[cluster_of[index]] if index in cluster_of else -1
                                   for index in range(len(starts))])


def without_starts(parts: OperationParts) -> tuple[object, tuple[tuple[int, int], ...]]:
    """Return a key that is equal for operations whose parts differ only in movable starts. Return these starts, too, by
    the number of the operand."""
    patterns: list[object] = []
    starts: list[tuple[int, int]] = []
    attributes = dict(parts.attributes)
    for number, pattern in enumerate(elements(attributes.pop("access"))):
        access = read_access(pattern)
        shape, dtype, space = memref_parts(parts.operands[number].type)
        if is_movable(access, space, shape, dtype):
            starts.append((number, access.free.const))
            patterns.append((access.dtype, access.partition, access.free.symbols, access.dims))
        else:
            patterns.append(pattern)
    return (parts.types, *attributes.items(), *patterns), tuple(starts)


def outline_of(op: Op) -> tuple[object, tuple[tuple[int, int], ...]]:
    """Return a key that is equal for operations that differ only in their buffers and movable starts. Return these
    starts, too, by the number of the operand."""
    def moves(tile: Tile) -> bool:
        return is_movable(tile.access, tile.space, tile.base_shape, tile.base_dtype)
    starts = tuple([(number, tile.access.free.const) for number, (_, tile) in enumerate(op.operands()) if moves(tile)])
    if any(start for _, start in starts):
        op = changed(op, lambda tile: started(tile, -tile.access.free.const) if moves(tile) else tile)
    return (op.outline(), op.mask, op.limits, tuple(op.extra.items())), starts


def started(tile: Tile, distance: int, handle: object = None, label: str | None = None) -> Tile:
    """Return a tile, in its buffer or another one, that starts ``distance`` elements further on."""
    access = tile.access
    free = access.free
    shifted = Tile(handle, tile.space, tile.base_shape, tile.base_dtype,
                 Access(access.dtype, access.partition, Linear(free.const + distance, free.symbols, free.axes),
                        access.dims), tile.label if label is None else label)
    shifted._form = tile._form or tile.form
    return shifted
