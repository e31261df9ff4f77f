# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adds loops over the axes of a grid along which programs share a module.

before:  grid [2, 4], programs (0, 0) to (0, 3) have one module, (1, 0) to (1, 3) another
after:   two modules, each with a loop over 4 programs

A kernel whose Python decides by ``nl.program_id(0)`` has a module for each of these numbers, not for each program.
"""

import itertools
from collections.abc import Sequence
from math import prod

from nki_mlir.bindings import Module, cloned, ir
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.printing.errors import Unprintable
from nki_mlir.transforms.loop_over_programs import reduces_programs
from nki_mlir.transforms.program_loops import add_program_loops


def programs_apart(modules: Sequence[Module]) -> list[Module]:
    """Return a module for each point of the axes along which programs differ, with loops over the other axes.

    Arguments:
        modules: one for all programs of the grid, or one for each in the order of the grid's points; one object where
            programs share a module

    Errors: ``Unprintable`` if there are several modules, but not one for each program.
    """
    if len(modules) == 1:
        return list(modules)
    grid = the_kernel(modules[0]).grid
    if len(modules) != prod(grid):
        raise Unprintable(what=f"a launch of {prod(grid)} programs, of which {len(modules)} have a module,",
                          fix="print the kernel from its source, FILE.py:FUNCTION")
    points = dict(zip(itertools.product(*map(range, grid)), modules))
    shared = [axis for axis, extent in enumerate(grid) if extent > 1 and all(
        module is points[point[:axis] + (0,) + point[axis + 1:]] for point, module in points.items())]
    if not shared or any(map(reduces_programs, modules)):
        return list(modules)
    return [_looped(module, shared) for point, module in points.items() if not any(point[axis] for axis in shared)]


def _looped(module: Module, axes: Sequence[int]) -> Module:
    """Return a copy of a module with loops over some axes of its grid."""
    with module.context, ir.Location.unknown():
        copy = cloned(module)
        add_program_loops(copy, axes)
        return copy
