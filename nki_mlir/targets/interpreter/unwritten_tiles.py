# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Follows on-chip elements that nothing has written, through the results that depend on them, to transfers to HBM.

Kernels compute on complete tiles, although a mask may have left elements out, and store only the rows that they need.
So results of unwritten elements count as unwritten; only a transfer that stores such an element is reported. Scans,
searches and gathers pass on only tiles that are entirely unwritten; a choice between tiles, and a product that adds to
PSUM, count as written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nki_mlir.diagnostics import Location, warn_once
from nki_mlir.dialects.access import HBM, PSUM, Linear, Tile
from nki_mlir.dialects.nisa.require_written import UnwrittenTile
from nki_mlir.dialects.nki.matmul import MatrixProduct
from nki_mlir.dialects.op import Op, TileField
from nki_mlir.environment import is_strict
from nki_mlir.targets.interpreter.execute import Pattern, active_part
from nki_mlir.targets.interpreter.unwritten_hbm import UnwrittenRead

NUMBER = np.dtype(np.uint16)                        # the number of an element's origin; 0: the element has been written


@dataclass
class FreshTile:
    """A tile whose elements start unwritten, with the locations of its allocation and of the first read of such an
    element."""

    name: str
    allocated_at: Location | None
    read_at: Location | None = None
    element: tuple[int, ...] = ()
    is_reported: bool = False


# The shadow of a buffer: an array with the number of each element's origin, or one number for all elements, or None if
# all elements have been written.
Shadow = np.ndarray | FreshTile | None
Operands = Sequence[tuple[TileField, Tile]]
Part = tuple[list[int], list[int], np.ndarray | None]       # the active part of a mask: ``active_part``


@dataclass(slots=True)
class TracedOperation:
    """An operation on the shadows of its operands, which it replaces; with the values of its symbols, and the part of
    its iterations that its mask leaves."""

    op: Op
    operands: Operands
    shadows: list[Shadow]
    values: Sequence[int]
    part: Part

    def axes(self, k: int) -> Sequence[int] | None:
        """Return the axes of the operation's iterations that an operand's dims are; None without a mask."""
        return self.op.iteration().axes.get(self.operands[k][0].name) if self.op.mask else None

    def replace_shadow(self, k: int, shadow: Shadow) -> None:
        """Replace the shadow of an operand's buffer, which may contain other operands, too."""
        handle = self.operands[k][1].handle
        for other, (_, tile) in enumerate(self.operands):
            if same(tile.handle, handle):
                self.shadows[other] = shadow

    def read_operands(self, views: Sequence[np.ndarray | None]) -> list[tuple[int, np.ndarray]]:
        """Return the operands with unwritten elements on which results depend, with the numbers of these elements. A
        choice depends on none. The content of PSUM before a sum counts as written."""
        if self.op.chooses:
            return []
        sources = {name for name, _ in self.op.sources()}
        # it adds to the content of its destination
        adds = self.op.is_loop_nest and not isinstance(self.op, MatrixProduct)
        sums = [tile.handle for field, tile in self.operands if field.writes and tile.space == PSUM]
        return [(k, view) for k, ((field, tile), view) in enumerate(zip(self.operands, views))
                if view is not None and field.name in sources and (adds or not field.writes)
                and not any(same(tile.handle, handle) for handle in sums)]


class UnwrittenTiles:
    """The origins of unwritten elements in one program's run. ``selected_by_data`` returns the flat indices in the
    buffer of elements that data select, if the data are known."""

    def __init__(self, selected_by_data: Callable[[Op], np.ndarray] | None = None) -> None:
        self.origins: list[FreshTile] = []
        self.selected_by_data = selected_by_data

    def perform(self, op: Op, shadows: Sequence[Shadow], values: Sequence[int], at: Callable[[], Location | None]
                ) -> list[Shadow]:
        """Run an operation, with these values of its symbols, on the shadows of its operands; return the new
        shadows."""
        part = active_part(op.mask, op.iteration().extents, values) if op.mask else ([], [], None)
        if part is None:
            return list(shadows)
        traced = TracedOperation(op, op.operands(), list(shadows), values, part)
        views = [self.view_if_unwritten(traced, number) for number in range(len(traced.operands))]
        read = traced.read_operands(views)
        passed = self.passed_on(op, read, part) if read else {}
        for number, view in read:
            self.note_read(view, traced.shadows[number], passed, at)
        for number, (field, tile) in enumerate(traced.operands):
            if field.writes:
                numbers = passed.get(number)
                if numbers is not None and not numbers.any():
                    numbers = None
                if tile.space == HBM:
                    self.report_all(numbers)
                elif has_base_size(tile) and (numbers is not None or views[number] is not None):
                    self.write(traced, number, numbers)
        return traced.shadows

    def view_if_unwritten(self, traced: TracedOperation, number: int) -> np.ndarray | None:
        """Return the numbers of an operand's elements; None if its complete buffer is written. Elements of another size
        than the buffer's count as written."""
        if traced.shadows[number] is None:
            return None
        if not has_base_size(traced.operands[number][1]):
            traced.shadows[number] = None
            return None
        return self.view(traced, number)

    def view(self, traced: TracedOperation, number: int) -> np.ndarray:
        """Return the numbers of the elements of an operand in a mask's box. The shadow becomes an array."""
        shadow, tile = traced.shadows[number], traced.operands[number][1]
        if not isinstance(shadow, np.ndarray):
            shadow = np.full(tile.base_shape, 0 if shadow is None else self.number(shadow), NUMBER)
            traced.replace_shadow(number, shadow)
        axes = traced.axes(number)
        return pattern_of(tile if axes is None else boxed(tile, axes, traced.part)).at(shadow, traced.values)

    def number(self, origin: FreshTile) -> int:
        if len(self.origins) == np.iinfo(NUMBER).max:
            return 0
        self.origins.append(origin)
        return len(self.origins)

    # -- elements that an operation passes on --------------------------------------------------------------------------
    def passed_on(self, op: Op, read: list[tuple[int, np.ndarray]],
                  part: Part) -> dict[int, np.ndarray]:
        """Return the numbers for the elements of each target, in the target's dims, by the operand's number.
        """
        operands = op.operands()
        targets = [number for number, (field, _) in enumerate(operands) if field.writes]
        if not op.is_loop_nest:
            maxima = [view.max() for _, view in read if view.size and view.all()]
            return {number: np.asarray(max(maxima), NUMBER) for number in targets} if maxima else {}
        iteration = op.iteration()
        rank, spread = len(iteration.extents), []
        for number, view in read:
            field, _ = operands[number]
            numbers = along(view, iteration.axes[field.name], rank)
            spread.append(numbers if part[2] is None else np.where(part[2], numbers, NUMBER.type(0)))
        passed = {}
        for number in targets:
            axes = iteration.axes[operands[number][0].name]
            moved = {a for a, (_, count) in zip(axes, operands[number][1].access.dims) if count > 1}
            folded_axes = tuple(a for a in range(rank) if a not in moved)
            folded = [s.max(axis=folded_axes, keepdims=True) if s.size else s for s in spread]
            total = folded[0]
            for array in folded[1:]:
                total = np.maximum(total, array)
            numbers = total.reshape([total.shape[a] for a in sorted(axes)])
            passed[number] = np.transpose(numbers, np.argsort(np.argsort(axes)))
        return passed

    def write(self, traced: TracedOperation, number: int, numbers: np.ndarray | None) -> None:
        """Set the numbers of a target's elements, 0 where the sources were written."""
        view, axes, (_, counts, active) = self.view(traced, number), traced.axes(number), traced.part
        filled = np.broadcast_to(np.asarray(0, NUMBER) if numbers is None else numbers, view.shape)
        op, shadow = traced.op, traced.shadows[number]
        field = traced.operands[number][0]
        if self.selected_by_data is not None and not op.mask and field.name == op.addressed_by_data:
            shadow.reshape(-1)[self.selected_by_data(op)] = filled.max(initial=0)  # type: ignore[union-attr]
        elif active is not None and axes is not None:
            which, moved = np.broadcast_to(active, counts), {a for a, n in zip(axes, view.shape) if n > 1}
            inside = which.any(axis=tuple(a for a in range(which.ndim) if a not in moved), keepdims=True)
            inside = inside.reshape([inside.shape[a] for a in sorted(axes)])
            view[...] = np.where(np.transpose(inside, np.argsort(np.argsort(axes))), filled, view)
        else:
            view[...] = filled
        if isinstance(shadow, np.ndarray) and not shadow.any():
            traced.replace_shadow(number, None)

    # -- reports -------------------------------------------------------------------------------------------------------
    def note_read(self, view: np.ndarray, shadow: Shadow, passed: dict[int, np.ndarray],
                  at: Callable[[], Location | None]) -> None:
        """Record the first read of each origin among the elements that an operation passes on."""
        for number in {int(n) for values in passed.values() for n in np.unique(values)} - {0}:
            origin = self.origins[number - 1]
            if origin.read_at is not None or not isinstance(shadow, np.ndarray) or number not in view:
                continue
            origin.read_at = at()
            start = view.__array_interface__["data"][0] - shadow.__array_interface__["data"][0]
            flat = (start + int(np.dot(np.argwhere(view == number)[0], view.strides))) // NUMBER.itemsize
            origin.element = tuple(int(n) for n in np.unravel_index(flat, shadow.shape))

    def report_all(self, numbers: np.ndarray | None) -> None:
        """Report the origins of unwritten elements that a transfer stores."""
        for number in () if numbers is None else np.unique(numbers[numbers > 0]):
            self.report(int(number))

    def report(self, number: int) -> None:
        origin = self.origins[number - 1]
        if origin.is_reported:
            return
        origin.is_reported = True
        allocated_at = origin.allocated_at or Location("<unknown>", 0, 0)
        read_at = origin.read_at or allocated_at
        error = UnwrittenTile(element=list(origin.element), name=origin.name, line=allocated_at.line)
        if is_strict():
            raise error.located(read_at)
        warn_once(f"{error.headline}: zeros where the kernel is compiled, anything on a device", UnwrittenRead, read_at)


def same(handle: object, other_handle: object) -> bool:
    """Return whether two handles denote one buffer. Handles are arrays, or SSA values, for which Python may have
    several objects."""
    return handle is other_handle or (not isinstance(handle, np.ndarray) and handle == other_handle)


def has_base_size(tile: Tile) -> bool:
    """Return whether a tile's elements have the size of its buffer's, so that each has one number."""
    return tile.dtype.itemsize == tile.base_dtype.itemsize


def pattern_of(tile: Tile) -> Pattern:
    """Return the tile's pattern on numbers of origins, one for each element of the buffer."""
    pattern = Pattern(tile)
    pattern.dtype, pattern.itemsize = NUMBER, NUMBER.itemsize
    pattern.strides = tuple(step * NUMBER.itemsize for step in pattern.steps)
    return pattern


def boxed(tile: Tile, axes: Sequence[int], part: Part) -> Tile:
    """Return the part of a tile that lies in a mask's box: the rest may be outside of the buffer."""
    starts, counts, _ = part
    access, dims = tile.access, []
    for position, (axis, (step, count)) in enumerate(zip(axes, tile.access.dims)):
        if count > 1:
            access, count = access.shifted(position, Linear(starts[axis])), counts[axis]
        dims.append((step, count))
    return tile.patterned(partition=access.partition, free=access.free, dims=tuple(dims))


def along(view: np.ndarray, axes: Sequence[int], rank: int) -> np.ndarray:
    """Return an operand's dims as dims of the iteration space; a dim that it lacks has extent 1."""
    ordered = view.transpose(np.argsort(axes)) if view.ndim else view
    shape = [1] * rank
    for axis, n in zip(sorted(axes), ordered.shape):
        shape[axis] = n
    return ordered.reshape(shape)
