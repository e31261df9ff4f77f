# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory regions, and what fits in them on the kernel's target."""

import enum
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from nki_mlir.frontend.builder import current
from nki_mlir.language import functions
from nki_mlir.language.current.errors import invalid, older
from nki_mlir.machine import Machine, machine_named

if TYPE_CHECKING:
    from nki_mlir.language.current.tensor import NkiTensor
    from nki_mlir.language.current.windows import Window

DEFAULT_TARGET = "trn3"         # where nothing runs and nothing is set


class MemoryRegion(enum.Enum):
    """Where a tensor lives."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"
    hbm = "private_hbm"

    def __eq__(self, other: object) -> bool:
        return self is (MemoryRegion.__members__.get(other) if isinstance(other, str) else other)

    __hash__ = enum.Enum.__hash__

    @property
    def space(self) -> str:
        """The core's name of the memory."""
        return "hbm" if self in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm) else self.value

    # What release 0.2 had of a memory; ``windows`` defines it, which knows tensors.
    __getitem__: ClassVar[Callable[["MemoryRegion", object], "Window"]]
    ptr: ClassVar[Callable[..., "Window"]]
    view: ClassVar[Callable[..., "NkiTensor"]]


sbuf, psum = MemoryRegion.sbuf, MemoryRegion.psum
hbm = private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm


def is_sbuf(buffer: object) -> bool:
    """Whether a buffer is SBUF."""
    return region(buffer) is sbuf


def is_psum(buffer: object) -> bool:
    """Whether a buffer is PSUM."""
    return region(buffer) is psum


def is_hbm(buffer: object) -> bool:
    """Whether a buffer is HBM of either kind."""
    return region(buffer) in (private_hbm, shared_hbm)


def is_on_chip(buffer: object) -> bool:
    """Whether a buffer is SBUF or PSUM."""
    return region(buffer) in (sbuf, psum)


def region_value(buffer: object) -> object:
    """A region that a name stands for; anything else as it is."""
    return MemoryRegion.__members__.get(buffer, buffer) if isinstance(buffer, str) else buffer


def region(buffer: object) -> MemoryRegion:
    """A ``buffer=`` argument."""
    buffer = region_value(buffer)
    if not isinstance(buffer, MemoryRegion):
        invalid(f"expecting 'buffer type', got {buffer!r}; use nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm")
    return buffer


def target() -> str:
    builder = current.get()
    if builder is not None:
        return builder.target
    return os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or DEFAULT_TARGET


def machine() -> Machine:
    """The machine of the kernel that runs, or the one that the environment names."""
    return machine_named(target())


class TileSize(functions.TileSize):
    """``nl.tile_size``: what fits one instruction, and the memories of the target."""

    psum_bank_fmax = Machine.psum_free_max
    psum_bank_fmax_bytes = Machine.psum_bank_bytes

    @property
    def psum_num_banks(self) -> int:
        reserved = os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "").lower() == "true"
        return machine().psum_banks - int(reserved and machine().generation >= 3)

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of the whole SBUF."""
        return machine().partitions * machine().sbuf_physical_bytes_per_partition

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Bytes of a partition that kernels may use."""
        return machine().sbuf_bytes_per_partition

    @property
    def total_available_sbuf_size(self) -> int:
        older("nl.tile_size.total_available_sbuf_size is deprecated, use sbuf_fmax_bytes")
        return self.sbuf_fmax_bytes

    @property
    def psum_fmax(self) -> int:
        older("nl.tile_size.psum_fmax is deprecated, use psum_bank_fmax")
        return self.psum_bank_fmax

    @property
    def sbuf_fmax(self) -> int:
        """float32 elements of a partition that kernels may use."""
        return self.sbuf_fmax_bytes // 4


tile_size = TileSize()
