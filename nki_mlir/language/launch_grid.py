# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which programs of a launch grid run on which physical core, where the grid's extents name cores (``nl.nc``)."""

from operator import index
from typing import SupportsIndex

from nki_mlir.language.functions import nc, spmd_dim


def cores_of(grid: object) -> tuple[int, ...]:
    """The core of each program of a launch grid in row-major order; empty where no extent names several cores."""
    axes = [_core_of_each(extent) for extent in _leaves(grid)]
    if all(cores is None for cores in axes):
        return ()
    numbers = [0]
    for extent, cores in zip(_leaves(grid), axes):
        several = cores or [0] * index(extent)
        numbers = [number * (max(several) + 1) + core for number in numbers for core in several]
    return tuple(numbers) if any(numbers) else ()


def _leaves(grid: object) -> list[SupportsIndex]:
    if isinstance(grid, (tuple, list)):
        return [leaf for extent in grid for leaf in _leaves(extent)]
    return [grid]                               # type: ignore[list-item]  # what is no number is refused elsewhere


def _core_of_each(extent: object) -> list[int] | None:
    """The cores of an axis, by the index on it; None where the extent names none."""
    if isinstance(extent, nc):
        return list(range(int(extent)))
    return [extent.core_of(k) for k in range(int(extent))] if isinstance(extent, spmd_dim) else None
