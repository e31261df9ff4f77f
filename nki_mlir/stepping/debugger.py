# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decide where a run stops: at source lines, where a value changes or stops being finite, or at each operation.

The driver of an executor calls ``before`` and ``after`` around each operation; at a stop, a front reads commands.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from nki_mlir.diagnostics import Location, with_singulars
from nki_mlir.stepping.moment import Moment, ShownTile

NOT_FINITE: dict[str, Callable[[np.ndarray], np.ndarray]] = {"nan": np.isnan, "inf": np.isinf}


class Quit(BaseException):
    """The user ends the run."""


@dataclass(frozen=True)
class Breakpoint:
    """A line of a file. The file may be the last parts of a path."""

    file: str
    line: int

    def matches(self, at: Location) -> bool:
        path, parts = Path(at.file).parts, Path(self.file).parts
        return at.line == self.line and (not parts or path[-len(parts):] == parts)

    def nearest(self, passed: Iterable[Location]) -> list[int]:
        """Return the last of the passed lines of the file before this line, and the first one after it."""
        lines = {at.line for at in passed if replace(self, line=at.line).matches(at)}
        before, after = [n for n in lines if n < self.line], [n for n in lines if n > self.line]
        return [*([max(before)] if before else []), *([min(after)] if after else [])]


@dataclass
class Stops:
    """The lines, tiles and values at which a run stops."""

    lines: list[Breakpoint] = field(default_factory=list)
    watched: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)         # keys of NOT_FINITE


class Front(Protocol):
    """Reads the commands at a stop."""

    def stopped(self, debugger: "Debugger", moment: Moment, reason: str) -> None:
        """Show the moment, and return when the run shall continue."""


class Debugger:
    """The state of one session. ``tiles`` has the latest tile of each name; ``watched`` has copies of values."""

    def __init__(self, front: Front, stops: Stops, step: bool) -> None:
        self.front, self.stops = front, stops
        self.at_each = step                     # stop at each operation
        self.steps = int(step)                  # operations until the next stop; 0: stop at conditions only
        self.to_line: Location | None = None    # stop at a line other than this one
        self.last: Location | None = None       # location of the previous operation
        self.tiles: dict[str, ShownTile] = {}
        self.before_write: dict[str, np.ndarray] = {}
        self.reached: list[Breakpoint] = []
        self.passed: set[Location] = set()      # locations of all operations so far
        self.number = 0
        self.lock = threading.RLock()            # programs that exchange data run on separate threads

    # -- what drivers call ---------------------------------------------------------------------------------------------
    def add_tile(self, tile: ShownTile) -> None:
        """Record that a tile of this name exists."""
        self.tiles[tile.name] = tile

    def count(self) -> int:
        """Return the number of the next operation."""
        self.number += 1
        return self.number

    def before(self, moment: Moment) -> None:
        """Stop before an operation, if there is a reason."""
        with self.lock:
            self._before(moment)

    def _before(self, moment: Moment) -> None:
        for tile in moment.targets:
            if tile.name in self.stops.watched and tile.name in self.tiles:
                self.before_write[tile.name] = np.array(self.tiles[tile.name].values())
        reason = self.reason_before(moment)
        self.last = moment.at
        if reason:
            self.stop(moment, reason)

    def reason_before(self, moment: Moment) -> str:
        """Return why the run stops before an operation, or an empty text if it does not."""
        at, line = moment.at, moment.at and moment.at[:2]
        arrived = at is not None and line != (self.last and self.last[:2])
        met = [b for b in self.stops.lines if b.matches(at)] if arrived and at is not None else []
        self.reached += [b for b in met if b not in self.reached]
        if arrived and at is not None:
            self.passed.add(at)
        if self.steps:
            self.steps -= 1
            if not self.steps:
                return "step"
        if self.to_line is not None and at is not None and line != self.to_line[:2]:
            return "line"
        return "breakpoint" if met else ""

    def after(self, moment: Moment) -> None:
        """Stop after an operation that changed a watched tile or wrote a value to stop at."""
        with self.lock:
            self._after(moment)

    def _after(self, moment: Moment) -> None:
        reasons = []
        for tile in moment.targets:
            if tile.name in self.stops.watched:
                reasons += self.changes(tile)
            if self.stops.values and (problem := self.not_finite(tile)):
                reasons.append(problem)
            self.tiles.setdefault(tile.name, tile)
        if reasons:
            self.stop(moment, "; ".join(reasons))

    def changes(self, tile: ShownTile) -> list[str]:
        """Describe the changes of a write in a watched tile."""
        earlier = self.tiles.get(tile.name, tile)
        old, new = self.before_write.pop(earlier.name, None), np.array(earlier.values())
        if old is None or old.shape != new.shape:
            return [f"{earlier.name} is written"]
        different = ~((old == new) | ((old != old) & (new != new)))
        if not different.any():
            return []
        index = tuple(int(k) for k in np.argwhere(different)[0])
        return [f"{earlier.name} changes in {int(different.sum())} elements, {earlier.name}{list(index)} from "
                f"{old[index]} to {new[index]}"]

    def not_finite(self, tile: ShownTile) -> str:
        """Return the first NaN or infinity to stop at among the values that were written."""
        values = np.asarray(tile.values())
        if values.dtype.kind not in "fV":
            return ""
        wide = values.astype(np.float32)
        for name in self.stops.values:
            positions = NOT_FINITE[name](wide)
            if positions.any():
                index = [int(k) for k in np.argwhere(positions)[0]]
                return with_singulars(f"{name} in {int(positions.sum())} elements of {tile.name}, the first at {index}")
        return ""

    # -- what commands do ----------------------------------------------------------------------------------------------
    def stop(self, moment: Moment, reason: str) -> None:
        self.steps, self.to_line = 0, None
        self.front.stopped(self, moment, reason)

    def step(self, count: int) -> None:
        """Continue for a number of operations."""
        self.steps = count

    def resume(self) -> None:
        """Continue as the run began: to the next operation if it stops at each, else to the next condition."""
        self.steps = int(self.at_each)

    def next_line(self, moment: Moment) -> None:
        """Continue to an operation of another source line."""
        self.to_line = moment.at or Location("", 0, 0)

    def names(self, moment: Moment) -> dict[str, object]:
        """Return the names that an expression may use: tiles, and the names in the moment's scope."""
        tiles = {name: tile.values() for name, tile in self.tiles.items() if name.isidentifier()}
        return tiles | {t.name: t.values() for t in moment.targets if t.name not in tiles} | moment.scope
