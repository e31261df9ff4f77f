# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks and records addresses that a kernel of the beta generation chooses for its tensors.

The kernel gives an address for every block of a tensor: (start partition, byte) in SBUF, (bank, partition, byte) in
PSUM. The builder records them on the allocation (``nki.addresses``); values do not depend on them.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from nki_mlir.capture.builder import active
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.machine import machine_named
from nki_mlir.scalar.dtypes import DType


class BadAddress(KernelError):
    code = "NKI-ADDRESS"
    message = "the allocation function returns {address} for block {block} of {bytes} bytes per partition: {rule}"
    fix = "give addresses inside the memory, on legal start partitions"


class InitializedAllocation(KernelError):
    code = "err_tensor_creation_on_scratchpad_with_init_value_not_supported"
    message = "a tensor with a direct allocation is created with an initial value"
    fix = "create it with nl.ndarray, then write it: t[...] = value"


class HiddenBias(KernelError):
    code = "err_bias_tensor_must_be_specified_in_allocation"
    message = "'{op}' has no bias in a kernel that allocates its tensors directly"
    why = "the Scalar engine always adds a bias; the tile of zeros that the compiler would create has no address"
    fix = "use nisa.activation(..., bias=zeros) with an allocated [P, 1] tile of zeros"


class HiddenTranspose(KernelError):
    code = "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel"
    message = "'{op}' transposes on the Tensor engine in a kernel that allocates its tensors directly"
    why = "it multiplies by an identity matrix, a tile which would have no address"
    fix = "multiply by an allocated identity with nisa.nc_matmul; give nl.matmul a transposed x and transpose_x=True"


def note_allocated(buffer: Buffer) -> None:
    """Note that the kernel chose the buffer's address, unless the kernel is marked ``force_auto_alloc``."""
    properties = active("a direct allocation").properties
    if not getattr(properties.get("kernel"), "options", {}).get("force_auto_alloc"):
        properties.setdefault("allocated", set()).add(buffer)


def refuse_hidden(error: type[KernelError], op: str, source: View) -> None:
    """Raise ``error`` for an ``op`` that needs a hidden tile, if its source was allocated directly: the tile has no
    address."""
    if source.buffer in active(op).properties.get("allocated", ()):
        raise error(op=op).here()


class Allocation(NamedTuple):
    """An allocator of ``ncc.sbuf.alloc`` and similar functions: ``address(idx=, pdim_size=, fdim_size=)`` returns an
    address."""

    space: str
    address: Callable[..., tuple[int, ...]]

    def addresses(self, blocks: Sequence[int], partitions: int, free: Sequence[int],
                  dtype: DType) -> tuple[tuple[int, ...], ...]:
        """Return one checked address per block, row-major over the block dimensions."""
        size = math.prod(free) * dtype.itemsize
        addresses = []
        for block in itertools.product(*(range(n) for n in blocks)):
            address = self.address(idx=block, pdim_size=partitions, fdim_size=size)
            rule = "an address must be a tuple of integers"
            if isinstance(address, (tuple, list)) and all(isinstance(a, (int, np.integer)) for a in address):
                address = tuple(int(a) for a in address)
                rule = self._broken_rule(address, partitions, size)
            if rule:
                raise BadAddress(address=address, block=block, bytes=size, rule=rule).here()
            addresses.append(address)
        return tuple(addresses)

    def _broken_rule(self, address: tuple[int, ...], partitions: int, size: int) -> str:
        machine = machine_named(active("a direct allocation").target)
        if self.space == PSUM:
            if len(address) != 3:
                return "a PSUM address must be (bank, start partition, byte)"
            bank, partition, byte = address
            if not 0 <= bank < machine.psum_banks:
                return f"there are {machine.psum_banks} banks"
            if byte + size > machine.psum_bank_bytes or byte < 0:
                return f"a bank has {machine.psum_bank_bytes} bytes per partition"
        else:
            if len(address) != 2:
                return "an SBUF address must be (start partition, byte)"
            partition, byte = address
            if byte < 0 or byte + size > machine.sbuf_bytes_per_partition:
                return f"kernels may use {machine.sbuf_bytes_per_partition} bytes per partition"
        if not machine.legal_start_partition(partition, partitions) or partition + partitions > machine.partitions:
            return f"{partitions} partitions cannot start at {partition}"
        return ""


def linear(index: Sequence[int], tiles: Sequence[int]) -> int:
    """Return the number of a slot: each index modulo its number of tiles, in row-major order. Surplus entries of either
    sequence do not count."""
    total = 0
    for i, n in zip(index, tiles):
        total = total * n + i % n
    return total


def sbuf_modulo(base_addr: int, base_partition: int, par: Sequence[int], free: Sequence[int]) -> Allocation:
    """Return the allocator that assigns blocks in turn to ``par`` partition slots and ``free`` address slots."""
    def address(idx: tuple[int, ...], pdim_size: int, fdim_size: int) -> tuple[int, int]:
        return base_partition + linear(idx, par) * pdim_size, base_addr + linear(idx, free) * fdim_size
    return Allocation(SBUF, address)


def psum_modulo(base_bank: int, base_addr: int, base_partition: int, banks: Sequence[int], par: Sequence[int],
                free: Sequence[int]) -> Allocation:
    """Return the allocator that assigns blocks in turn to ``banks`` banks, partition slots and address slots."""
    def address(idx: tuple[int, ...], pdim_size: int, fdim_size: int) -> tuple[int, int, int]:
        return (base_bank + linear(idx, banks), base_partition + linear(idx, par) * pdim_size,
                base_addr + linear(idx, free) * fdim_size)
    return Allocation(PSUM, address)
