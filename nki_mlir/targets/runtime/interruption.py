# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The effect of Ctrl-C in this process: whether it ends launches of all threads, and which C function handles it."""

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 2 << 15           # the status of a launch that a signal has ended
getsig = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(("PyOS_getsig", ctypes.pythonapi))
setsig = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(("PyOS_setsig", ctypes.pythonapi))


def ends_work() -> bool:
    """Return whether Ctrl-C ends the work of all threads: by Python's default handler, or that of ``asyncio.run``.

    With any other handler, the program decides what its other threads do.
    """
    handler = signal.getsignal(signal.SIGINT)
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler is signal.default_int_handler or type(runner).__module__ == "asyncio.runners"


def handler_of_python() -> int | None:
    """Return the address of the C function by which Python handles Ctrl-C, or None while it handles none."""
    return getsig(signal.SIGINT) if callable(signal.getsignal(signal.SIGINT)) else None


@contextmanager
def keep_handler() -> Iterator[None]:
    """Restore the C function that handles Ctrl-C after the ``with`` block. When LLVM writes a file in it, it registers
    a handler that removes the file, and does not restore the old one."""
    before = getsig(signal.SIGINT)
    try:
        yield
    finally:
        if getsig(signal.SIGINT) != before:
            setsig(signal.SIGINT, before)
