# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of views that tensors of both generations have."""

from collections.abc import Iterable, Sequence

from nki_mlir.capture.errors import BadReshape
from nki_mlir.scalar.dtypes import DType


def check_order(order: Sequence[int], shape: Sequence[int], lanes: int | None) -> None:
    """Check that a permutation names each dimension once, and keeps the partition dimension ``lanes`` where it is."""
    if sorted(order) != list(range(len(shape))):
        raise BadReshape(what=f"{list(order)} is not a permutation of {len(shape)} dimensions",
                         fix=f"name each dimension, 0 to {len(shape) - 1}, once").here()
    if lanes is not None and order[lanes] != lanes:
        raise BadReshape(what=f"the permutation {tuple(order)} moves the partition dimension of {tuple(shape)}",
                         fix="transpose with nisa.nc_transpose or nisa.dma_transpose").here()


def check_unit(dim: int, shape: Sequence[int]) -> None:
    """Check that a dimension has one element."""
    if shape[dim] != 1:
        raise BadReshape(what=f"dimension {dim} of {tuple(shape)} has more than one element",
                         fix="squeeze dimensions of extent 1").here()


def check_bits(shape: Sequence[int], dtype: DType, new: DType, is_dense: bool, distances: Iterable[int]) -> None:
    """Check that a view can be read as another dtype: its last dimension is dense, and the bytes of that dimension and
    of all ``distances`` between elements are multiples of the new element's size."""
    if not is_dense or shape[-1] * dtype.itemsize % new.itemsize:
        raise BadReshape(what=f"the last dimension of {tuple(shape)} {dtype} cannot be read as {new}: its elements "
                              f"must be contiguous and fill a multiple of {new.itemsize} bytes",
                         fix="copy the tile first, or view its complete rows").here()
    if any(n * dtype.itemsize % new.itemsize for n in distances):
        raise BadReshape(what=f"the elements of {tuple(shape)} {dtype} are not aligned for {new}: all distances "
                              f"between rows must be multiples of {new.itemsize} bytes",
                         fix="copy the tile first").here()
