# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shapes and strides of views: reshaping without moving data, splitting and merging dimensions."""

import math
from collections.abc import Sequence


def row_major(shape: Sequence[int], innermost: int = 1) -> tuple[int, ...]:
    strides, step = [], innermost
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def known_extents(shape: Sequence[int], total: int) -> tuple[int, ...] | None:
    """The shape with one -1 put in for; None where it does not have ``total`` elements."""
    extents = [int(n) for n in shape]
    if extents.count(-1) == 1:
        rest = math.prod(n for n in extents if n != -1)
        extents[extents.index(-1)] = total // rest if rest and total % rest == 0 else 0
    return tuple(extents) if math.prod(extents) == total and all(n > 0 for n in extents) else None


def flattened(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether neighbours are dense, so that the dimensions merge into one."""
    return all(strides[k] == shape[k + 1] * strides[k + 1] for k in range(len(shape) - 1))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements are contiguous and in row-major order."""
    step = 1
    for n, own in zip(reversed(shape), reversed(strides)):
        if n != 1 and own != step:
            return False
        step *= n
    return True
