# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Allocations, and what makes a view's addresses depend on run-time values."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

from nki_mlir.dialects.access import HBM
from nki_mlir.frontend.tensor import Buffer
from nki_mlir.language.current.regions import MemoryRegion
from nki_mlir.scalar.dtypes import DType


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
        return self.buffer.space != HBM

    def row(self, dtype: DType) -> int:
        """Elements of a dtype in one partition (in all of an HBM tensor)."""
        shape = self.buffer.shape[1:] if self.on_chip else self.buffer.shape
        return prod(shape) * self.buffer.dtype.itemsize // dtype.itemsize


@dataclass(frozen=True, eq=False)
class Indirection:
    """A run-time part of a view's addresses.

    ``scalar``: one value is added to every address; ``vector``: one for each row; both times ``scale``. ``columns``:
    the
    free elements of ``source`` are picked by offsets that groups of partitions share.
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
