# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that are no box on instructions that are no loop nest: one instruction for each group of rows.

What such an instruction (a scan, a search) makes of a row depends on the sequence of the row's active elements. Rows
whose active elements are in the same places are gathered without the others into tiles of their own, on which the
instruction has no mask, and its results go back to where they belong. No MLIR in here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nki_mlir.analysis.mask_boxes import lawful
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import O, Op


@dataclass(frozen=True)
class RowGroup:
    """Rows, and their active elements: ``offsets[k]`` are the positions along the k-th of the ``free`` axes."""

    rows: np.ndarray
    offsets: np.ndarray
    free: tuple[int, ...]

    def shape(self, axes: Sequence[int], tile: Tile) -> tuple[int, ...]:
        """An operand's shape without the elements that are not active: the free axes are one dimension."""
        return tuple(len(self.rows) if axis == 0 else self.offsets.shape[1] if axis in self.free else extent
                     for axis, extent in zip(axes, tile.shape) if axis not in self.free[1:])

    def positions(self, axes: Sequence[int], tile: Tile) -> np.ndarray:
        """Where the elements of that shape are in the operand: ``[its dims, elements]``."""
        kept = [axis for axis in axes if axis not in self.free[1:]]
        found = []
        for axis, extent in zip(axes, tile.shape):
            values = self.rows if axis == 0 else self.offsets[self.free.index(axis)] if axis in self.free else (
                np.arange(extent))
            dim = kept.index(self.free[0] if axis in self.free else axis)
            found.append(values.reshape([-1 if d == dim else 1 for d in range(len(kept))]))
        return np.stack([v.ravel() for v in np.broadcast_arrays(*found)])

    def runs(self) -> Iterator[tuple[int, int, int, tuple[int, ...], int]]:
        """Boxes of it: (row, place among the rows, rows, place, and place among the elements, elements)."""
        for first, rows in _runs(self.rows[None]):
            for start, count in _runs(self.offsets):
                yield int(self.rows[first]), first, rows, (start, *map(int, self.offsets[:, start])), count


def row_groups(op: Op, active: np.ndarray) -> list[RowGroup]:
    """The groups of an operation whose rows are apart; ``active`` is over its axes."""
    iteration = op.iteration()
    free = tuple(a for a in range(1, len(iteration.extents)) if a not in iteration.reduced)
    flags = active[tuple(slice(None) if a == 0 or a in free else 0 for a in range(active.ndim))]
    rows: dict[bytes, list[int]] = {}
    for row, own in enumerate(flags):
        if own.any():
            rows.setdefault(own.tobytes(), []).append(row)
    return [RowGroup(np.array(members), np.argwhere(flags[members[0]]).T, free) for members in rows.values()]


def on_group(op: O, group: RowGroup, tile: Callable[[str, Tile, tuple[int, ...]], Tile]) -> O:
    """The operation on tiles of the group alone, which ``tile(field, operand, shape)`` makes; it keeps its rules."""
    axes = op.iteration().axes
    fields = op.attribute_values() | {f.name: tile(f.name, t, group.shape(axes[f.name], t)) for f, t in op.operands()}
    return lawful(type(op)(symbols=op.symbols, ranges=op.ranges, extra=op.extra, **fields))


def _runs(places: np.ndarray) -> Iterator[tuple[int, int]]:
    """(first, count) of neighbours along the last axis."""
    step = np.diff(places, axis=1)
    breaks = np.flatnonzero((step[-1] != 1) | (step[:-1] != 0).any(axis=0)) + 1
    edges = [0, *breaks.tolist(), places.shape[1]]
    for first, end in pairwise(edges):
        yield first, end - first
