# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records the files that a kernel's Python reads during capture, so that later calls notice changes of their contents.

``open`` is replaced during a capture, for the thread that captures. An audit hook would see more, but cannot be
removed, and makes ``id`` and frames slower in the process.
"""

import builtins
import hashlib
import io
import os
import pathlib
import stat
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

from nki_mlir.capture.locations import STANDARD_LIBRARY, is_toolchain

# In Python 3.10 paths call the ``open`` that this class has an attribute for.
PATH_ACCESSOR: Any = getattr(pathlib, "_NormalAccessor", None)
OF_PYTHON = "<frozen io>"       # the file of the replacement in tracebacks: a missing file is no fault of the toolchain
LARGE = 1 << 24         # bytes: larger files are compared by size and time of the last change


def state_of_file(path: str) -> object:
    """Return a comparable state of a file's contents; None if no file can be read. The state of a device or pipe, which
    has no end and returns other bytes each time, equals no other state."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            return object()
        if status.st_size > LARGE:
            return status.st_size, status.st_mtime_ns, status.st_ino
        with io.FileIO(path) as file:
            return hashlib.sha256(file.readall()).digest()
    except (OSError, ValueError):
        return None


def is_read_by_kernel(frame: FrameType | None) -> bool:
    """Return whether the code that reads a file is a kernel's, or a library's that the kernel calls; not the
    toolchain's or an import's."""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_toolchain(file) or file.startswith("<frozen importlib"):
            return False
        if not file.startswith((STANDARD_LIBRARY, "<frozen")) and "site-packages" not in file:
            return True
        frame = frame.f_back
    return False


class FilesRead:
    """A context that records the files that a kernel reads: ``states`` maps their paths to the state of their
    contents."""

    def __init__(self) -> None:
        self.states: dict[str, object] = {}
        self._thread = threading.get_ident()

    def __enter__(self) -> "FilesRead":
        self._builtin, self._io = builtins.open, io.open
        self._replacement = self._noting(self._builtin)
        builtins.open = io.open = self._replacement
        if PATH_ACCESSOR is not None:
            self._path_open = PATH_ACCESSOR.open
            PATH_ACCESSOR.open = staticmethod(self._replacement)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if builtins.open is self._replacement:          # unless the kernel has replaced it
            builtins.open = self._builtin
        if io.open is self._replacement:
            io.open = self._io
        if PATH_ACCESSOR is not None and PATH_ACCESSOR.open is self._replacement:
            PATH_ACCESSOR.open = self._path_open

    def _noting(self, original: Any) -> Any:
        def open(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
            if (threading.get_ident() == self._thread and not isinstance(file, int) and {*mode}.isdisjoint("wax+")
                    and is_read_by_kernel(sys._getframe(1))):
                path = os.path.abspath(os.fsdecode(file))
                self.states.setdefault(path, state_of_file(path))
            return original(file, mode, *arguments, **keywords)
        open.__code__ = open.__code__.replace(co_filename=OF_PYTHON)
        return open
