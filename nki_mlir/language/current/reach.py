# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the elements of a view are in its storage."""

from collections.abc import Sequence
from math import prod

from nki_mlir.language.current.errors import invalid, out_of_range
from nki_mlir.language.current.memory import Storage
from nki_mlir.scalar.dtypes import DType


def check_reach(storage: Storage, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: DType,
                free_only: bool = False) -> None:
    """Check that a view's elements are in its storage: on chip in its partitions, unless ``free_only``, and rows."""
    name = storage.buffer.name
    if not prod(shape):
        if not prod(storage.buffer.shape):                      # the allocation itself is empty
            return
        invalid(f"{name} is used through a view, and that view, of shape {list(shape)}, is empty",
                fix="skip the operation with a Python if when the part is empty")
    row, start = storage.row(dtype), offset
    steps, part = list(zip(strides, shape)), "the tensor"
    if storage.on_chip:
        (step, count), *steps = steps
        rows, before = storage.buffer.shape[0], start // row
        last_partition = before + (count - 1) * step // row
        if not free_only and not 0 <= before <= last_partition < rows:
            out_of_range(f"index overflow: the access pattern reaches partitions {before} to {last_partition}, "
                         f"{name} has {rows}", fix="shorten the pattern, or start it at an earlier partition")
        start, part = start % row, "a partition"
    low = high = start
    for step, count in steps:
        if step > 0:
            high += step * (count - 1)
        else:
            low += step * (count - 1)
    if low < 0 or high >= row:
        out_of_range(f"index overflow: the access pattern reaches elements {low} to {high} of {part}, {name} "
                     f"has {row}", fix="shorten the pattern, or start it earlier")
