# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On-chip memory in the forms of release 0.2: ``nl.sbuf[partitions, bytes].view(dtype, shape)``, ``sbuf.ptr``.

A region that ``ptr`` allocates is one memory: all its views, and the views of regions inside it, share its bytes.
Kernels may use the names ``sbuf``, ``psum`` and ``hbm`` without an import: while a kernel's Python runs, they are added
to the globals of modules that use but do not define them.
"""

import builtins
import dis
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import prod
from types import CodeType, FunctionType, ModuleType
from typing import Any

from nki_mlir.alone import free_in_child
from nki_mlir.capture.builder import active
from nki_mlir.capture.locations import is_users
from nki_mlir.capture.loop_state import is_bound
from nki_mlir.capture.wrapping import underlying
from nki_mlir.dialects.access import dense
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import dtype_argument, reported
from nki_mlir.language.current.creation import check_address, ndarray
from nki_mlir.language.current.errors import NkiTypeError, aligned_byte, integer, integers, pair, require
from nki_mlir.language.current.memory import MemoryRegion, Storage, hbm, machine, psum, sbuf
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import UINT8, DType

WORD = 4                # bytes: a row is a multiple of it, so that views of every dtype fill rows exactly


@dataclass(eq=False)
class WindowMemory:
    """An on-chip allocation that windows share. The first view allocates it, with its dtype. Sizes and starts are
    (partitions, bytes)."""

    buffer: MemoryRegion
    size: tuple[int, int]
    start: tuple[int, int] | None               # None: the allocator chooses
    storages: list[Storage] = field(default_factory=list)

    def storage(self, dtype: DType) -> Storage:
        if not self.storages:
            row = -(-self.size[1] // WORD) * WORD
            kind = dtype if row % dtype.itemsize == 0 else UINT8
            shape = self.size[0], row // kind.itemsize
            address = check_address(self.start, self.buffer, shape, kind)
            self.storages.append(low.allocate(shape, kind, self.buffer, address=address).storage)
        return self.storages[0]


@dataclass(frozen=True)
class Window:
    """A rectangle of SBUF or PSUM, or of the allocation ``memory``: its start and size in (partitions, bytes)."""

    buffer: MemoryRegion
    start: tuple[int, int]
    size: tuple[int, int]
    memory: WindowMemory | None = None

    def ptr(self, size: object = None, offset: object = (0, 0)) -> "Window":
        """Return the window of ``size`` at ``offset`` inside this one."""
        start = pair(offset, "ptr offset")
        extent = (self.size[0] - start[0], self.size[1] - start[1]) if size is None else pair(size, "ptr size")
        require(_holds((0, 0), self.size, start, extent),
                f"a region of {extent[0]} partitions and {extent[1]} bytes from {start} on is outside of one of "
                f"{self.size[0]} partitions and {self.size[1]} bytes", fix="keep it within the region")
        absolute_start = self.start[0] + start[0], self.start[1] + start[1]
        if self.memory is None:
            return ptr(self.buffer, extent, absolute_start)
        return Window(self.buffer, absolute_start, extent, self.memory)

    @reported
    def view(self, dtype: object, shape: Sequence[int], name: str = "") -> NkiTensor:
        """Create a tensor at the start of the window."""
        kind = dtype_argument(dtype)
        integers(shape, "view shape")
        extents = tuple(integer(n, "shape") for n in shape)
        size = prod(extents[1:]) * kind.itemsize
        require(extents[0] <= self.size[0], f"{extents[0]} partitions do not fit in a region of {self.size[0]}",
                fix=f"use up to {self.size[0]} partitions")
        require(size <= self.size[1], f"shape has size {size} (bytes), which is too large for buffer of size "
                                      f"{self.size[1]} (bytes)", fix="make the region larger, or the shape smaller")
        if self.memory is None:
            return ndarray(extents, dtype, self.buffer, name, self.start)
        partition, byte = self.start
        aligned_byte(byte, kind.itemsize, f"byte {byte} is not aligned to {kind}")
        storage = self.memory.storage(kind)
        row = storage.row(kind)
        strides, start = (row, *dense(extents[1:])), partition * row + byte // kind.itemsize
        return NkiTensor(storage, extents, strides, start, kind)


def _holds(start: tuple[int, int], size: tuple[int, int], inner: tuple[int, int], extent: tuple[int, int]) -> bool:
    return all(s <= i and i + e <= s + n for s, n, i, e in zip(start, size, inner, extent))


def _has_partitions(buffer: MemoryRegion, predicate: str) -> None:
    require(buffer.space != "hbm", f"{buffer.value} has no partitions: only nl.sbuf and nl.psum {predicate}",
            fix="use nl.sbuf or nl.psum")


def _has_bytes(size: tuple[int, int], fix: str) -> None:
    require(min(size) > 0, f"a region of {size[0]} partitions and {size[1]} bytes is empty", fix=fix)


def _bytes_of(buffer: MemoryRegion) -> int:
    """Return the number of bytes in a partition of SBUF or PSUM."""
    return (machine().sbuf_bytes_per_partition if buffer is MemoryRegion.sbuf
            else machine().psum_banks * machine().psum_bank_bytes)


# -- methods of memories -----------------------------------------------------------------------------------------------
def window(buffer: MemoryRegion, key: object) -> Window:
    """Return the window ``nl.sbuf[partitions, bytes]``, on which ``.view(dtype, shape)`` creates tensors."""
    _has_partitions(buffer, "are sliced")
    keys = key if isinstance(key, tuple) else (key,)
    extents = machine().partitions, _bytes_of(buffer)
    if len(keys) > 2 or not all(isinstance(k, slice) for k in keys):
        raise NkiTypeError(f"expecting one or two slices, got {key!r}",
                           fix="write for example nl.sbuf[0:128, 0:2048]").here()
    (p0, p1, pstep), (b0, b1, bstep) = (
        k.indices(n) for k, n in zip((*keys, *[slice(None)] * (2 - len(keys))), extents, strict=True))
    require(pstep == bstep == 1, "a region of memory must be sliced with step 1", fix="leave the step out")
    _has_bytes((p1 - p0, b1 - b0), "give ends beyond the starts")
    require(b0 % 2 == 0, f"a region must begin at an even byte, got {b0}", fix="begin at an even byte")
    return Window(buffer, (p0, b0), (p1 - p0, b1 - b0))


def ptr(buffer: MemoryRegion, size: object, offset: object = None) -> Window:
    """Return the window ``nl.sbuf.ptr(size, offset)``, in an allocation that contains it or else in a new one."""
    _has_partitions(buffer, "have regions")
    size, start = pair(size, "ptr size"), None if offset is None else pair(offset, "ptr offset")
    _has_bytes(size, "give sizes of 1 or more")
    if start is None:
        return Window(buffer, (0, 0), size, WindowMemory(buffer, size, None))
    memories: list[WindowMemory] = active("sbuf.ptr").properties.setdefault("memories", [])
    for memory in memories:
        if memory.buffer is buffer and memory.start is not None and _holds(memory.start, memory.size, start, size):
            return Window(buffer, (start[0] - memory.start[0], start[1] - memory.start[1]), size, memory)
    memories.append(WindowMemory(buffer, size, start))
    return Window(buffer, (0, 0), size, memories[-1])


def view(buffer: MemoryRegion, dtype: object, shape: object, name: str = "") -> NkiTensor:
    """Create the tensor ``nl.sbuf.view(dtype, shape)``, at an address that the allocator chooses."""
    return ndarray(shape, dtype, buffer, name)


MemoryRegion.__getitem__, MemoryRegion.ptr, MemoryRegion.view = window, ptr, view


# -- names without an import -------------------------------------------------------------------------------------------
NAMES: dict[str, MemoryRegion] = {"sbuf": sbuf, "psum": psum, "hbm": hbm}

_lock = free_in_child(threading.Lock())
_uses: Counter[tuple[int, str]] = Counter()          # (id of globals, name) -> running kernels that use it


@contextmanager
def bare_names(function: object) -> Iterator[None]:
    """Define the names ``NAMES`` for a kernel's function and the functions it refers to, within the block."""
    names = list(missing(function))
    with _lock:
        for scope, name in names:
            _uses[id(scope), name] += 1
            scope.setdefault(name, NAMES[name])
    try:
        yield
    finally:
        with _lock:
            for scope, name in names:
                key = id(scope), name
                _uses[key] -= 1
                if not _uses[key]:
                    del _uses[key]
                    if scope.get(name) is NAMES[name]:
                        del scope[name]


def missing(function: Any) -> Iterator[tuple[dict[str, object], str]]:
    """Yield (globals, name) for each of ``NAMES`` that a function, or one it refers to, uses undefined."""
    pending, visited = [underlying(function)], set()
    while pending:
        inner = pending.pop()
        if inner is None or inner.__code__ in visited:
            continue
        visited.add(inner.__code__)
        scope = inner.__globals__
        global_names, attributes = names_of(inner.__code__)
        for name in NAMES.keys() & global_names:
            if (name not in scope or (id(scope), name) in _uses) and not hasattr(builtins, name):
                yield scope, name
        values = [scope.get(name) for name in global_names]
        values += [cell.cell_contents for cell in inner.__closure__ or () if is_bound(cell)]
        for module in [m for m in values if type(m) is ModuleType]:
            values += [vars(module).get(name) for name in attributes]
        for value in values:
            if isinstance(value, ModuleType):           # nl and nisa would look for names that resemble "func"
                continue
            helper = value if isinstance(value, FunctionType) else getattr(value, "func", None)
            if isinstance(helper, FunctionType) and is_users(helper.__code__.co_filename, helper.__globals__):
                pending.append(helper)


@cache
def names_of(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of (globals, attributes) that a code object and the functions inside it read."""
    global_names, attributes = set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            global_names.add(instruction.argval)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.add(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            inner_names = names_of(inner)
            global_names |= inner_names[0]
            attributes |= inner_names[1]
    return frozenset(global_names), frozenset(attributes)
