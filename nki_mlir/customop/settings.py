# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The settings of the emulated engine: whether cores run on threads or one after the other, and where printf writes."""

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace

from nki_mlir.diagnostics import NkiMlirError

PRINTF_MAX = 131_072
LEVELS = ("TRACE", "DEBUG", "INFO")                     # levels of NEURON_RT_LOG_LEVEL that show what kernels print


class BadQueueSize(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-PRINTF"
    message = "NEURON_RT_GPSIMD_STDOUT_QUEUE_SIZE_BYTES cannot be {given}"
    fix = "set it to a power of two up to {limit}, or to 0 for no output"


@dataclass(frozen=True)
class CallSettings:
    """The settings of calls. ``printf_bytes`` None takes the size from the environment; ``output`` None is standard
    error."""

    threads: bool = True
    printf_bytes: int | None = None
    output: io.StringIO | None = None

    @property
    def workers(self) -> int:
        return os.cpu_count() or 1 if self.threads else 1

    def ring_bytes(self) -> int:
        """Return the size of the buffer of printf in bytes, 0 for no output. Raise ``BadQueueSize``."""
        if self.printf_bytes is not None:
            return checked_size(str(self.printf_bytes))
        size = checked_size(os.environ.get("NEURON_RT_GPSIMD_STDOUT_QUEUE_SIZE_BYTES", "0"))
        return size if os.environ.get("NEURON_RT_LOG_LEVEL", "").upper() in LEVELS else 0

    def show(self, printed: str) -> None:
        """Print the output of a call's kernel below the line that the runtime writes."""
        if self.output is not None:
            self.output.write(printed)
        elif printed:
            stamp = time.strftime("%Y-%b-%d %H:%M:%S.") + f"{time.time_ns() // 100_000 % 10_000:04d}"
            head = (f"{stamp} {os.getpid()}:{threading.get_native_id()} INFO  TDRV:pool_stdio_queue_consume_all_entries"
                    "  Printing stdout from GPSIMD:")
            print(f"{head}\n{printed}", end="" if printed.endswith("\n") else "\n", file=sys.stderr, flush=True)


def checked_size(text: str) -> int:
    size = int(text) if text.strip().isdecimal() else -1
    if size < 0 or size > PRINTF_MAX or size & (size - 1):
        raise BadQueueSize(given=text, limit=PRINTF_MAX)
    return size


current: ContextVar[CallSettings | None] = ContextVar("engine", default=None)


_open: list[CallSettings] = []                                # settings of all threads, the innermost last


def current_engine() -> CallSettings:
    """Return this thread's settings. A thread without settings, such as XLA's threads, uses the settings of another
    thread."""
    return current.get() or next(reversed(_open), None) or CallSettings(
        threads=os.environ.get("NKI_MLIR_GPSIMD", "") != "sequential")


@contextlib.contextmanager
def _set(settings: CallSettings) -> Iterator[None]:
    token = current.set(settings)
    _open.append(settings)
    try:
        yield
    finally:
        _open.remove(settings)
        current.reset(token)


@contextlib.contextmanager
def engine(threads: bool) -> Iterator[None]:
    """Run the cores of calls in a ``with`` block on threads, or one after the other: core 0 first, on the calling
    thread.

    Arguments:
        threads: True for threads

    Result:
        A context manager.

    Errors:
        None.

    Example:
        relu = load("relu", ["relu.cpp"], ["relu_shape.cpp"], multicore=True).relu_forward
        with engine(threads=False):
            assert np.array_equal(relu(np.ones((1, 8), np.float32)), np.ones((1, 8)))
    """
    with _set(replace(current_engine(), threads=threads)):
        yield


@contextlib.contextmanager
def captured_printf(size_bytes: int = PRINTF_MAX) -> Iterator[io.StringIO]:
    """Collect the output of kernels in a ``with`` block.

    Arguments:
        size_bytes: the size of each call's buffer, a power of two up to 131072; it keeps the newest output

    Result:
        A context manager that yields a text stream.

    Errors:
        Calls raise BadQueueSize for any other size.

    Example:
        relu = load("relu", ["relu.cpp"], ["relu_shape.cpp"]).relu_forward
        with captured_printf() as printed:
            relu(np.ones((1, 8), np.float32))
        assert printed.getvalue() == ""
    """
    output = io.StringIO()
    with _set(replace(current_engine(), printf_bytes=size_bytes, output=output)):
        yield output
