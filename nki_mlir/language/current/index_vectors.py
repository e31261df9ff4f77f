# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts with ``nl.arange`` and ``nl.mgrid``, index vectors of the beta generation: each describes a view."""

from collections.abc import Sequence
from typing import Any

from nki_mlir.diagnostics import KernelError
from nki_mlir.frontend.index import Index, broadcast_shape, check_placed
from nki_mlir.language.current.errors import invalid, of_core, out_of_range, require
from nki_mlir.language.current.tensor import NkiTensor


def has_vectors(items: Sequence[Any]) -> bool:
    return any(isinstance(i, Index) for i in items)


def picked(tensor: NkiTensor, items: Sequence[Any]) -> NkiTensor:
    """Element ``(items[0][i, j], items[1][i, j], ...)`` at ``(i, j)``: one integer or index vector a dimension."""
    try:
        return _picked(tensor, items)
    except KernelError as error:
        raise of_core(error) from None


def _picked(tensor: NkiTensor, items: Sequence[Any]) -> NkiTensor:
    if len(items) != tensor.ndim or any(isinstance(i, slice) for i in items):
        invalid("a subscript mixes slices with index tensors",
                fix="give an integer or an index tensor for each dimension, or slices and integers only")
    indices: list[Index] = []
    shape: tuple[int, ...] = ()
    for dim, (item, extent) in enumerate(zip(items, tensor.shape)):
        index = Index.of(item)
        check_placed(index)
        if index.is_constant and index.const < 0:
            index = index + extent
        low, high = index.interval()
        if low < 0 or high >= extent:
            out_of_range(f"indices {low} to {high} of dimension {dim} with size {extent}: "
                         "index out of range of tensor dimension")
        indices.append(index)
        shape = broadcast_shape(shape, index.shape)
    spread = [index.spread(shape) for index in indices]
    if tensor.on_chip:
        along = {axis for axis, c in enumerate(spread[0].axes) if c and shape[axis] > 1}
        require(along <= {0}, "the first dimension of index tensors is that of the partition")
        require(shape[0] == 1 or not any(i.axes[0] for i in spread[1:]),
                "the index of a free dimension varies along the partition")
    steps = [sum(i.axes[axis] * step for i, step in zip(spread, tensor.strides)) for axis in range(len(shape))]
    start = sum(i.const * step for i, step in zip(spread, tensor.strides))
    return tensor.like(shape=shape, strides=steps, offset=tensor.offset + start)
