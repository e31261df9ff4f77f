# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A line of text about long work: its phase, the share of it that is done, and the rate.

Phases report to it from any module: ``with phase("scheduling", count, "instructions") as advance: ... advance()``.
Commands show the line, and with ``NKI_MLIR_PROGRESS=on`` scripts and notebooks: on standard error if that is a
terminal, or in the notebook's cell, after a second of work, five times a second at most. Otherwise nothing is counted.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

AFTER, BETWEEN = 1.0, 0.2           # seconds: until the line is there, and between its changes
ENVIRONMENT = "NKI_MLIR_PROGRESS"

Advance = Callable[..., None]


def ignore(count: int = 1) -> None:
    """Ignore the progress, because no line is shown."""


class ProgressLine:
    """The line on a terminal or in a notebook, until the end of the outermost phase.

    ``restarts``: each outermost phase restarts the time until the line is shown; else that time begins with this
    object.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, console: Any = None, restarts: bool = True) -> None:
        self.clock, self.console, self.restarts = clock, console, restarts
        self.began, self.changed = clock(), 0.0
        self.phases: list[tuple[str, int, str]] = []
        self.live: Any = None

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Advance]:
        """Begin a phase of ``total`` units (0: unknown), and yield the function that reports units that are done."""
        if self.restarts and not self.phases:
            self.began = self.clock()
        self.phases.append((name, total, unit))
        began, done = self.clock(), 0

        def advance(count: int = 1) -> None:
            nonlocal done
            done += count
            moment = self.clock()
            if moment - self.changed >= BETWEEN and moment - self.began >= AFTER:
                self.changed = moment
                self.show(described(name, done, total, unit, moment - began))
        try:
            advance(0)
            yield advance
        finally:
            self.phases.pop()
            if not self.phases:
                self.end()

    def show(self, text: str) -> None:
        # start-up: most work is done before
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text
        if self.live is None:
            self.live = Live(console=self.console or Console(stderr=True), auto_refresh=False, transient=True)
            self.live.start()
        self.live.update(Text(text, overflow="ellipsis", no_wrap=True), refresh=True)

    def end(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None


def described(name: str, done: int, total: int, unit: str, seconds: float) -> str:
    """Return the line of a phase."""
    parts = [name]
    if total:
        parts.append(f"{min(100, 100 * done // total)} %")
    if done:
        parts.append(f"{done:,}" + (f" of {total:,}" if total else "") + f" {unit}")
        if seconds > 0:
            parts.append(f"{done / seconds:,.0f}/s")
    return f"{', '.join(parts)}, {seconds:.0f} s"


_line: ProgressLine | None = None


def requested() -> bool:
    """Return whether the environment enables the line, and a terminal or notebook can show it."""
    return os.environ.get(ENVIRONMENT, "").lower() == "on" and is_read()


def is_read() -> bool:
    """Return whether standard error is a terminal, or the code is a notebook's."""
    from nki_mlir.display import running_shell  # start-up: kernels show no progress unless they set a variable
    return type(running_shell()).__name__ == "ZMQInteractiveShell" or (sys.stderr is not None and sys.stderr.isatty())


def show_progress(line: ProgressLine | None) -> None:
    """Show the progress line; None: stop."""
    global _line
    _line = line


@contextmanager
def phase(name: str, total: int = 0, unit: str = "") -> Iterator[Advance]:
    """Begin a phase of the work, which may report its progress by the function that is yielded."""
    line = _line if _line is not None else ProgressLine() if requested() else None
    if line is None:
        yield ignore
        return
    show_progress(line)
    with line.phase(name, total, unit) as advance:
        yield advance
