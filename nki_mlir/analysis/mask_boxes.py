# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks as boxes: one operation with the part of its mask that is a box put into its access patterns.

A mask is a conjunction over the operation's iteration axes and symbols. What holds everywhere is dropped; the smallest
box that contains all active elements shrinks starts and counts; only what is no box stays a mask. An instruction that
is no loop nest becomes one for each group of rows under such a mask. No MLIR in here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from nki_mlir.dialects import access
from nki_mlir.dialects.access import Constraint, Linear, Mask, Ranges, Tile
from nki_mlir.dialects.op import O, Op, changed, with_forms
from nki_mlir.dialects.verification import verify
from nki_mlir.dialects.verifier import BrokenRule, OutOfBounds, ShapeMismatch

Interval = Callable[[Linear], tuple[int, int]]          # extremes of a form of symbols alone


class AlwaysOutOfBounds(OutOfBounds):
    message = "an index is {excess} elements outside its dimension wherever this operation runs"
    fix = "make mask=, or an if around the operation, exclude it"


class UnderMask(BrokenRule):
    message = "{what} under its mask"
    fix = "let the mask leave as many elements as the instruction takes, or mask what is stored"


@dataclass(frozen=True)
class Box:
    """A box of an iteration space, and the constraints left inside of it (over axes counted from its start)."""

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    rest: Mask


def extremes(form: Linear, counts: Sequence[int], interval: Interval) -> tuple[int, int]:
    """Least and greatest value of a form over symbols and a box of axes."""
    low, high = interval(replace(form, axes=()))
    for axis, c in form.axes:
        reach = c * (counts[axis] - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    return low, high


def verdict(equal: bool, low: int, high: int) -> bool | None:
    """Whether what lies in ``low..high`` is 0 (``equal``), or not negative, everywhere (True) or nowhere (False)."""
    if high < 0 or (equal and low > 0):
        return False
    if equal:
        return True if low == high == 0 else None
    return True if low >= 0 else None


def box_of(mask: Mask, extents: Sequence[int], interval: Interval) -> Box | None:
    """The smallest box that contains every active element; None where there is none."""
    starts, counts = [0] * len(extents), list(extents)
    while True:
        rest, shrunk = [], False
        for constraint in mask:
            form = constraint.form.moved(starts)
            holds = verdict(constraint.equal, *extremes(form, counts, interval))
            if holds is False:
                return None
            if holds:
                continue
            rest.append(constraint)
            for axis, _ in form.axes:
                low, high = _bounds(replace(constraint, form=form), axis, counts, interval)
                if low > high:
                    return None
                shrunk |= (low, high) != (0, counts[axis] - 1)
                starts[axis], counts[axis] = starts[axis] + low, high - low + 1
                form = constraint.form.moved(starts)
        mask = tuple(rest)
        if not shrunk:
            return Box(tuple(starts), tuple(counts), tuple(replace(c, form=_flat(c.form.moved(starts), counts))
                                                           for c in mask))


def _flat(form: Linear, counts: Sequence[int]) -> Linear:
    """The form without the axes that have one value."""
    return replace(form, axes=tuple((axis, c) for axis, c in form.axes if counts[axis] > 1))


def _bounds(constraint: Constraint, axis: int, counts: Sequence[int], interval: Interval) -> tuple[int, int]:
    """What a constraint leaves of an axis, whatever the others are."""
    form = constraint.form
    a = dict(form.axes)[axis]
    others = replace(form, axes=tuple(x for x in form.axes if x[0] != axis))
    return access.positions(a, *extremes(others, counts, interval), constraint.equal, counts[axis])


def resolved(op: Op, interval: Interval, executes: bool = False, accepts: Callable[[Op], bool] = lambda op: True
             ) -> Op | None:
    """The operation with its mask resolved as far as the symbols' values allow; None where no element is active.

    Symbols with one value become constants. ``executes`` says that the operation surely runs: a limit that no symbol
    value keeps is then an error. A box that ``accepts`` refuses stays a mask.
    """
    mask, limits = (tuple(_pinned(c, op.ranges) for c in m) for m in (op.mask, op.limits))
    if mask or limits:
        box = box_of(mask, op.iteration().extents, interval)
        if box is None or (box.rest and not _depends(box.rest)
                           and not access.active_elements(box.rest, box.counts).any()):
            return None
        limits = tuple(left for c in limits if (left := _limit(c, box, interval, executes)) is not None)
        small = in_box(op, box, limits)
        op = small if accepts(small) else _pruned(op, interval)
    return with_used_symbols(op)


def shrink(op: Op) -> Op | None:
    """The operation with what is known here of its mask in its tiles; None where no element is active.

    ``row < 100`` on 128 rows gives an operation on 100 rows. What depends on a symbol that is not one number, or on two
    axes at once, is left over.
    """
    if not op.mask and not op.limits:
        return op
    mask, limits = (tuple(_pinned(c, op.ranges) for c in m) for m in (op.mask, op.limits))
    starts, counts, rest = access.masked_box(tuple(c for c in mask if not c.form.symbols), op.iteration().extents, ())
    if 0 in counts:
        return None

    def undecided(constraints: Mask) -> Mask:
        """Over the axes of the box, without those that always hold."""
        moved = (replace(c, form=c.form.moved(starts)) for c in constraints)
        return tuple(c for c in moved if c.equal or c.form.interval(op.ranges, tuple(counts))[0] < 0)
    left = undecided((*rest, *(c for c in mask if c.form.symbols)))
    return in_box(op, Box(tuple(starts), tuple(counts), left), undecided(limits))


def _pinned(constraint: Constraint, ranges: Ranges) -> Constraint:
    """The constraint with numbers for the symbols that have one value."""
    form = constraint.form
    for symbol, _ in constraint.form.symbols:
        if ranges[symbol][0] == ranges[symbol][1]:
            form = form.substitute(symbol, ranges[symbol][0])
    return replace(constraint, form=form)


def _depends(mask: Mask) -> bool:
    """Whether a mask holds for other elements when symbols have other values."""
    return any(c.form.symbols for c in mask)


def _pruned(op: Op, interval: Interval) -> Op:
    """The operation without the constraints that hold everywhere."""
    extents = op.iteration().extents
    mask, limits = (tuple(c for c in m if not verdict(c.equal, *extremes(c.form, extents, interval)))
                    for m in (op.mask, op.limits))
    return changed(op, lambda tile: tile, mask=mask, limits=limits)


def _limit(limit: Constraint, box: Box, interval: Interval, executes: bool) -> Constraint | None:
    """A bound that is left to run time, or None where the box or the rest of the mask proves it."""
    form = limit.form.moved(box.starts)
    low, _ = extremes(form, box.counts, interval)
    if low >= 0 or any(extremes(form.plus(c.form, -1), box.counts, interval)[0] >= 0 for c in box.rest if not c.equal):
        return None
    if not _depends(box.rest):                          # which elements are active is known
        reach = replace(form, const=0, symbols=())
        active = access.active_elements(box.rest, box.counts)
        least = int(access.values_of(reach, box.counts)[active].min()) if box.rest else extremes(
            reach, box.counts, lambda f: (f.const, f.const))[0]
        low, high = (end + least for end in interval(replace(form, axes=())))
        if low >= 0:
            return None
        if executes and high < 0:
            raise AlwaysOutOfBounds(excess=-high)
    return replace(limit, form=_flat(form, box.counts))


def in_box(op: O, box: Box, limits: Mask = ()) -> O:
    """The operation on a box of its iteration space. A reduced dim that has extent 1 stays whole."""
    iteration = op.iteration()
    fields: dict[str, Linear | Tile] = {name: getattr(op, name).moved(box.starts)
                                        for name, kind in op.attributes.items() if kind is Linear}
    for field, tile in op.operands():
        axes = iteration.axes[field.name]
        whole_axes = [axis in iteration.reduced and count == 1 for axis, count in zip(axes, tile.shape)]
        starts = [0 if keep else box.starts[axis] for keep, axis in zip(whole_axes, axes)]
        counts = [1 if keep else box.counts[axis] for keep, axis in zip(whole_axes, axes)]
        fields[field.name] = replace(tile, access=tile.access.box(starts, counts))
    return changed(op, lambda tile: tile, mask=box.rest, limits=limits, **fields)


def lawful(op: O) -> O:
    """An operation on its mask's box. An instruction that is no loop nest keeps its rules, sizes above all."""
    if not op.is_loop_nest:
        try:
            verify(op)
        except (BrokenRule, ShapeMismatch) as error:
            raise UnderMask(what=error.headline) from None
    return op


def with_used_symbols(op: Op) -> Op:
    """The operation without the symbols that it does not use, those of one value being put in as constants."""
    fixed = {k: low for k, (low, high) in enumerate(op.ranges) if low == high}
    used = sorted({s for form in _forms(op) for s, _ in form.symbols} - set(fixed))
    if len(used) == len(op.symbols):
        return op
    position_of = {s: k for k, s in enumerate(used)}

    def put(form: Linear) -> Linear:
        const = form.const + sum(c * fixed[s] for s, c in form.symbols if s in fixed)
        return Linear(const, tuple((position_of[s], c) for s, c in form.symbols if s in position_of), form.axes)

    return with_forms(op, put, symbols=tuple(op.symbols[s] for s in used), ranges=tuple(op.ranges[s] for s in used))


def _forms(op: Op) -> list[Linear]:
    """Every linear form of an operation."""
    forms = [c.form for c in (*op.mask, *op.limits)]
    for _, tile in op.operands():
        forms += [f for f in (tile.access.partition, tile.access.free) if f is not None]
    return forms + [v for v in op.attribute_values().values() if isinstance(v, Linear)]


# -- rows with the same active elements --------------------------------------------------------------------------------
# What an instruction that is no loop nest (a scan, a search) makes of a row depends on the sequence of the row's active
# elements. Rows whose active elements are in the same places are gathered without the others into tiles of their own,
# on which the instruction has no mask, and its results go back to where they belong.

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
        dims = [axis for axis in axes if axis not in self.free[1:]]
        coordinates = []
        for axis, extent in zip(axes, tile.shape):
            values = self.rows if axis == 0 else self.offsets[self.free.index(axis)] if axis in self.free else (
                np.arange(extent))
            dim = dims.index(self.free[0] if axis in self.free else axis)
            coordinates.append(values.reshape([-1 if d == dim else 1 for d in range(len(dims))]))
        return np.stack([v.ravel() for v in np.broadcast_arrays(*coordinates)])

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
    for row, flagged in enumerate(flags):
        if flagged.any():
            rows.setdefault(flagged.tobytes(), []).append(row)
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
