# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fresh on-chip memory reads as zero: a memset where the first operation on a buffer does not overwrite all of it.

Kernels accumulate into tensors that were only declared. Most buffers are written whole by the operation that makes
them, and need nothing.
"""

from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Access, Linear, Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.nki.movement import MemsetOp
from nki_mlir.dialects.op import Op
from nki_mlir.frontend.tensor import Buffer


class FirstUses:
    """Watches the first operation on each on-chip buffer of one capture."""

    def __init__(self) -> None:
        self.whole: dict[Buffer, bool | None] = {}          # None: not used yet

    def allocated(self, buffer: Buffer) -> None:
        if buffer.on_chip:
            self.whole[buffer] = None

    def forget(self, buffer: Buffer) -> None:
        self.whole.pop(buffer, None)

    def used(self, op: Op, buffers: list[Buffer], scope: Any) -> None:
        """``buffers`` are those of the op's operands, ``scope`` is where the op stands."""
        for (field, tile), buffer in zip(op.operands(), buffers):
            if buffer not in self.whole or self.whole[buffer] is not None:
                continue
            read = any(t.handle is tile.handle for _, t in op.sources())
            self.whole[buffer] = (field.writes and not read and not op.mask and scope is buffer.scope
                                  and tile.partitions == tile.base_shape[0] and tile.free_elements == tile.row)

    def fill(self, make: Attributes) -> None:
        """Insert the memsets. Buffers whose allocation was taken back have been forgotten."""
        for buffer, whole in self.whole.items():
            if whole is False:
                _memset(buffer, make)


def _memset(buffer: Buffer, make: Attributes) -> None:
    shape, free = buffer.physical_shape, 1
    for extent in shape[1:]:
        free *= extent
    access = Access(buffer.dtype, Linear(), Linear(), ((1, shape[0]), (1, free)))
    allocation = buffer.handle.owner
    tile = Tile(buffer.handle, buffer.space, shape, buffer.dtype, access)
    write_op(MemsetOp(dst=tile, value=0.0), make, allocation.location, ir.InsertionPoint.after(allocation))
