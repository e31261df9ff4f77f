# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles whose mask left elements out when they were first written, and what is computed from them.

These elements are zeros, which mean nothing: a kernel works on whole tiles, and stores the rows that count.
"""

from collections.abc import Sequence

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Op, TileField
from nki_mlir.frontend.tensor import View


def from_fresh(op: Op, operands: Sequence[tuple[TileField, Tile]], used: Sequence[View]) -> bool:
    """Whether an operation, which is about to be performed, reads such elements; what it writes may have some then."""
    fresh = False
    for (field, _), view in zip(operands, used):
        fresh |= field.reads and view.buffer.fresh
    if fresh or op.mask:
        for (field, _), view in zip(operands, used):
            buffer = view.buffer
            if field.writes and buffer.on_chip and (fresh or not buffer.is_written):
                buffer.fresh = True
    return fresh
