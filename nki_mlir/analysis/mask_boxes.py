# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Resolves masks: moves the part of a mask that is a box into the access patterns of the operation.

A mask is a conjunction over the operation's iteration axes and symbols. Constraints that hold everywhere are dropped;
the smallest box that contains all active elements shrinks starts and counts; the other constraints stay a mask. Under
such a mask, an instruction that is not a loop nest becomes one instruction for each group of rows with the same active
elements. The module does not depend on MLIR.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nki_mlir.dialects import access
from nki_mlir.dialects.access import Constraint, Linear, Mask, Ranges, Tile
from nki_mlir.dialects.op import O, Op, changed, with_forms
from nki_mlir.dialects.verification import verify
from nki_mlir.dialects.verifier import BeyondDimension, BrokenRule, ShapeMismatch

Interval = Callable[[Linear], tuple[int, int]]          # extremes of a form that has only symbols


class AlwaysOutOfBounds(BeyondDimension):
    message = "an index is {elements} outside {dimension} wherever this operation runs"
    fix = "exclude the index with mask=, or with an if around the operation"


class UnderMask(BrokenRule):
    message = "{what} under its mask"
    fix = "use a mask that selects the number of elements that the instruction needs, or mask the store instead"


class Box(NamedTuple):
    """A box of an iteration space with the constraints that remain inside, over axes that count from the start of the
    box."""

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    mask: Mask


def extremes(form: Linear, counts: Sequence[int], interval: Interval) -> tuple[int, int]:
    """Return the least and greatest value of a form over symbols and a box of axes."""
    low, high = interval(replace(form, axes=()))
    for axis, c in form.axes:
        reach = c * (counts[axis] - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    return low, high


def verdict(equal: bool, low: int, high: int) -> bool | None:
    """Return True if all values in ``low..high`` are at least 0 (with ``equal``: are 0), False if none is, else
    None."""
    if high < 0 or (equal and low > 0):
        return False
    if equal:
        return True if low == high == 0 else None
    return True if low >= 0 else None


def box_of(mask: Mask, extents: Sequence[int], interval: Interval) -> Box | None:
    """Return the smallest box that contains every active element, None if no element is active."""
    starts, counts = [0] * len(extents), list(extents)
    while True:
        remaining, shrunk = [], False
        for constraint in mask:
            form = constraint.form.counted_from(starts)
            holds = verdict(constraint.equal, *extremes(form, counts, interval))
            if holds is False:
                return None
            if holds:
                continue
            remaining.append(constraint)
            for axis, _ in form.axes:
                low, high = _bounds(constraint._replace(form=form), axis, counts, interval)
                if low > high:
                    return None
                shrunk |= (low, high) != (0, counts[axis] - 1)
                starts[axis], counts[axis] = starts[axis] + low, high - low + 1
                form = constraint.form.counted_from(starts)
        mask = tuple(remaining)
        if not shrunk:
            inside = [c._replace(form=_flat(c.form.counted_from(starts), counts)) for c in mask]
            return Box(tuple(starts), tuple(counts), _without_implied(inside, counts, interval))


def _without_implied(mask: Sequence[Constraint], counts: Sequence[int], interval: Interval) -> Mask:
    """Return the constraints without those that another one implies: ``f >= p - 1`` where ``f == p``."""
    remaining = list(mask)
    for constraint in mask:
        other_constraints = [c for c in remaining if c is not constraint]
        if any(_implies(other, constraint, counts, interval) for other in other_constraints):
            remaining = other_constraints
    return tuple(remaining)


def _implies(one: Constraint, other: Constraint, counts: Sequence[int], interval: Interval) -> bool:
    """Return whether the active elements of a constraint all meet another one."""
    if other.equal:
        return one == other
    return any(extremes(other.form.plus(one.form, -sign), counts, interval)[0] >= 0
               for sign in ((1, -1) if one.equal else (1,)))


def _flat(form: Linear, counts: Sequence[int]) -> Linear:
    """Return the form without the axes of extent 1."""
    return replace(form, axes=tuple((axis, c) for axis, c in form.axes if counts[axis] > 1))


def _bounds(constraint: Constraint, axis: int, counts: Sequence[int], interval: Interval) -> tuple[int, int]:
    """Return the range of an axis in which a constraint can hold for some values of the other axes."""
    form = constraint.form
    a = dict(form.axes)[axis]
    other_axes = replace(form, axes=tuple(x for x in form.axes if x[0] != axis))
    return access.positions(a, *extremes(other_axes, counts, interval), constraint.equal, counts[axis])


def resolved(op: Op, interval: Interval, executes: bool = False, accepts: Callable[[Op], bool] = lambda op: True
             ) -> Op | None:
    """Return the operation with its mask resolved as far as the values of symbols allow, None if no element is active.

    Symbols with one value become constants. With ``executes`` the operation certainly runs, so that a limit which
    no value of the symbols satisfies is an error. If ``accepts`` refuses the operation on the box, the mask stays.
    """
    mask, limits = (tuple(_pinned(c, op.ranges) for c in m) for m in (op.mask, op.limits))
    if mask or limits:
        box = box_of(mask, op.iteration().extents, interval)
        if box is None or (box.mask and not _depends(box.mask)
                           and not access.active_elements(box.mask, box.counts).any()):
            return None
        limits = tuple(remaining for c in limits if (remaining := _limit(c, box, interval, executes)) is not None)
        small = in_box(op, box, limits)
        op = small if accepts(small) else _pruned(op, interval)
    return with_used_symbols(op)


def shrink(op: Op) -> Op | None:
    """Return the operation with the constant part of its mask resolved, None if no element is active.

    ``row < 100`` on 128 rows gives an operation on 100 rows. Constraints on symbols with several values, or on two
    axes at once, remain.
    """
    if not op.mask and not op.limits:
        return op
    mask, limits = (tuple(_pinned(c, op.ranges) for c in m) for m in (op.mask, op.limits))
    starts, counts, open_constraints = access.masked_box(tuple(c for c in mask if not c.form.symbols),
                                                         op.iteration().extents, ())
    if 0 in counts:
        return None

    def undecided(constraints: Mask) -> Mask:
        """Return the constraints over the axes of the box, without constraints that always hold."""
        moved = (c._replace(form=c.form.counted_from(starts)) for c in constraints)
        return tuple(c for c in moved if c.equal or c.form.interval(op.ranges, tuple(counts))[0] < 0)
    remaining = undecided((*open_constraints, *(c for c in mask if c.form.symbols)))
    return in_box(op, Box(tuple(starts), tuple(counts), remaining), undecided(limits))


def _pinned(constraint: Constraint, ranges: Ranges) -> Constraint:
    """Replace the symbols of a constraint by numbers if they have one value."""
    form = constraint.form
    for symbol, _ in constraint.form.symbols:
        if ranges[symbol][0] == ranges[symbol][1]:
            form = form.substitute(symbol, ranges[symbol][0])
    return constraint._replace(form=form)


def _depends(mask: Mask) -> bool:
    """Return whether the active elements of a mask depend on the values of symbols."""
    return any(c.form.symbols for c in mask)


def _pruned(op: Op, interval: Interval) -> Op:
    """Return the operation without the constraints that hold everywhere."""
    extents = op.iteration().extents
    mask, limits = (tuple(c for c in m if not verdict(c.equal, *extremes(c.form, extents, interval)))
                    for m in (op.mask, op.limits))
    return changed(op, lambda tile: tile, mask=mask, limits=limits)


def _limit(limit: Constraint, box: Box, interval: Interval, executes: bool) -> Constraint | None:
    """Return a bound that must be checked at run time, None if the box or the rest of the mask proves it."""
    form = limit.form.counted_from(box.starts)
    low, _ = extremes(form, box.counts, interval)
    if low >= 0 or any(extremes(form.plus(c.form, -1), box.counts, interval)[0] >= 0 for c in box.mask if not c.equal):
        return None
    if not _depends(box.mask):                          # the active elements are known
        reach = replace(form, const=0, symbols=())
        active = access.active_elements(box.mask, box.counts)
        least = int(access.values_of(reach, box.counts)[active].min()) if box.mask else extremes(
            reach, box.counts, lambda f: (f.const, f.const))[0]
        low, high = (end + least for end in interval(replace(form, axes=())))
        if low >= 0:
            return None
        if executes and high < 0:
            raise AlwaysOutOfBounds(excess=-high)
    return limit._replace(form=_flat(form, box.counts))


def in_box(op: O, box: Box, limits: Mask = ()) -> O:
    """Return the operation on a box of its iteration space. A reduced dim of extent 1 is not cut."""
    iteration = op.iteration()
    fields: dict[str, Linear | Tile] = {name: getattr(op, name).counted_from(box.starts)
                                        for name, kind in op.attributes.items() if kind is Linear}
    for field, tile in op.operands():
        axes = iteration.axes[field.name]
        uncut = [axis in iteration.reduced and count == 1 for axis, count in zip(axes, tile.shape)]
        starts = [0 if keep else box.starts[axis] for keep, axis in zip(uncut, axes)]
        counts = [1 if keep else box.counts[axis] for keep, axis in zip(uncut, axes)]
        fields[field.name] = replace(tile, access=tile.access.box(starts, counts))
    return changed(op, lambda tile: tile, mask=box.mask, limits=limits, **fields)


def verified_on_box(op: O) -> O:
    """Check that an instruction that is not a loop nest still obeys its rules, such as sizes, on its box; raises
    ``UnderMask``."""
    if not op.is_loop_nest:
        try:
            verify(op)
        except (BrokenRule, ShapeMismatch) as error:
            raise UnderMask(what=error.headline) from None
    return op


def with_used_symbols(op: Op) -> Op:
    """Return the operation without unused symbols, and with constants for symbols of one value."""
    fixed = {k: low for k, (low, high) in enumerate(op.ranges) if low == high}
    used_symbols = sorted({s for form in _forms(op) for s, _ in form.symbols} - set(fixed))
    if len(used_symbols) == len(op.symbols):
        return op
    position_of = {s: k for k, s in enumerate(used_symbols)}

    def put(form: Linear) -> Linear:
        const = form.const + sum(c * fixed[s] for s, c in form.symbols if s in fixed)
        return Linear(const, tuple((position_of[s], c) for s, c in form.symbols if s in position_of), form.axes)

    return with_forms(op, put, symbols=tuple(op.symbols[s] for s in used_symbols),
                      ranges=tuple(op.ranges[s] for s in used_symbols))


def _forms(op: Op) -> list[Linear]:
    """Return every linear form of an operation."""
    forms = [c.form for c in (*op.mask, *op.limits)]
    for _, tile in op.operands():
        forms += [f for f in (tile.access.partition, tile.access.free) if f is not None]
    return forms + [v for v in op.attribute_values().values() if isinstance(v, Linear)]


# -- rows with the same active elements --------------------------------------------------------------------------------
# The result of an instruction that is not a loop nest (a scan, a search) depends on the sequence of a row's active
# elements. Rows with active elements at the same positions are gathered, without their other elements, into a separate
# tile. The instruction works on that tile without a mask, and its results are scattered back.

class RowGroup(NamedTuple):
    """Rows with the same active elements: ``offsets[k]`` are their positions along the k-th of the ``free`` axes."""

    rows: np.ndarray
    offsets: np.ndarray
    free: tuple[int, ...]

    def shape(self, axes: Sequence[int], tile: Tile) -> tuple[int, ...]:
        """Return an operand's shape with its active elements only: the free axes become one dimension."""
        return tuple(len(self.rows) if axis == 0 else self.offsets.shape[1] if axis in self.free else extent
                     for axis, extent in zip(axes, tile.shape) if axis not in self.free[1:])

    def positions(self, axes: Sequence[int], tile: Tile) -> np.ndarray:
        """Return the positions in the operand of the elements of ``shape``, as ``[dims of the operand, elements]``."""
        dims = [axis for axis in axes if axis not in self.free[1:]]
        coordinates = []
        for axis, extent in zip(axes, tile.shape):
            values = self.rows if axis == 0 else self.offsets[self.free.index(axis)] if axis in self.free else (
                np.arange(extent))
            dim = dims.index(self.free[0] if axis in self.free else axis)
            coordinates.append(values.reshape([-1 if d == dim else 1 for d in range(len(dims))]))
        return np.stack([v.ravel() for v in np.broadcast_arrays(*coordinates)])

    def runs(self) -> Iterator[tuple[int, int, int, tuple[int, ...], int]]:
        """Yield the boxes of the group. A box is its first row, the row's index in the group, and the number of rows;
        then the index of its first element, the element's offsets, and the number of elements."""
        for first_row, rows in _runs(self.rows[None]):
            for start, count in _runs(self.offsets):
                yield int(self.rows[first_row]), first_row, rows, (start, *map(int, self.offsets[:, start])), count


def row_groups(op: Op, active: np.ndarray) -> list[RowGroup]:
    """Return the groups of the rows of an operation that works on each row separately; ``active`` is over its axes."""
    iteration = op.iteration()
    free = tuple(a for a in range(1, len(iteration.extents)) if a not in iteration.reduced)
    flags = active[tuple(slice(None) if a == 0 or a in free else 0 for a in range(active.ndim))]
    rows: dict[bytes, list[int]] = {}
    for row, flagged in enumerate(flags):
        if flagged.any():
            rows.setdefault(flagged.tobytes(), []).append(row)
    return [RowGroup(np.array(members), np.argwhere(flags[members[0]]).T, free) for members in rows.values()]


def on_group(op: O, group: RowGroup, tile: Callable[[str, Tile, tuple[int, ...]], Tile]) -> O:
    """Return the operation on tiles of one group, which ``tile(field, operand, shape)`` creates; raise ``UnderMask``
    if it breaks a rule."""
    axes = op.iteration().axes
    fields = op.attribute_values() | {f.name: tile(f.name, t, group.shape(axes[f.name], t)) for f, t in op.operands()}
    return verified_on_box(type(op)(symbols=op.symbols, ranges=op.ranges, extra=op.extra, **fields))


def _runs(positions: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of runs of neighbors along the last axis."""
    step = np.diff(positions, axis=1)
    breaks = np.flatnonzero((step[-1] != 1) | (step[:-1] != 0).any(axis=0)) + 1
    edges = [0, *breaks.tolist(), positions.shape[1]]
    for start, end in pairwise(edges):
        yield start, end - start
