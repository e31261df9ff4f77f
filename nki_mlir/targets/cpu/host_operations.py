# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs tile operations that have no native code in the interpreter, which the compiled program calls back.

``nki.device_print`` is one, and so are operations without a lowering to linalg. Programs with such operations do not
use the worker pool: the callback needs Python's lock, which a waiting caller may hold.
"""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.dialects.op import Op
from nki_mlir.result_memory import array_at

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


class OnlyChanges:
    """An operand that an operation writes: the operation works on a copy, and only elements that changed are written
    back."""

    def __init__(self, arrays: list[np.ndarray], number: int) -> None:
        self.array = arrays[number]
        self.before = self.array.copy()
        self.after = arrays[number] = self.before.copy()

    def write(self) -> None:
        bits = np.dtype(f"u{self.array.itemsize}")
        array, before, after = (view.view(bits) for view in (self.array, self.before, self.after))
        np.copyto(array, after, where=before != after)


@dataclass
class HostOperations:
    """The operations of one kernel by site, the function that runs them, and their exceptions."""

    runners: dict[int, Callable[[int], None]] = field(default_factory=dict)
    failures: dict[tuple[int, int], BaseException] = field(default_factory=dict)       # by thread and site
    exchanges_data: bool = False                     # whether programs of the kernel exchange data with others
    callback: Any = None

    @property
    def address(self) -> int:
        """Return ``status callback(words)``, whose words are the site, the addresses of the operation's buffers, its
        symbols."""
        if self.callback is None:
            self.callback = CALLBACK(self._run)
        return ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def add(self, site: int, op: Op, at: Location | None) -> None:
        """Register an operation, whose runner gets the addresses of its tiles' buffers, then its symbols."""
        from nki_mlir.targets.interpreter.execute import compile_op  # start-up: most kernels are native code
        self.exchanges_data |= isinstance(op, Meeting)
        run = compile_op(op)
        operands = op.operands()
        tiles = [(t.base_shape, t.base_dtype.numpy) for _, t in operands]
        shared = [k for k, (field, tile) in enumerate(operands) if field.writes and tile.space == HBM]
        count = 1 + len(tiles) + len(op.symbols)

        def runner(words: int) -> None:
            numbers = (ctypes.c_int64 * count).from_address(words)
            arrays = [array_at(address, shape, dtype) for address, (shape, dtype) in zip(numbers[1:], tiles)]
            # An operation with a run-time address writes back a complete tensor, parts of which other programs may be
            # writing.
            changes = [OnlyChanges(arrays, k) for k in shared] if self.exchanges_data else []
            try:
                run(arrays, numbers[1 + len(tiles):])
            except NkiMlirError as error:
                raise error.located(at) from None
            for change in changes:
                change.write()
        self.runners[site] = runner

    def _run(self, words: int) -> int:
        site = ctypes.c_int64.from_address(words).value
        try:
            self.runners[site](words)
            return 0
        except BaseException as error:      # an exception must not end in compiled frames; the caller raises it
            self.failures[threading.get_ident(), site] = error
            return site

    def failure(self, site: int) -> BaseException | None:
        """Return the exception of an operation on this thread, or on any thread if another one called the kernel."""
        thread_site = threading.get_ident(), site
        key = thread_site if thread_site in self.failures else next((k for k in self.failures if k[1] == site),
                                                                    thread_site)
        return self.failures.pop(key, None)
