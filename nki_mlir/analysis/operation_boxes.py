# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Takes the part of a mask that is known here out of an operation, by making its tiles smaller.

``row < 100`` on 128 rows gives an operation on 100 rows without a mask. What depends on a symbol that is not one
number, or on two axes at once, is left over.
"""

import copy
from dataclasses import replace

from nki_mlir.dialects.access import Constraint, Linear, Mask, Ranges, Tile, masked_box
from nki_mlir.dialects.op import Iteration, Op


def shrink(op: Op) -> Op | None:
    """The same operation with what is left of its mask and limits; None where the mask holds nowhere."""
    if not op.mask and not op.limits:
        return op
    iteration = op.iteration()
    mask = [_pinned(c, op.ranges) for c in op.mask]
    starts, counts, rest = masked_box(tuple(c for c in mask if not c.form.symbols), iteration.extents, ())
    if 0 in counts:
        return None
    small = copy.copy(op)
    if counts != list(iteration.extents):
        for field, tile in op.operands():
            setattr(small, field.name, _boxed(tile, iteration.axes[field.name], iteration, starts, counts))
        for name, kind in op.attributes.items():
            if kind is Linear:
                setattr(small, name, getattr(op, name).moved(starts))
    left = [*rest, *(c for c in mask if c.form.symbols)]
    limits = [_pinned(c, op.ranges) for c in op.limits]
    small.mask = _undecided(left, starts, counts, op.ranges)
    small.limits = _undecided(limits, starts, counts, op.ranges)
    return small


def _pinned(constraint: Constraint, ranges: Ranges) -> Constraint:
    """Symbols that have one value only, such as the variable of a loop that runs once, become that number."""
    form = constraint.form
    for position, _ in constraint.form.symbols:
        first, last = ranges[position]
        if first == last:
            form = form.substitute(position, first)
    return constraint if form is constraint.form else Constraint(form, constraint.equal)


def _boxed(tile: Tile, axes: tuple[int, ...], iteration: Iteration, starts: list[int], counts: list[int]) -> Tile:
    """The tile's part of the box; the one element that a reduction leaves of an axis stays."""
    kept = [axis in iteration.reduced and extent == 1 for axis, extent in zip(axes, tile.shape)]
    own_starts = [0 if k else starts[axis] for k, axis in zip(kept, axes)]
    own_counts = [1 if k else counts[axis] for k, axis in zip(kept, axes)]
    return replace(tile, access=tile.access.box(own_starts, own_counts))


def _undecided(mask: list[Constraint], starts: list[int], counts: list[int], ranges: Ranges) -> Mask:
    """The constraints over the axes of the box, without those that always hold."""
    moved = (Constraint(c.form.moved(starts), c.equal) for c in mask)
    return tuple(c for c in moved if c.equal or c.form.interval(ranges, tuple(counts))[0] < 0)
