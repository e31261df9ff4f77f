# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels keep values in: memory regions, what fits in them on the target, allocations in them; registers.

Registers are 32-bit values of the run time, each a [1, 1] tile, so that both builders run them alike.
"""

import enum
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, NoReturn

import numpy as np

from nki_mlir.capture.builder import active, current
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.environment import TARGET
from nki_mlir.language import functions
from nki_mlir.language.current.errors import NkiTypeError, invalid, older, require, warn
from nki_mlir.machine import DEFAULT_TARGET, Machine, machine_named
from nki_mlir.scalar.dtypes import INT32, DType


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

    # What release 0.2 had of a memory; ``older_memory`` defines it, which knows tensors.
    __getitem__: ClassVar[Callable[["MemoryRegion", object], Any]]
    ptr: ClassVar[Callable[..., Any]]
    view: ClassVar[Callable[..., Any]]


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
        invalid(f"expecting 'buffer type', got {buffer!r}; use nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm",
                fix="use nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm", code="NKI-BUFFER")
    return buffer


def target() -> str:
    builder = current.get()
    if builder is not None:
        return builder.target
    return TARGET.text() or DEFAULT_TARGET


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


# -- allocations -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Storage:
    """One allocation: the core's buffer and the region it is in.

    ``identity``: it holds an identity matrix; ``verdict``: what a comparison gave, which kernels assert;
    ``written_elements``: what has been written (``write_history.py``).
    """

    buffer: Buffer
    region: MemoryRegion
    dtype: DType                        # as the kernel declared it; packed types are kept as integers
    address: tuple[int, int] | None = None
    identity: bool = False
    verdict: bool = False
    written_elements: set[Any] = field(default_factory=set)

    @property
    def on_chip(self) -> bool:
        return self.buffer.on_chip

    def row(self, dtype: DType) -> int:
        """Elements of a dtype in one partition (in all of an HBM tensor)."""
        shape = self.buffer.shape[1:] if self.on_chip else self.buffer.shape
        return prod(shape) * self.buffer.dtype.itemsize // dtype.itemsize


@dataclass(frozen=True, eq=False)
class Indirection:
    """A run-time part of a view's addresses.

    ``scalar``: one value is added to every address; ``vector``: one for each row; both times ``scale``. ``columns``:
    the free elements of ``source`` are picked by offsets that groups of partitions share.
    """

    kind: str
    index: Any                          # an NkiTensor or a VirtualRegister
    scale: int = 1
    extent: int = 0                     # values below this are in bounds
    dim: int = 0
    source: Any = None                  # columns: the tensor that is picked from

    @property
    def picks_rows(self) -> bool:
        """Whether it moves along dimension 0: on chip from partition to partition, which DMA does."""
        return self.kind == "vector" or (self.kind == "scalar" and self.dim == 0)

    def tell_of_steps(self, name: str, shape: Sequence[int], strides: Sequence[int]) -> None:
        """Warn where the index counts other elements than it would in the shape of the view that it is applied to."""
        dim, step = self.dim, self.scale
        if dim < len(shape) and (shape[dim] == 1 or strides[dim] == step):
            return
        view = f"the view's counts {strides[dim]}" if dim < len(shape) else "the view has no such dimension"
        warn(f"ap of a part of {name}: an index counts {step} elements, the step of dimension {dim} of the tensor; "
             f"{view}, which the newest release may take; call ap on the tensor, with offset=")


# -- registers ---------------------------------------------------------------------------------------------------------
class VirtualRegister:
    """A value that is known while the program runs. ``frozen``: a loop's own, which the body cannot write."""

    __slots__ = ("frozen", "state")
    __hash__ = object.__hash__
    __bool__: ClassVar[Callable[["VirtualRegister"], bool]]     # ``dynamic_loops`` defines it: it opens loops

    def __init__(self, state: View | None = None, frozen: bool = False) -> None:
        self.state = state if state is not None else View.full(active("a register").allocate((1, 1), INT32, "sbuf"))
        self.frozen = frozen

    @property
    def value(self) -> int | None:
        """The number in it while the kernel is simulated; None while it is captured."""
        held = self.state.buffer.handle
        return int(held[0, 0]) if isinstance(held, np.ndarray) else None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, (int, float, VirtualRegister)) and self._no_number(other))

    def _no_number(self, *others: object) -> NoReturn:
        raise NkiTypeError("a register is no Python number: its value is known on the device only; use it as "
                           "scalar_offset=, as a loop bound, or compute on it in SBUF with nisa.register_store",
                           fix="store it to a tile with nisa.register_store, and compute there",
                           code="NKI-DEVICE-VALUE").here()

    __int__ = __index__ = __float__ = _no_number
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __neg__ = _no_number
    __lt__ = __le__ = __gt__ = __ge__ = _no_number

    def __repr__(self) -> str:
        value = self.value
        return f"register {self.state.buffer.name}" + ("" if value is None else f" = {value}")


def check_register(value: object, what: str) -> None:
    """A parameter that takes a register, and no number or tile."""
    require(isinstance(value, VirtualRegister), f"{what}: expecting 'register', got '{type(value).__name__}'",
            fix="make one with nisa.register_alloc")
