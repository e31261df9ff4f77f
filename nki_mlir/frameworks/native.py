# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel's program as a C function: ``int32_t entry(void** data)``.

``data`` has the addresses of the inputs in order, then of the shared outputs in order. The function runs the whole grid
and returns 0, or a status that ``error`` turns into the exception. Programs of the JIT are such functions already; for
every other executor a callback wraps the memory in NumPy arrays. No exception crosses the boundary.
"""

import ctypes
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.kernel_function import ArgumentSpec
from nki_mlir.recycled import array_at

C_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
FAILURES_KEPT = 256                 # exceptions that wait to be asked for

Program = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]


@dataclass(frozen=True, eq=False)
class NativeEntry:
    """The function's address, the exception of a status, and whatever must live as long as the address is used."""

    address: int
    error: Callable[[int], BaseException]
    keep: object

    def __call__(self, pointers: Sequence[int]) -> None:
        """Call it with data addresses; raises the kernel's exception."""
        status = C_ENTRY(self.address)((ctypes.c_void_p * len(pointers))(*pointers))
        if status:
            raise self.error(status)


def native_entry(program: Any, inputs: Sequence[ArgumentSpec], shared: Sequence[ArgumentSpec]) -> NativeEntry:
    """The entry of a program, which is ``run(inputs, shared)`` on arrays or offers ``address`` and ``error`` itself."""
    if hasattr(program, "address"):
        return NativeEntry(program.address, program.error, program)
    return callback_entry(program, inputs, shared)


def callback_entry(program: Program, inputs: Sequence[ArgumentSpec], shared: Sequence[ArgumentSpec]) -> NativeEntry:
    """An entry that calls Python."""
    failures: dict[int, BaseException] = {}
    statuses = itertools.count(1)
    plan = [(a.shape, a.dtype.numpy) for a in (*inputs, *shared) if a.dtype is not None]
    count = len(inputs)

    def run(data: int) -> int:
        try:
            pointers = (ctypes.c_void_p * len(plan)).from_address(data)
            arrays = [array_at(p or 0, shape, dtype) for p, (shape, dtype) in zip(pointers, plan)]
            program(arrays[:count], arrays[count:])
            return 0
        except BaseException as error:              # it would end in the frames of a foreign caller
            status = next(statuses) & 0x7FFFFFFF
            failures[status] = error
            failures.pop(status - FAILURES_KEPT, None)
            return status

    def error(status: int) -> BaseException:
        return failures.pop(status, None) or InternalError(f"a kernel returned the unknown status {status}")
    function = C_ENTRY(run)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return NativeEntry(address, error, function)
