# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reuses the memory of results: a block that no array uses any more serves the next result of that size.

Fresh pages of a large array cost more than the kernel's writes to them: the system clears each when it is first
touched. A block is free when nothing refers to it but this module: the last array on it is deleted, and all views.
"""

import ctypes
import mmap
import os
import sys
import threading
from math import prod
from typing import Any

import numpy as np

from nki_mlir.alone import free_in_child

LEAST_BYTES = 1 << 18           # smaller arrays come from the C library's heap
MOST_BYTES = 1 << 29            # the most memory of blocks that are known here, in use or free
MOST_BLOCKS = 64                # the most blocks of a size that are known here
STEP = 1 << 16                  # sizes are rounded up to it

_blocks: dict[int, list[mmap.mmap]] = {}        # by size; the size, and the block of a size, used last is the last
_known = 0                                      # their bytes
# A garbage collection may run code of the user's at any time, in the middle of this module, too.
_lock = free_in_child(threading.RLock())


def pages(size: int) -> mmap.mmap:
    """Return zeros in memory of this process alone: in a fork the child gets a copy."""
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


# Whether Python counts references exactly; without the GIL it counts some of them later.
COUNTS = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()
references = getattr(sys, "getrefcount", id)


class _Unused:
    """An object to which one variable refers, as to a free block: how many references Python counts for that depends
    on its version, and on tools that trace it or evaluate frames."""


def _reused(size: int, shape: tuple[int, ...], kind: np.dtype) -> np.ndarray | None:
    """Return an array on the free block of a size that was used last; None if all blocks are in use."""
    blocks = _blocks.get(size)
    if not blocks:
        return None
    in_use: list[mmap.mmap] = []
    array: np.ndarray | None = None
    unused = _Unused()
    with _lock:
        while blocks:
            block = blocks.pop()                # first, so that nobody else takes it while its references are counted
            if references(block) == references(unused):
                array = np.ndarray(shape, kind, block)
                break
            in_use.append(block)
        if in_use:
            blocks += reversed(in_use)
        if array is not None:
            blocks.append(block)
            _blocks[size] = _blocks.pop(size)
    return array


def _forget_oldest(most: int) -> None:
    """Forget blocks until at most ``most`` bytes are known: first of the least recently used sizes. The system gets the
    memory of those that are free, and of the others when their arrays are deleted."""
    global _known
    for size, blocks in list(_blocks.items()):
        while blocks and _known > most:
            del blocks[0]
            _known -= size


def _forget() -> None:
    """Forget the blocks in a forked child: writing to copies of the parent's blocks costs both more than fresh pages.
    """
    global _known
    _blocks.clear()
    _known = 0


os.register_at_fork(after_in_child=_forget)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocate like ``np.empty``: C order, with arbitrary elements. Large arrays begin at a page."""
    global _known
    kind = np.dtype(dtype)
    size = -(-prod(shape) * kind.itemsize // STEP) * STEP
    if size < LEAST_BYTES:
        return np.empty(shape, kind)
    reused = _reused(size, shape, kind)
    if reused is not None:
        return reused
    try:
        block = pages(size)
    except OSError:                     # free blocks may take the memory; if not, NumPy raises the error
        with _lock:
            _forget_oldest(0)
        return np.empty(shape, kind)
    array: np.ndarray = np.ndarray(shape, kind, block)
    if size <= MOST_BYTES and COUNTS:
        with _lock:
            blocks = _blocks.setdefault(size, [])
            blocks.append(block)
            _blocks[size] = _blocks.pop(size)
            _known += size
            if len(blocks) > MOST_BLOCKS:
                del blocks[0]
                _known -= size
            _forget_oldest(MOST_BYTES)
    return array


def array_at(address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the memory at an address as an array that shares it."""
    size = prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
