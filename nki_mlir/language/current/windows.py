# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Places of on-chip memory as release 0.2 wrote them: ``nl.sbuf[partitions, bytes].view(dtype, shape)``, ``sbuf.ptr``.

A place that ``ptr`` makes is one memory: its views, and those of places in it, are of the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from nki_mlir.dialects.access import dense
from nki_mlir.frontend.builder import active
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import dtype_argument, is_shape, reported
from nki_mlir.language.current.creation import check_address, ndarray
from nki_mlir.language.current.errors import NkiTypeError, integer, require
from nki_mlir.language.current.regions import MemoryRegion, machine
from nki_mlir.language.current.storage import Storage
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import UINT8, DType

WORD = 4                # bytes: rows of a memory are whole words, so that views of every dtype have whole rows


@dataclass(eq=False)
class WindowMemory:
    """Partitions and bytes that views share; allocated with the dtype of the first of them."""

    buffer: MemoryRegion
    size: tuple[int, int]
    start: tuple[int, int] | None               # None: where the allocator wants
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
    """A rectangle of SBUF or PSUM: where it begins (partition, byte) and its size; in a memory, if it is of one."""

    buffer: MemoryRegion
    start: tuple[int, int]
    size: tuple[int, int]
    memory: WindowMemory | None = None

    @classmethod
    def of(cls, buffer: MemoryRegion, key: object) -> "Window":
        require(buffer.space != "hbm", f"{buffer.value} has no partitions: only nl.sbuf and nl.psum are sliced")
        keys = key if isinstance(key, tuple) else (key,)
        extents = machine().partitions, _bytes_of(buffer)
        if len(keys) > 2 or not all(isinstance(k, slice) for k in keys):
            raise NkiTypeError(f"expecting one or two slices, got {key!r}").here()
        (p0, p1, pstep), (b0, b1, bstep) = (
            k.indices(n) for k, n in zip((*keys, *[slice(None)] * (2 - len(keys))), extents, strict=True))
        require(pstep == bstep == 1, "a region of memory is sliced with step 1")
        require(p0 < p1 and b0 < b1, f"a region of {p1 - p0} partitions and {b1 - b0} bytes is empty")
        require(b0 % 2 == 0, f"a region begins at an even byte, got {b0}")
        return cls(buffer, (p0, b0), (p1 - p0, b1 - b0))

    @classmethod
    def pointed(cls, buffer: MemoryRegion, size: object, offset: object = None) -> "Window":
        """``sbuf.ptr(size, offset)``: a memory of its own, or a part of one that was made before."""
        require(buffer.space != "hbm", f"{buffer.value} has no partitions: only nl.sbuf and nl.psum have regions")
        size, start = _pair(size, "size"), None if offset is None else _pair(offset, "offset")
        require(min(size) > 0, f"a region of {size[0]} partitions and {size[1]} bytes is empty")
        if start is None:
            return cls(buffer, (0, 0), size, WindowMemory(buffer, size, None))
        known: list[WindowMemory] = active("sbuf.ptr").properties.setdefault("memories", [])
        for memory in known:
            if memory.buffer is buffer and memory.start is not None and _holds(memory.start, memory.size, start, size):
                return cls(buffer, (start[0] - memory.start[0], start[1] - memory.start[1]), size, memory)
        known.append(WindowMemory(buffer, size, start))
        return cls(buffer, (0, 0), size, known[-1])

    def ptr(self, size: object = None, offset: object = (0, 0)) -> "Window":
        """A part of this place."""
        start = _pair(offset, "offset")
        extent = (self.size[0] - start[0], self.size[1] - start[1]) if size is None else _pair(size, "size")
        require(_holds((0, 0), self.size, start, extent),
                f"a region of {extent[0]} partitions and {extent[1]} bytes from {start} on is outside of one of "
                f"{self.size[0]} partitions and {self.size[1]} bytes")
        moved = self.start[0] + start[0], self.start[1] + start[1]
        if self.memory is None:
            return Window.pointed(self.buffer, extent, moved)
        return Window(self.buffer, moved, extent, self.memory)

    @reported
    def view(self, dtype: object, shape: Sequence[int], name: str = "") -> NkiTensor:
        """A tensor in this place."""
        kind = dtype_argument(dtype)
        require(is_shape(shape), f"view shape: expecting 'sequence' of integers, got {shape!r}")
        extents = tuple(integer(n, "shape") for n in shape)
        size = prod(extents[1:]) * kind.itemsize
        require(extents[0] <= self.size[0], f"{extents[0]} partitions do not fit in a region of {self.size[0]}")
        require(size <= self.size[1], f"shape has size {size} (bytes), which is too large for buffer of size "
                                      f"{self.size[1]} (bytes)")
        if self.memory is None:
            return ndarray(extents, dtype, self.buffer, name, self.start)
        partition, byte = self.start
        require(byte % kind.itemsize == 0, f"byte {byte} is no place of a {kind}")
        storage = self.memory.storage(kind)
        row = storage.row(kind)
        strides, start = (row, *dense(extents[1:])), partition * row + byte // kind.itemsize
        return NkiTensor(storage, extents, strides, start, kind)


def _pair(value: Any, what: str) -> tuple[int, int]:
    require(isinstance(value, (tuple, list)) and len(value) == 2, f"ptr {what}: expecting 'pair', got {value!r}")
    first, second = (integer(n, f"ptr {what}") for n in value)
    return first, second


def _holds(start: tuple[int, int], size: tuple[int, int], inner: tuple[int, int], extent: tuple[int, int]) -> bool:
    return all(s <= i and i + e <= s + n for s, n, i, e in zip(start, size, inner, extent))


def _bytes_of(buffer: MemoryRegion) -> int:
    """Bytes of a partition."""
    return (machine().sbuf_bytes_per_partition if buffer is MemoryRegion.sbuf
            else machine().psum_banks * machine().psum_bank_bytes)


# -- methods of memories -----------------------------------------------------------------------------------------------
def window(region: MemoryRegion, key: object) -> Window:
    """``nl.sbuf[partitions, bytes]``: a place for ``.view(dtype, shape)``."""
    return Window.of(region, key)


def ptr(region: MemoryRegion, size: object, offset: object = None) -> Window:
    """``nl.sbuf.ptr(size, offset)``: a place of that many partitions and bytes."""
    return Window.pointed(region, size, offset)


def view(region: MemoryRegion, dtype: object, shape: object, name: str = "") -> NkiTensor:
    """``nl.sbuf.view(dtype, shape)``: a tensor somewhere in a memory."""
    return ndarray(shape, dtype, region, name)


MemoryRegion.__getitem__, MemoryRegion.ptr, MemoryRegion.view = window, ptr, view
