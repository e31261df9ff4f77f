# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reuses the memory of results: a block that a program has released serves the next result of that size.

Fresh pages of a large array cost more than the kernel's writes to them: the system clears each when it is first
touched. A block is released when the last array on it is deleted, whatever views of it exist meanwhile.
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

LEAST_BYTES = 1 << 18           # smaller arrays come from the C library's heap
MOST_BYTES = 1 << 29            # the most memory that waits to be reused
STEP = 1 << 16                  # sizes are rounded up to it

_free: dict[int, list[mmap.mmap]] = {}          # the most recently released size is the last
_waiting = 0
# The last array on a block may be deleted in any thread, and at any garbage collection, even in here.
_lock = free_in_child(threading.RLock())


def pages(size: int) -> mmap.mmap:
    """Return zeros in memory of this process alone: in a fork the child gets a copy."""
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@lru_cache(maxsize=1024)
def _lease_class(size: int) -> Any:
    """Return the class of the owner of an array's elements, for blocks of a size: it is deleted with the last array on
    them."""
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
    """Return memory to the system until at most ``most`` bytes wait: first of the least recently released sizes."""
    global _waiting
    while _waiting > most:
        size, blocks = next(iter(_free.items()))
        if blocks:
            blocks.pop()
            _waiting -= size
        else:
            del _free[size]


def _forget() -> None:
    """Drop the blocks in a forked child: writing to copies of the parent's blocks costs both more than fresh pages."""
    global _waiting
    _free.clear()
    _waiting = 0


os.register_at_fork(after_in_child=_forget)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocate like ``np.empty``: C order, with arbitrary elements. Large arrays begin at a page."""
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
    except OSError:                     # waiting blocks may take the memory; if not, NumPy raises the error
        with _lock:
            _let_go(0)
        return np.empty(shape, kind)
    lease = _lease_class(size).from_buffer(block)
    lease.block = block
    array: np.ndarray = np.ndarray(shape, kind, lease)
    return array


def array_at(address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the memory at an address as an array that shares it."""
    size = prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
