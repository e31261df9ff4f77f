# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extents of launch grids and the cores of their programs, compared with a count over all programs."""

import itertools
from math import prod

import numpy as np
import pytest

from nki_mlir.input_limits import PROGRAMS
from nki_mlir.language.functions import nc, spmd_dim
from nki_mlir.language.launch_grid import (
    BadExtent,
    GridFunction,
    TooManyPrograms,
    cores_of,
    extents_and_cores,
    flat_grid,
)

AXES = {"1": (1, [0]), "3": (3, [0] * 3), "nc(2)": (2, [0, 1]), "nc(1)": (1, [0]), "spmd_dim(nc(2), 3)": (6, [0, 0, 0, 1, 1, 1]),
        "spmd_dim(3, nc(2))": (6, [0, 1] * 3), "nc(2) * 2": (4, [0, 0, 1, 1]), "2 * nc(2)": (4, [0, 1, 0, 1]),
        "spmd_dim(2, 2)": (4, [0] * 4)}


@pytest.mark.parametrize("grid", [*([a] for a in AXES), *itertools.product(AXES, repeat=2), ("nc(2)", "3", "2 * nc(2)")])
def test_cores_of_all_programs(grid):
    axes = tuple(eval(axis, {"nc": nc, "spmd_dim": spmd_dim}) for axis in grid)
    extents, cores_by_axis = zip(*(AXES[axis] for axis in grid))
    expected = []
    for program in itertools.product(*map(range, extents)):
        core = 0
        for k, index in enumerate(program):
            core = core * (max(cores_by_axis[k]) + 1) + cores_by_axis[k][index]
        expected.append(core)
    assert flat_grid(axes) == extents and prod(extents) == len(expected)
    cores = tuple(expected) if any(expected) else ()
    assert cores_of(axes) == cores
    assert extents_and_cores(axes) == (extents, cores) == extents_and_cores(list(axes))
    assert extents_and_cores(((axes[0],), [*axes[1:]])) == (extents, cores)
    if len(axes) == 1:
        assert extents_and_cores(axes[0]) == (extents, cores)


def test_grids_of_plain_numbers():
    assert extents_and_cores((4, 2)) == ((4, 2), ()) == extents_and_cores([4, 2]) == extents_and_cores((np.int64(4), 2))
    assert extents_and_cores(7) == ((7,), ()) and extents_and_cores(()) == ((), ()) and extents_and_cores(True) == ((1,), ())
    assert flat_grid((PROGRAMS // 2, 2)) == (PROGRAMS // 2, 2) and flat_grid(PROGRAMS) == (PROGRAMS,)


@pytest.mark.parametrize("grid", [0, -1, (2, 0), "4", "x", 2.0, np.float32(2), None, (2, None), {}, float("inf"), float("nan"), (2, (3, "4"))])
def test_extents_that_are_not_positive_integers(grid):
    leaf = grid
    while isinstance(leaf, tuple):
        leaf = leaf[-1]
    for spelling in (grid, list(grid) if isinstance(grid, tuple) else (grid,)):
        with pytest.raises(BadExtent) as error:
            extents_and_cores(spelling)
        assert error.value.headline == f"an extent of a launch grid must be a positive integer, got {leaf!r}"


def test_functions_are_refused():
    class Grid:
        def __call__(self, meta):
            return 2
    for function, name in [(lambda meta: 2, "<lambda>"), (print, "print"), (Grid(), "Grid")]:
        with pytest.raises(GridFunction, match="the launch grid is a function") as error:
            extents_and_cores((2, function))
        assert error.value.headline.endswith(f"is a function, {name}, instead of integers")


@pytest.mark.parametrize("grid, count", [(PROGRAMS + 1, f"{PROGRAMS + 1:,}"), ((PROGRAMS, 2), f"{2 * PROGRAMS:,}"), ([1 << 10, [1 << 10, 1 << 10]], f"{1 << 30:,}"),
                                         ((1 << 64) - 1, f"{(1 << 64) - 1:,}"), (1 << 64, "more than 2**64")])
def test_too_many_programs(grid, count):
    with pytest.raises(TooManyPrograms) as error:
        extents_and_cores(grid)
    assert error.value.headline == f"a launch grid has {count} programs; at most {PROGRAMS:,} can run"
