# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Looks at each operation of an eager run: where values stop being finite or leave their range, and what is rounded.

An operation's own results are compared with those that its class's reference gives for the same operands in float64.
"""

from collections.abc import Callable, Sequence

import numpy as np

from nki_mlir.capture.locations import user_location
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.checking.report import ERROR, WARNING, CheckFinding, StatementError
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.interpreter.execute import Pattern

SHOWN = 4                       # operands whose values a message has


class OperationObserver:
    """What one run has shown; programs of a grid share it."""

    def __init__(self) -> None:
        self.findings: list[CheckFinding] = []
        self.rounding: dict[tuple[Location | None, str], float] = {}
        self.reported: set[tuple[str, Location | None]] = set()
        self.read: set[Buffer] = set()
        self.unread: dict[Buffer, tuple[Location | None, str]] = {}     # buffers that are written and not read since

    def perform(self, op: Op, views: Sequence[View], run: Callable[[], None]) -> None:
        """Run an operation, and look at it."""
        at = user_location()
        if op.mask or op.limits:                    # its tiles may reach beyond what it touches
            run()
            self.note_uses(op, views, at)
            return
        before = {name: np.array(values(tile)) for name, tile in op.sources()}
        run()
        self.note_uses(op, views, at)
        for _, tile in op.targets():
            if tile.dtype.is_float:
                self.look(op, tile, before, at)
        self.compare(op, before, at)

    # -- dead stores ---------------------------------------------------------------------------------------------------
    def note_uses(self, op: Op, views: Sequence[View], at: Location | None) -> None:
        read = {name for name, _ in op.sources()}
        operands = list(zip(op.operands(), views))
        for (field, _), view in operands:
            if field.name in read:
                self.unread.pop(view.buffer, None)
                self.read.add(view.buffer)
        targets = [(tile, view) for (field, tile), view in operands if field.writes and field.name not in read]
        for tile, view in targets if len(targets) == 1 and not op.acts_outside else ():
            if view.buffer.role == "local":
                last = self.unread.get(view.buffer)
                if last is not None and tile.layout.form.is_whole and not op.mask and not op.limits:
                    self.report("dead-store", WARNING, f"what {last[1]} writes to {view.buffer.name} is overwritten at "
                                f"line {at.line if at else '?'} before anything reads it", last[0],
                                "remove the statement, or read its result")
                self.unread[view.buffer] = at, described(op)

    def end(self) -> None:
        """The run has ended."""
        for buffer, (at, name) in self.unread.items():
            if buffer not in self.read:             # in a loop the last iteration may leave what the others need
                self.report("dead-store", WARNING, f"nothing reads what {name} writes to {buffer.name}", at,
                            "remove the statement, or use its result")
        self.unread.clear()

    # -- values --------------------------------------------------------------------------------------------------------
    def look(self, op: Op, tile: Tile, before: dict[str, np.ndarray], at: Location | None) -> None:
        """Report the first element that stops being finite here."""
        result = numbers(values(tile))
        bad = ~np.isfinite(result)
        if not bad.any() or any(not np.isfinite(numbers(b)).all() for b in before.values()):
            return
        index = tuple(int(k) for k in np.argwhere(bad)[0])
        value = "NaN" if np.isnan(result[index]) else f"{result[index]}"
        source = next(iter(before.values())) if len(before) == 1 else None
        operands = ", ".join(f"{name} = {shown(b, index, result.shape)}" for name, b in list(before.items())[:SHOWN])
        kind, severity = "not-finite", ERROR if np.isnan(result[index]) else WARNING
        wide = self.in_float64(op, before)
        if wide is None and source is not None and source.shape == result.shape:
            wide = numbers(source)                  # a copy converts
        if wide is not None and wide.shape == result.shape and np.isfinite(wide[index]):
            self.report("range", WARNING, f"{described(op)} gives {wide[index]:.6g} at {list(index)}, which "
                        f"{tile.dtype} cannot hold: it becomes {value}", at, "scale the values, or use a wider dtype")
            return
        self.report(kind, severity, f"{described(op)} makes the first {value}, at {list(index)}"
                    + (f", of {operands}" if operands else ""), at, "keep the operands within the function's domain")

    def compare(self, op: Op, before: dict[str, np.ndarray], at: Location | None) -> None:
        """How far the rounding of this operation alone is from float64."""
        targets = [tile for _, tile in op.targets()]
        if len(targets) != 1:
            return
        wide = self.in_float64(op, before)
        dtype = targets[0].dtype
        result = numbers(values(targets[0]))
        if wide is None or wide.shape != result.shape:
            return
        if dtype.is_integer:
            self.check_integers(op, wide, result, dtype, at)
            return
        both = np.isfinite(wide) & np.isfinite(result)
        largest = float(np.abs(wide[both]).max(initial=0.0))
        if largest:
            error = float(np.abs(wide[both] - result[both]).max(initial=0.0)) / largest
            key = at, described(op)
            self.rounding[key] = max(self.rounding.get(key, 0.0), error)

    def check_integers(self, op: Op, wide: np.ndarray, result: np.ndarray, dtype: DType, at: Location | None) -> None:
        """Integers that were cut to what their dtype holds."""
        limits = np.iinfo(dtype.numpy)
        outside = np.isfinite(wide) & ((wide > limits.max) | (wide < limits.min))
        if outside.any():
            index = tuple(int(k) for k in np.argwhere(outside)[0])
            self.report("range", WARNING, f"{described(op)} gives {wide[index]:.6g} at {list(index)}, which {dtype} "
                        f"cannot hold: it becomes {result[index]:.0f}", at, "use a wider dtype")

    def in_float64(self, op: Op, before: dict[str, np.ndarray]) -> np.ndarray | None:
        """The result for the same operands in float64; None where the operation is no function of numbers."""
        if op.mask or op.limits or op.index_forms() or op.keeps_bits or not op.is_loop_nest or op.acts_outside or (
                len(before) != len(op.sources())):
            return None
        try:
            with np.errstate(all="ignore"):
                wide = op.reference(*(numbers(b) for b in before.values()))
        except Exception:                           # a reference may take the dtypes of its class alone
            return None
        return np.asarray(wide, np.float64) if isinstance(wide, np.ndarray) else None

    def report(self, kind: str, severity: str, message: str, at: Location | None, fix: str = "") -> None:
        """Keep a finding, one of a kind for each line."""
        if (kind, at) not in self.reported:
            self.reported.add((kind, at))
            self.findings.append(CheckFinding(kind, severity, message, at, fix))

    def errors(self) -> list[StatementError]:
        """How much statements round, the largest first."""
        ranked = sorted(self.rounding.items(), key=lambda item: -item[1])
        return [StatementError(at, name, error) for (at, name), error in ranked if error > 0]


def described(op: Op) -> str:
    """An operation with the function that it computes."""
    function = op.__dict__.get("fn") or op.__dict__.get("op")
    return f"{op.name} ({function})" if function else op.name


def values(tile: Tile) -> np.ndarray:
    """The tile's elements."""
    return Pattern(tile).at(np.asarray(tile.handle), ())


def numbers(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).astype(np.float64)


def shown(array: np.ndarray, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """An operand's value at an element of the result, or its range."""
    if array.shape == shape:
        return f"{float(array[index]):.6g}"
    wide = numbers(array)
    return f"{wide.min():.6g} to {wide.max():.6g}"
