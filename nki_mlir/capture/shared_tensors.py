# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tensors that all programs of a launch share. Each program allocates them, and gets the same memory."""

from collections.abc import Hashable
from typing import NamedTuple

from nki_mlir.capture.errors import SharedTensorsDiffer
from nki_mlir.scalar.dtypes import DType


class SharedTensor(NamedTuple):
    """The shape and dtype of a tensor in HBM, and its name in the first program."""

    shape: tuple[int, ...]
    dtype: DType
    name: str


class SharedTensors:
    """The tensors by key (``Builder.shared_key``), in the order in which the programs allocate them."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, SharedTensor] = {}

    def __len__(self) -> int:
        return len(self.by_key)

    def number(self, key: Hashable, shape: tuple[int, ...], dtype: DType, name: str) -> int:
        """Return the number of the tensor that a program allocates. Raise ``SharedTensorsDiffer`` if another program
        has allocated it with another shape or dtype."""
        first = self.by_key.setdefault(key, SharedTensor(tuple(shape), dtype, name))
        if (first.shape, first.dtype) != (tuple(shape), dtype):
            raise SharedTensorsDiffer(name=name, here=f"{list(shape)} of {dtype}",
                                      first=f"{list(first.shape)} of {first.dtype}").here()
        return [*self.by_key].index(key)
