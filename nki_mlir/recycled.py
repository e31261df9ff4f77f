# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of results that is used again: what a program has let go of is handed out for the next result of that size.

Fresh pages of a large array cost more than what a kernel writes into them: the system clears each when it is first
touched. Memory comes back when the last array on it is gone, whatever views of it were made meanwhile.
"""

import ctypes
import mmap
import os
import threading
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from nki_mlir.alone import free_in_child

LEAST_BYTES = 1 << 18           # smaller arrays come from memory that the C library has at hand
MOST_BYTES = 1 << 29            # of memory that waits to be used again
STEP = 1 << 16                  # sizes are rounded up to it

_free: dict[int, list[mmap.mmap]] = {}          # the size that came back last is the last one
_waiting = 0
# The last array on a block goes in any thread, and wherever garbage is collected: here as well.
_lock = free_in_child(threading.RLock())


def pages(size: int) -> mmap.mmap:
    """Zeros in memory of this process alone: where it forks, the child has a copy."""
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@lru_cache(maxsize=1024)
def _lease_class(size: int) -> Any:
    """The class of what owns an array's elements, for blocks of a size: its end is that of all arrays on them."""
    return type("Lease", (ctypes.c_char * size,), {"__del__": _give_back})


def _give_back(lease: Any) -> None:
    global _waiting
    block, size = lease.block, len(lease)
    lease.block = None
    if size <= MOST_BYTES:
        with _lock:
            _free[size] = blocks = _free.pop(size, None) or []
            blocks.append(block)
            _waiting += size
            if _waiting > MOST_BYTES:
                _let_go(MOST_BYTES)


def _let_go(most: int) -> None:
    """Give memory back to the system until so much waits: first of the sizes that came back the longest ago."""
    global _waiting
    while _waiting > most:
        size, blocks = next(iter(_free.items()))
        if blocks:
            blocks.pop()
            _waiting -= size
        else:
            del _free[size]


def _forget() -> None:
    """In a forked child: writing to copies of the parent's blocks costs both of them more than fresh pages."""
    global _waiting
    _free.clear()
    _waiting = 0


os.register_at_fork(after_in_child=_forget)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Like ``np.empty``: C order, with elements that are anything. Large ones begin at a page."""
    global _waiting
    kind = np.dtype(dtype)
    size = -(-prod(shape) * kind.itemsize // STEP) * STEP
    if size < LEAST_BYTES:
        return np.empty(shape, kind)
    with _lock:
        waiting = _free.get(size)
        block = waiting.pop() if waiting else None
        if block is not None:
            _waiting -= size
    try:
        block = block if block is not None else pages(size)
    except OSError:                     # what waits may be what is missing; else the error is NumPy's
        with _lock:
            _let_go(0)
        return np.empty(shape, kind)
    lease = _lease_class(size).from_buffer(block)
    lease.block = block
    made: np.ndarray = np.ndarray(shape, kind, lease)
    return made


def array_at(address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The memory at an address as an array that shares it."""
    size = prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
