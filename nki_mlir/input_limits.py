# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Limits on the resources that an input from outside may use: an environment variable raises each.

Files of a few lines can declare tensors of terabytes and loops that never end. Kernels are Python, whose author may
use the machine freely; these limits are for modules, assembly, binaries and graphs.
"""

import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from nki_mlir.diagnostics import KernelError, Location, NkiMlirError
from nki_mlir.environment import EnvironmentVariable


class LimitText(NkiMlirError):
    code = "NKI-LIMIT-TEXT"
    message = "{variable} is {text}, which must be a positive number of {unit}"
    fix = "write it in digits, or leave {variable} unset for {default:,}"


class InputTooLarge(NkiMlirError):
    code = "NKI-INPUT-SIZE"
    message = "{what} takes {size:,} {unit}, more than the limit of {limit:,}"
    why = "reading it takes several times as much memory"
    fix = "set {variable} to a larger number of {unit}"


class InputTime(NkiMlirError):
    code = "NKI-INPUT-TIME"
    message = "the input took more than {limit:,} seconds"
    why = "a file of a few lines can contain a loop that never ends"
    fix = "set {variable} to a larger number of seconds"


class TooManyIterations(KernelError):
    code = "NKI-ITERATIONS"
    message = "the loop has {count:,} iterations, which {who} runs one by one; the limit is {limit:,}"
    why = "an iteration takes a microsecond or more"
    fix = "correct the bounds, write a loop that ends by break as a while, or set {variable} to a larger number"


AGAIN = 0.2                     # seconds until the alarm repeats
PROGRAMS = 1 << 24              # programs of a launch, each of which is captured or run
FEW_ITERATIONS = 1_000          # a loop with no more needs no check
DIMENSIONS, ELEMENTS = 32, 1 << 60      # limits of a tensor's dimensions and elements


class InputLimit(NamedTuple):
    """A limit: the environment variable that sets it, its unit and its default."""

    variable: str
    unit: str
    default: int

    def value(self) -> int:
        """Return the limit; raise ``LimitText`` if the variable is malformed."""
        text = EnvironmentVariable(self.variable).text()
        if not text:
            return self.default
        if not text.isascii() or not text.isdecimal() or len(text) > 18 or not int(text):
            raise LimitText(variable=self.variable, text=text[:40], unit=self.unit, default=self.default)
        return int(text)

    def check(self, size: int, subject: str, name: str) -> None:
        """Raise ``InputTooLarge`` if ``size``, of ``subject`` in the file ``name``, exceeds the limit."""
        if size > (limit := self.value()):
            raise InputTooLarge(what=subject, size=size, unit=self.unit, limit=limit, variable=self.variable).located(
                Location(name, 1, 0))

    def read(self, file: str | Path, subject: str = "the file") -> bytes:
        """Read a file. Raise ``OSError``, or ``InputTooLarge``: a device has no end."""
        limit = self.value()
        with open(file, "rb") as opened:
            data = opened.read(limit + 1)
            if len(data) > limit:
                self.check(max(len(data), os.fstat(opened.fileno()).st_size), subject, str(file))
        return data

    def read_text(self, file: str | Path, subject: str = "the file", errors: str = "strict") -> str:
        """Read a file of UTF-8, with ``\\n`` for all ends of lines."""
        return io.StringIO(self.read(file, subject).decode(errors=errors), newline=None).read()


TEXT_BYTES = InputLimit("NKI_MLIR_INPUT_TEXT", "bytes", 1 << 24)         # of a text that is read
ARCHIVE_BYTES = InputLimit("NKI_MLIR_INPUT_ARCHIVE", "bytes", 1 << 26)   # of a compiled kernel or trace, unpacked
TENSOR_BYTES = InputLimit("NKI_MLIR_INPUT_BYTES", "bytes", 1 << 27)      # of the tensors that an input declares
ARRAY_BYTES = InputLimit("NKI_MLIR_INPUT_BYTES", "bytes", 1 << 29)       # of an array's file that an option names
SYNTAX_NODES = InputLimit("NKI_MLIR_INPUT_NODES", "nodes", 100_000)      # of a source to rewrite; a node takes 4 KB
ITERATIONS = InputLimit("NKI_MLIR_ITERATIONS", "iterations", 1_000_000_000)  # of a loop that Python runs
LISTED = InputLimit("NKI_MLIR_ITERATIONS", "iterations", 100_000_000)        # of a loop over a list, of 40 bytes each
SECONDS = InputLimit("NKI_MLIR_INPUT_SECONDS", "seconds", 600)           # in which a command reads, lowers and runs it


def check_iterations(numbers: range, who: str, at: Callable[[], Location | None], limit: InputLimit = ITERATIONS
                     ) -> None:
    """Raise ``TooManyIterations`` at a location if a loop has more iterations than Python may run."""
    count = -((numbers.start - numbers.stop) // numbers.step)           # ``len`` fails above 2^63 - 1
    if count > FEW_ITERATIONS and count > limit.value():
        raise TooManyIterations(count=count, who=who, limit=limit.value(), variable=limit.variable).located(at())


@contextmanager
def limited_time() -> Iterator[None]:
    """Raise ``InputTime`` in the ``with`` block, also in native code, when the time limit is over.

    It is for commands, which run in a separate process. A limit within another one has no effect. An alarm at the start
    or the end of the block raises nothing, so the end always stops the timer. The timer repeats, so that the next alarm
    makes up for such a one.
    """
    import signal  # start-up: only commands limit their time
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    limit = SECONDS.value()
    is_over = False

    def over(number: int, frame: FrameType | None) -> None:
        nonlocal is_over
        if frame is not None and frame.f_globals.get("__name__") in (__name__, contextmanager.__module__):
            return
        is_over = True
        raise InputTime(limit=limit, variable=SECONDS.variable)
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, limit, AGAIN)
    try:
        yield
    except RuntimeError:            # MLIR's bindings replace what a handler of signals raises in a callback
        if not is_over:
            raise
        raise InputTime(limit=limit, variable=SECONDS.variable) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
