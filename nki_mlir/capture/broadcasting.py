# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Broadcasts the sources of an elementwise operation to the shape of its destination."""

from nki_mlir.capture.tensor import View


def broadcast(view: View, shape: tuple[int, ...]) -> View:
    """Broadcast a source to the destination's shape: extents of 1 repeat; those in front or behind may be missing."""
    missing = len(shape) - view.ndim
    if missing > 0 and repeats_behind(view.shape, shape):
        view = view.with_unit_dims(range(view.ndim, len(shape)), len(shape))
    if missing < 0 and [n for n in view.shape if n != 1] == [n for n in shape if n != 1]:
        return view.reshape(shape)
    return view.broadcast_to(shape)


def repeats_behind(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether a tile of fewer dimensions has one value per partition, or lacks only trailing extents of 1."""
    if small[:1] != shape[:1]:
        return False
    return all(n == 1 for n in small[1:]) or (small == shape[:len(small)] and all(n == 1 for n in shape[len(small):]))
