# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Launch grids: their extents, and the physical core of each program if extents name cores (``nl.nc``)."""

from functools import lru_cache
from math import prod
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from nki_mlir.input_limits import PROGRAMS
from nki_mlir.language.arguments import BadArgument
from nki_mlir.language.functions import nc, spmd_dim
from nki_mlir.language.traced_errors import refuse


class BadExtent(BadArgument):
    message = "an extent of a launch grid must be a positive integer, got {extent}"
    fix = "give each axis a positive integer, for example kernel[2, 4]"


class NestedGridSequence(BadArgument):
    message = "the sequences of a launch grid contain themselves, or are nested more than {depth} deep"
    fix = "give one sequence of positive integers, for example kernel[2, 4]"


class GridFunction(BadArgument):
    message = "the launch grid is a function, {name}, instead of integers"
    fix = "pass the integers that it returns, for example kernel[2, 4]"


class TooManyPrograms(BadArgument):
    message = "a launch grid has {count} programs; at most {limit:,} can run"
    fix = "give each program more of the work, in a loop in the kernel"


NESTED = 8                          # depth of the nested sequences of a launch grid


def extents_and_cores(grid: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the extents of a launch grid, and the core of each program as ``cores_of`` does."""
    if type(grid) is tuple and {*map(type, grid)} == {int}:         # every call of ``kernel[grid](...)`` has one
        return _of_integers(grid), ()
    return flat_grid(grid), cores_of(grid)


@lru_cache(maxsize=1024)
def _of_integers(grid: tuple[int, ...]) -> tuple[int, ...]:
    return flat_grid(grid)


def flat_grid(grid: Any, depth: int = 0) -> tuple[int, ...]:
    """Return the extents of a launch grid: ints, core markers and nested sequences, flattened."""
    if isinstance(grid, (tuple, list)):
        check_depth(depth)
        extents = tuple(n for g in grid for n in flat_grid(g, depth + 1))
        check_programs(prod(extents))
        return extents
    refuse_function(grid)
    try:
        extent = 0 if isinstance(grid, (str, float, np.floating)) else int(grid)
    except (OverflowError, TypeError, ValueError):
        extent = 0
    if extent < 1:
        shape = getattr(grid, "shape", ())
        refuse(BadExtent, extent=f"an array of shape {tuple(shape)}" if shape else repr(grid))
    check_programs(extent)
    return (extent,)


def check_depth(depth: int) -> None:
    """Raise ``NestedGridSequence`` for a sequence of a launch grid within too many others."""
    if depth >= NESTED:
        refuse(NestedGridSequence, depth=NESTED)


def refuse_function(grid: object) -> None:
    """Raise ``GridFunction`` for a function of the arguments, which is a grid in Triton."""
    if callable(grid):
        refuse(GridFunction, name=getattr(grid, "__name__", type(grid).__name__))


def check_programs(count: int) -> None:
    """Raise ``TooManyPrograms`` if a grid has too many programs."""
    if count > PROGRAMS:
        text = f"{count:,}" if count < 1 << 64 else "more than 2**64"
        refuse(TooManyPrograms, count=text, limit=PROGRAMS)


def cores_of(grid: object) -> tuple[int, ...]:
    """Return the core of each program of a launch grid in row-major order; () if no extent names several cores."""
    axes = [_core_of_each(extent) for extent in _leaves(grid)]
    if all(cores is None for cores in axes):
        return ()
    numbers = [0]
    for extent, cores in zip(_leaves(grid), axes):
        cores_of_axis = cores or [0] * index(extent)
        numbers = [number * (max(cores_of_axis) + 1) + core for number in numbers for core in cores_of_axis]
    return tuple(numbers) if any(numbers) else ()


def _leaves(grid: object) -> list[SupportsIndex]:
    if isinstance(grid, (tuple, list)):
        return [leaf for extent in grid for leaf in _leaves(extent)]
    return [grid]                               # type: ignore[list-item]  # what is not a number is refused elsewhere


def _core_of_each(extent: object) -> list[int] | None:
    """Return the cores of an axis, by index; None if the extent of the axis names no core."""
    if isinstance(extent, nc):
        return list(range(int(extent)))
    return [extent.core_of(k) for k in range(int(extent))] if isinstance(extent, spmd_dim) else None
