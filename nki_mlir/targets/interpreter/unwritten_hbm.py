# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tracks memory in HBM that starts unwritten: the bytes that operations have written, and reads of other bytes.

Eager execution, the interpreter and the simulator of the instruction stream mark such memory as ``tracked`` and
perform their operations as ``PreparedOperation``s. A read of memory that nothing has written is a warning, once for
each memory.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.nisa.meeting import CoreBarrierOp
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.scalar_body import has_domain
from nki_mlir.targets.interpreter.execute import (
    Arrays,
    Pattern,
    Runner,
    Values,
    active_part,
    compile_op,
    within_domain,
)

# Each of two trials of an operation gives unwritten bytes these values: (those of sources, those of targets). If
# results differ, the operation has read such bytes; it has written the bytes that changed.
TRIALS = (0x00, 0x5A), (0xA5, 0x3C)


class UnwrittenRead(UserWarning):
    """A read of memory in HBM that nothing has written."""


class Tracked(np.ndarray):
    """An array that records which of its bytes have been written. Views of it do not."""

    written_units: np.ndarray           # a truth value for each unit
    unit: int                           # bytes
    left: int = 0                       # 0: all units have been written; otherwise some may be unwritten
    label: str = ""
    reported: bool = False

    def first_unwritten(self) -> tuple[int, list[int]] | None:
        """Return the number of unwritten elements, and the index of the first; None if all are written."""
        if not self.left:
            return None
        written_elements = self.written_units if self.unit == self.itemsize else self.written_units.reshape(
            -1, self.itemsize // self.unit).all(1)
        missing = np.flatnonzero(~written_elements)
        return (len(missing), self.index_of(int(missing[0]))) if len(missing) else None

    def index_of(self, element: int) -> list[int]:
        return [int(k) for k in np.unravel_index(element, self.shape)]

    def refine(self, unit: int) -> None:
        """Divide the units so that ``unit`` bytes are a whole number of them."""
        times = self.unit // gcd(self.unit, unit)
        if times > 1:
            self.written_units = np.repeat(self.written_units, times)
            self.unit, self.left = self.unit // times, self.left * times

    def mark(self, part: np.ndarray) -> None:
        """Mark units as written: ``part`` is a view of the flags, or the indices of units."""
        if part.dtype == np.bool_:
            part[...] = True
        else:
            self.written_units[part] = True
        self.left -= part.size
        if self.left <= 0:              # it may count a unit twice
            self.left = self.written_units.size - int(np.count_nonzero(self.written_units))


def tracked(array: np.ndarray, label: str) -> Tracked:
    """Return the array as memory that nothing has written yet."""
    memory = array.view(Tracked)
    memory.written_units, memory.left, memory.label = np.zeros(array.size, np.bool_), array.size, label
    memory.unit = array.itemsize
    return memory


class PreparedOperation:
    """An operation prepared once for all operations that differ only in their buffers or in the starts of their
    tiles."""

    def __init__(self, op: Op, run: Runner | None = None) -> None:
        self.op, self.run, self.bounded = op, run or compile_op(op), has_domain(op)
        self.outside = not all(tile.on_chip for _, tile in op.operands())

    @cached_property
    def uses(self) -> "Uses":
        return Uses(self.op)

    def perform(self, op: Op, arrays: Arrays, values: Values, at: Callable[[], Location | None]) -> None:
        """Run it as ``op``. Report reads of memory that nothing has written, and arguments outside of a function's
        domain."""
        if self.bounded:
            within_domain(op, lambda: self.run(arrays, values), at)
        elif self.outside and any([type(a) is Tracked and a.left for a in arrays]):
            self.uses.perform(lambda: self.run(arrays, values), arrays, values, at)
        else:
            self.run(arrays, values)


class Uses:
    """The parts of tracked memory that one operation reads and writes."""

    def __init__(self, op: Op) -> None:
        self.op, self.operands = op, op.operands()
        # A barrier names a tensor whose parts different cores may have written, and reads no element.
        sources = set() if isinstance(op, CoreBarrierOp) else {n for n, _ in op.sources()} - {*op.unread_tiles()}
        self.reads = [k for k, (f, _) in enumerate(self.operands) if f.name in sources]
        self.writes = [k for k, (f, _) in enumerate(self.operands) if f.writes]
        self.tries = not op.is_loop_nest and not op.acts_outside        # its addresses may be known at run time only
        self.run: Runner | None = None
        self.patterns: dict[tuple[int, int], Pattern] = {}  # patterns of the flags of operands, by unit, without a mask

    def perform(self, act: Callable[[], None], arrays: Arrays, values: Values, at: Callable[[], Location | None]
                ) -> None:
        """Run the operation by ``act`` on the arrays of its operands, and report its reads of unwritten memory; ``at``
        returns the location."""
        open_ = [number for number, a in enumerate(arrays) if type(a) is Tracked and a.left]
        if self.tries:
            self.perform_tried(act, arrays, values, open_, at)
            return
        for number in open_:
            arrays[number].refine(self.operands[number][1].dtype.itemsize)        # type: ignore[attr-defined]
        flags: Callable[[int], np.ndarray] = lambda number: self.flags(number, arrays[number], values)
        if self.op.mask:
            iteration = self.op.iteration()
            box = active_part(self.op.mask, iteration.extents, values)
            if box is None:
                act()
                return
            axes = {number: iteration.axes[self.operands[number][0].name] for number in open_}
            flags = lambda number: part(self.operands[number][1], axes[number], box, values)(arrays[number])
        for number in open_:
            if number in self.reads:
                self.check(arrays[number], flags(number), at)
        act()
        unchanged = self.op.unchanged_tiles()
        for number in open_:
            if number in self.writes and self.operands[number][0].name not in unchanged:
                arrays[number].mark(flags(number))                                # type: ignore[attr-defined]

    def flags(self, k: int, array: Any, values: Values) -> np.ndarray:
        """Return the flags of an operand."""
        pattern = self.patterns.get((k, array.unit))
        if pattern is None:
            pattern = self.patterns[k, array.unit] = of_flags(Pattern(self.operands[k][1]), array.unit)
        return pattern.at(array.written_units, values)

    @staticmethod
    def check(array: Any, part: np.ndarray, at: Callable[[], Location | None]) -> None:
        flags = part if part.dtype == np.bool_ else array.written_units[part]
        if array.reported or flags.all():
            return
        if part.dtype == np.bool_:
            # Indices of units by the addresses of their flags.
            base = array.written_units.__array_interface__["data"][0]
            start = part.__array_interface__["data"][0] - base
            position = np.argwhere(~flags)[0]
            unit = start + int(np.dot(position, part.strides))
        else:
            unit = int(part.reshape(-1)[np.flatnonzero(~flags.reshape(-1))[0]])
        report(array, unit * array.unit // array.itemsize, at)

    # -- addresses known at run time -----------------------------------------------------------------------------------
    def perform_tried(self, act: Callable[[], None], arrays: Arrays, values: Values, open_: Sequence[int],
                      at: Callable[[], Location | None]) -> None:
        """Run an operation, after two trials on copies of memory that find the elements which it reads and writes."""
        for number in open_:
            arrays[number].refine(1)                                         # type: ignore[attr-defined]
        trials = [self.trial(arrays, values, *fills) for fills in TRIALS]
        act()
        if None in trials:
            return
        read = False
        for number in self.writes:
            first_trial, second_trial = (t[number] for t in trials)                         # type: ignore[index]
            if number not in open_:
                tile = Pattern(self.operands[number][1])
                read |= bool((as_bytes(tile.at(first_trial, values)) != as_bytes(tile.at(second_trial, values))).any())
                continue
            array: Any = arrays[number]
            first_trial, second_trial = (t.reshape(-1).view(np.uint8) for t in (first_trial, second_trial))
            changed = ((first_trial != TRIALS[0][1]) | (second_trial != TRIALS[1][1])) & ~array.written_units
            read |= bool((changed & (first_trial != second_trial)).any())
            array.mark(np.flatnonzero(changed))
        if read:
            sources = [arrays[number] for number in open_ if number in self.reads]
            for array in (a for a in sources if not a.reported):        # type: ignore[attr-defined]
                missing = np.flatnonzero(~array.written_units)
                report(array, int(missing[0]) // array.itemsize if len(missing) else 0, at)

    def trial(self, arrays: Arrays, values: Values, source: int, target: int) -> list[np.ndarray] | None:
        """Return the arrays after a run in which unwritten memory has these bytes; None if the run fails."""
        if self.run is None:
            self.run = compile_op(self.op)
        copies: list[np.ndarray] = []
        for number, array in enumerate(arrays):
            is_open = type(array) is Tracked and array.left
            earlier = next((copies[n] for n in range(number) if arrays[n] is array), None)
            copies.append(earlier if earlier is not None else
                          np.array(array) if is_open or number in self.writes else np.asarray(array))
            if is_open:
                raw = copies[number].reshape(-1).view(np.uint8)
                raw[~array.written_units] = target if number in self.writes else source        # type: ignore[attr-defined]
        try:
            self.run(copies, values)
        except NkiMlirError:                    # the run itself reports it
            return None
        return copies


def part(tile: Tile, axes: tuple[int, ...], box: Any, values: Values) -> Callable[[Any], np.ndarray]:
    """Return the flags of a tile under a mask. If the mask is not a box, return the indices of the tile's units."""
    pattern = Pattern(tile)
    starts, counts, which = box
    of_dims = [(starts[a], counts[a]) if extent > 1 else (0, 1) for a, extent in zip(axes, pattern.shape)]
    if which is None:
        inner = Pattern(tile, [(step, n) for (step, _), (_, n) in zip(pattern.dims, of_dims)])
        moved = sum(start * step for (start, _), (step, _) in zip(of_dims, pattern.dims))
        return lambda array: of_flags(inner, array.unit).view(array.written_units, 0, pattern.free(values) + moved)
    active = np.argwhere(which).T
    positions = np.stack([active[a] + starts[a] if extent > 1 else np.zeros_like(active[0])
                          for a, extent in zip(axes, pattern.shape)])

    def units_of(array: "Tracked") -> np.ndarray:
        units = tile.dtype.itemsize // array.unit
        # sorting is faster than hashing, whose hashes collide
        elements = np.unique_counts(pattern.elements(array, values, positions)).values
        return (elements[:, None] * units + np.arange(units)).reshape(-1)
    return units_of


def of_flags(pattern: Pattern, unit: int) -> Pattern:
    """Return the pattern as one on flags, one for each unit of the array."""
    units = pattern.itemsize // unit
    pattern.strides = tuple(s // unit for s in pattern.strides)
    if units > 1:
        pattern.shape, pattern.strides = (*pattern.shape, units), (*pattern.strides, 1)
    pattern.dtype, pattern.itemsize = np.dtype(np.bool_), units
    return pattern


def as_bytes(view: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(view).reshape(-1).view(np.uint8)


def report(array: "Tracked", element: int, at: Callable[[], Location | None]) -> None:
    array.reported = True
    value = array.reshape(-1)[element]
    text = (f"element {array.index_of(element)} of {array.label or 'a tensor in HBM'} is read before it "
            f"is written: {value} here, anything on a device")
    location = at() or Location("<unknown>", 0, 0)
    warnings.warn_explicit(text, UnwrittenRead, location.file, location.line)
