# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Broadcasts the sources of an elementwise operation to the shape of its destination."""

from math import prod

from nki_mlir.capture.errors import BadBroadcast
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.verifier import NotOneARow, PartitionMismatch


def source_of(cls: type[Op], name: str, view: View, shape: tuple[int, ...]) -> View:
    """Broadcast a source of an operation to the destination's shape. Raise an error that names the source if the
    operation reads one value of it in each partition."""
    try:
        return broadcast(view, shape)
    except BadBroadcast:
        if name not in cls.row_operands:
            raise
        if (count := prod(view.shape[1:])) != 1:
            raise NotOneARow(operand=name, op=cls.name, count=count, rows=shape[0]) from None
        raise PartitionMismatch(tiles=f"dst{list(shape)}, {name}{list(view.shape)}", op=cls.name) from None


def broadcast(view: View, shape: tuple[int, ...]) -> View:
    """Broadcast a source to the destination's shape: extents of 1 repeat; leading and trailing ones may be missing."""
    missing = len(shape) - view.ndim
    if missing > 0 and repeats_behind(view.shape, shape):
        view = view.with_unit_dims(range(view.ndim, len(shape)), len(shape))
    if missing < 0 and [n for n in view.shape if n != 1] == [n for n in shape if n != 1] and (
            view.shape[0] == shape[0] or not view.buffer.on_chip):
        return view.reshape(shape)
    return view.broadcast_to(shape)


def repeats_behind(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether a tile of fewer dimensions has one value per partition, or lacks only trailing extents of 1."""
    if small[:1] != shape[:1]:
        return False
    return all(n == 1 for n in small[1:]) or (small == shape[:len(small)] and all(n == 1 for n in shape[len(small):]))
