# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which partitions an engine reaches: tiles begin at quadrants, and each lane finds its data in its own partition."""

from nki_mlir.dialects.access import HBM, Tile
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Machine


def is_transfer(op: Op) -> bool:
    """Whether an instruction moves data to or from HBM or by DMA, which may begin at any partition."""
    return op.queued or any(tile.space == HBM for _, tile in op.operands())


def is_spread(tile: Tile) -> bool:
    """Whether all lanes read one partition, which only a transfer can do."""
    step, count = tile.access.dims[0]
    return step == 0 and count > 1


def starts_legally(machine: Machine, tile: Tile, offsets: tuple[int, ...] = (0,)) -> bool:
    """Whether an engine may begin at the tile's partition, whatever the values of its symbols.

    ``offsets`` from a legal start are legal, too.
    """
    start = tile.access.partition
    assert start is not None
    steps = (c for _, c in start.symbols)                       # sums of multiples of what is legal are legal
    return (any(o <= start.const and machine.legal_start_partition(start.const - o, tile.partitions) for o in offsets)
            and all(machine.legal_start_partition(abs(c), tile.partitions) for c in steps))
