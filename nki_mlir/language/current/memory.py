# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory regions, their sizes on the target, allocations in them, and registers.

A register holds a 32-bit value that is known at run time. It is stored in a [1, 1] tile, so that capture and simulation
use the same operations.
"""

import enum
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, NoReturn

import numpy as np

from nki_mlir.capture.builder import active, current
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.dialects.access import HBM
from nki_mlir.environment import TARGET
from nki_mlir.language import functions
from nki_mlir.language.current.errors import NkiTypeError, invalid, older, require, warn
from nki_mlir.machine import DEFAULT_TARGET, Machine, machine_named
from nki_mlir.scalar.dtypes import INT32, DType


class MemoryRegion(enum.Enum):
    """A memory in which tensors are allocated: a value of ``buffer=``."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"
    hbm = "private_hbm"

    def __eq__(self, other: object) -> bool:
        return self is (MemoryRegion.__members__.get(other) if isinstance(other, str) else other)

    __hash__ = enum.Enum.__hash__

    def __init__(self, name: str) -> None:
        self.space = name.rpartition("_")[2]                # the capture core's name of the memory: sbuf, psum or hbm

    # Methods of release 0.2. The module ``older_memory`` assigns them: they need tensors.
    __getitem__: ClassVar[Callable[["MemoryRegion", object], Any]]
    ptr: ClassVar[Callable[..., Any]]
    view: ClassVar[Callable[..., Any]]


sbuf, psum = MemoryRegion.sbuf, MemoryRegion.psum
hbm = private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm


def is_sbuf(buffer: object) -> bool:
    """Return whether a buffer is SBUF."""
    return region(buffer) is sbuf


def is_psum(buffer: object) -> bool:
    """Return whether a buffer is PSUM."""
    return region(buffer) is psum


def is_hbm(buffer: object) -> bool:
    """Return whether a buffer is HBM of either kind."""
    return region(buffer) in (private_hbm, shared_hbm)


def is_on_chip(buffer: object) -> bool:
    """Return whether a buffer is SBUF or PSUM."""
    return region(buffer) in (sbuf, psum)


def region_value(buffer: object) -> object:
    """Return the region that a string names; return any other value unchanged."""
    member = MemoryRegion.__members__.get(buffer) if isinstance(buffer, str) else None
    if member is None:
        return buffer
    older(f"the newest release takes nl.{member.name}, not the string {buffer!r}")
    return member


def region(buffer: object) -> MemoryRegion:
    """Return the region of a ``buffer=`` argument, or raise an error."""
    buffer = region_value(buffer)
    if not isinstance(buffer, MemoryRegion):
        invalid(f"expecting 'buffer type', got {buffer!r}; use nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm",
                fix="use nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm", code="NKI-BUFFER")
    return buffer


def machine() -> Machine:
    """Return the machine that the running kernel targets; outside of kernels, the machine that the environment
    names."""
    builder = current.get()
    return machine_named(TARGET.text() or DEFAULT_TARGET) if builder is None else builder.machine


class TileSize(functions.TileSize):
    """``nl.tile_size``: the limits on operands of an instruction, and the sizes of the target's memories."""

    psum_bank_fmax = Machine.psum_free_max
    psum_bank_fmax_bytes = Machine.psum_bank_bytes

    @property
    def psum_num_banks(self) -> int:
        reserved = os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "").lower() == "true"
        return machine().psum_banks - int(reserved and machine().generation >= 3)

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF."""
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
@lru_cache(4096)
def form_of_storage(*parts: object) -> object:
    """Return the object for these properties of allocations, another one after the cache has evicted it."""
    return object()


@lru_cache(4096)
def row_of(shape: tuple[int, ...], on_chip: bool, itemsize: int, of_itemsize: int) -> int:
    """Return how many elements of ``of_itemsize`` bytes a partition has (in HBM the entire allocation)."""
    return prod(shape[1:] if on_chip else shape) * itemsize // of_itemsize


@dataclass(eq=False, slots=True)
class Storage:
    """An allocation: the capture core's buffer and its region. Immutable, though not declared so: kernels create very
    many.

    ``identity``: it holds an identity matrix. ``verdict``: it is the result of a comparison, which kernels assert.
    ``written_elements``: the views that instructions have written (``write_history.py``). ``views``: the core views of
    its parts, by offset, strides, shape and dtype.
    """

    buffer: Buffer
    region: MemoryRegion
    dtype: DType                        # the declared one; the buffer stores packed types as integers
    address: tuple[int, int] | None = None
    identity: bool = False
    verdict: bool = False
    written_elements: set[Any] = field(default_factory=set)
    views: dict[tuple[Any, ...], View] = field(default_factory=dict)
    _form: object = None

    @property
    def on_chip(self) -> bool:
        return self.buffer.space != HBM

    @property
    def form(self) -> object:
        """An object that allocations of equal properties share: instructions do not distinguish their tensors of one
        pattern."""
        if self._form is None:
            buffer = self.buffer
            self._form = form_of_storage(self.region is shared_hbm, self.dtype.name, self.address is None,
                                         self.identity, self.verdict, buffer.shape, buffer.dtype.name, buffer.space,
                                         buffer.partition_dim)
        return self._form

    def row(self, dtype: DType) -> int:
        """Return how many elements of ``dtype`` a partition of the allocation has (in HBM the entire allocation)."""
        buffer = self.buffer
        return row_of(buffer.shape, buffer.space != HBM, buffer.dtype.itemsize, dtype.itemsize)


@dataclass(frozen=True, eq=False)
class Indirection:
    """The part of a view's addresses that is computed at run time.

    Kind ``scalar`` adds one value to every address, ``vector`` one value per row; both values are scaled by ``scale``.
    Kind ``columns`` gathers free elements of ``source`` at offsets that groups of partitions share.
    """

    kind: str
    index: Any                          # an NkiTensor or a VirtualRegister
    scale: int = 1
    extent: int = 0                     # values below this are in bounds
    dim: int = 0
    source: Any = None                  # columns: the tensor that is gathered from

    @property
    def picks_rows(self) -> bool:
        """Return whether the index moves along dimension 0. On chip only DMA can cross partitions like that."""
        return self.kind == "vector" or (self.kind == "scalar" and self.dim == 0)

    def warn_of_steps(self, name: str, shape: Sequence[int], strides: Sequence[int]) -> None:
        """Warn if the stride that scales the index differs from the stride of the view ``name``, on which ``ap`` was
        called."""
        dim, step = self.dim, self.scale
        if dim < len(shape) and (shape[dim] == 1 or strides[dim] == step):
            return
        view = f"the view's stride is {strides[dim]}" if dim < len(shape) else "the view has no such dimension"
        warn(f"ap of a part of {name}: an index steps over {step} elements, the stride of dimension {dim} of the "
             f"tensor; {view}, and the newest release may use that; call ap on the tensor, with offset=")


# -- registers ---------------------------------------------------------------------------------------------------------
class VirtualRegister:
    """A 32-bit value that is known at run time. Kernels cannot write to a ``frozen`` one, the counter of a loop."""

    __slots__ = ("frozen", "state")
    __hash__ = object.__hash__
    __bool__: ClassVar[Callable[["VirtualRegister"], bool]]     # ``dynamic_loops`` assigns it: it opens loops

    def __init__(self, state: View | None = None, frozen: bool = False) -> None:
        self.state = state if state is not None else View.full(active("a register").allocate((1, 1), INT32, "sbuf"))
        self.frozen = frozen

    @property
    def value(self) -> int | None:
        """The register's number while the kernel is simulated; None while it is captured."""
        handle = self.state.buffer.handle
        return int(handle[0, 0]) if isinstance(handle, np.ndarray) else None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, (int, float, VirtualRegister)) and self._no_comparison(other))

    def _no_comparison(self, other: object) -> NoReturn:
        raise NkiTypeError("a register is not a Python number: only the device knows its value",
                           fix="store it to a tile with nisa.register_store, compare there with nisa.tensor_scalar, "
                               "and read the result with nisa.register_load; loops take a register: nonzero is true",
                           code="NKI-DEVICE-VALUE").here()

    def _no_number(self, *operands: object) -> NoReturn:
        raise NkiTypeError("a register is not a Python number: only the device knows its value; use it as "
                           "scalar_offset=, as a loop bound, or compute on it in SBUF with nisa.register_store",
                           fix="let the loop count in steps, nl.fori_loop(0, n, body, 32) or nl.dynamic_range(0, n, "
                               "32); or store it to a tile with nisa.register_store, and compute there",
                           code="NKI-DEVICE-VALUE").here()

    __int__ = __index__ = __float__ = _no_number
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __neg__ = _no_number
    __lt__ = __le__ = __gt__ = __ge__ = _no_comparison

    def __repr__(self) -> str:
        value = self.value
        return f"register {self.state.buffer.name}" + ("" if value is None else f" = {value}")


def check_register(value: object, subject: str) -> None:
    """Check that an argument is a register, not a number or a tile."""
    require(isinstance(value, VirtualRegister), f"{subject}: expecting 'register', got '{type(value).__name__}'",
            fix="create one with nisa.register_alloc")
