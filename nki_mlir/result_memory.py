# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reuses the memory of results: a block that no array uses any more serves the next result of that size.

Fresh pages of a large array cost more than the kernel's writes to them: the system clears each when it is first
touched. Every use of a block has an array on all of it, to which all arrays, views, buffers and tensors of the result
refer. The use ends when Python frees this array. Garbage collections do not find this array, so that the memory is
still in use if a finalizer revives an object of a garbage cycle.
"""

import ctypes
import mmap
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any
from weakref import ref

import numpy as np

from nki_mlir.alone import free_in_child

LEAST_BYTES = 1 << 18           # smaller arrays come from the C library's heap
MOST_BYTES = 1 << 29            # the most memory of free blocks
STEP = 1 << 16                  # sizes are rounded up to a multiple of it
HUGE_PAGE = 1 << 21             # bytes of a huge page of x86-64 Linux
BYTE = np.dtype(np.uint8)


class _Use(ref[np.ndarray]):
    """A use of a block: a weak reference to the array on all of the block."""

    __slots__ = ("block",)
    block: mmap.mmap


_free: dict[int, list[mmap.mmap]] = {}  # by size, least recently freed sizes and blocks first
_waiting = 0                                    # bytes of the free blocks
_uses: dict[int, _Use] = {}                     # by identity
# Reentrant: a garbage collection in the middle of this module may free arrays, or run code of the user's.
_lock = free_in_child(threading.RLock())


def pages(size: int) -> mmap.mmap:
    """Return zeros in memory of this process alone: in a fork the child gets a copy."""
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _fresh(size: int) -> mmap.mmap:
    """Return a new block, of huge pages where it can have one: they take less time to clear, and fewer TLB entries."""
    block = pages(size)
    if size >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):         # a mere hint: some kernels have no huge pages
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _end(use: _Use) -> None:
    """Keep the block of a use that has ended."""
    global _waiting
    size = len(use.block)
    with _lock:
        _uses.pop(id(use), None)
        blocks = _free.setdefault(size, [])
        blocks.append(use.block)
        _free[size] = _free.pop(size, blocks)
        _waiting += size
        if _waiting > MOST_BYTES:
            _return_oldest(MOST_BYTES)


def _return_oldest(most: int) -> None:
    """Return free blocks to the system until at most ``most`` bytes of them are left, beginning with the least recently
    used sizes."""
    global _waiting
    for size, blocks in list(_free.items()):
        while blocks and _waiting > most:
            del blocks[0]
            _waiting -= size
        if not blocks:
            _free.pop(size, None)


def _forget() -> None:
    """Forget the parent's blocks in a forked child: to share and then copy their pages costs both processes more than
    fresh pages."""
    global _waiting
    _free.clear()
    _uses.clear()
    _waiting = 0


os.register_at_fork(after_in_child=_forget)


def allocator(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[], np.ndarray]:
    """Return a function that allocates like ``np.empty``: C order, with arbitrary elements. Large arrays begin at a
    page."""
    kind = np.dtype(dtype)
    size = -(-prod(shape) * kind.itemsize // STEP) * STEP
    return partial(np.empty, shape, kind) if size < LEAST_BYTES else partial(_in_block, shape, kind, size)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return a new array with arbitrary elements, as ``allocator`` allocates it."""
    return allocator(shape, dtype)()


def _in_block(shape: tuple[int, ...], dtype: np.dtype, size: int) -> np.ndarray:
    """Allocate an array in the block of ``size`` bytes that was freed last, or in a new one."""
    global _waiting
    with _lock:
        try:
            block = _free[size].pop()
            _waiting -= size
        except (KeyError, IndexError):
            block = None
    if block is None:
        try:
            block = _fresh(size)
        except OSError:                 # free blocks may take the memory; if not, NumPy raises the error
            with _lock:
                _return_oldest(0)
            return np.empty(shape, dtype)
    all_bytes: np.ndarray = np.ndarray(size, BYTE, block)
    if size <= MOST_BYTES:
        use = _Use(all_bytes, _end)
        use.block = block
        _uses[id(use)] = use
    array: np.ndarray = np.ndarray(shape, dtype, all_bytes)
    return array


def array_at(address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the memory at an address as an array that shares it."""
    size = prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
