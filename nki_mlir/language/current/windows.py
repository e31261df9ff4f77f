# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Places of on-chip memory as release 0.2 wrote them: ``nl.sbuf[partitions, bytes].view(dtype, shape)``."""

from dataclasses import dataclass
from math import prod
from typing import Any

from nki_mlir.language.current.calls import dtype_argument, reported
from nki_mlir.language.current.creation import ndarray
from nki_mlir.language.current.errors import NkiTypeError, require, user_location
from nki_mlir.language.current.regions import MemoryRegion, machine
from nki_mlir.language.current.tensor import NkiTensor


@dataclass(frozen=True)
class Window:
    """A rectangle of SBUF or PSUM: where it begins (partition, byte) and its size."""

    buffer: MemoryRegion
    start: tuple[int, int]
    size: tuple[int, int]

    @classmethod
    def of(cls, buffer: MemoryRegion, key: Any) -> "Window":
        require(buffer.space != "hbm", f"{buffer.value} has no partitions: only nl.sbuf and nl.psum are sliced")
        keys = key if isinstance(key, tuple) else (key,)
        extents = machine().partitions, _bytes_of(buffer)
        if len(keys) > 2 or not all(isinstance(k, slice) for k in keys):
            raise NkiTypeError(f"expecting one or two slices, got {key!r}").located(user_location())
        (p0, p1, pstep), (b0, b1, bstep) = (
            k.indices(n) for k, n in zip((*keys, *[slice(None)] * (2 - len(keys))), extents, strict=True))
        require(pstep == bstep == 1, "a region of memory is sliced with step 1")
        require(p0 < p1 and b0 < b1, f"a region of {p1 - p0} partitions and {b1 - b0} bytes is empty")
        require(b0 % 2 == 0, f"a region begins at an even byte, got {b0}")
        return cls(buffer, (p0, b0), (p1 - p0, b1 - b0))

    @reported
    def view(self, dtype: Any, shape: Any, name: str = "") -> NkiTensor:
        """A tensor in this place."""
        size = prod(shape[1:]) * dtype_argument(dtype).itemsize
        require(shape[0] <= self.size[0], f"{shape[0]} partitions do not fit in a region of {self.size[0]}")
        require(size <= self.size[1], f"shape has size {size} (bytes), which is too large for buffer of size "
                                      f"{self.size[1]} (bytes)")
        return ndarray(shape, dtype, self.buffer, name, self.start)


def _bytes_of(buffer: MemoryRegion) -> int:
    """Bytes of a partition."""
    return (machine().sbuf_bytes_per_partition if buffer is MemoryRegion.sbuf
            else machine().psum_banks * machine().psum_bank_bytes)
