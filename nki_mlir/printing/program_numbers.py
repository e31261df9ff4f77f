# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives each program of a launch a module in which program ids are numbers.

before:  grid [2]                                       after:  two modules, the second of which has
             "nki.load"(%t, %x, %program_id) mask id < 1            "nki.load"(%t, %x, %c1) mask 1 < 1

Masks and branches that depend on program ids are then decided before the programs are printed one by one.
"""

import itertools

from nki_mlir.analysis.dead_code import fold_constants
from nki_mlir.bindings import Module, cloned, ir
from nki_mlir.dialects.creation import constant
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.transforms.split_masked_loops import below, contents


def numbered_programs(module: Module) -> list[Module]:
    """Return a module for each program, in the order of the grid's points."""
    return [_numbered(module, point) for point in itertools.product(*map(range, the_kernel(module).grid))]


def _numbered(module: Module, point: tuple[int, ...]) -> Module:
    """Return a copy of a module with the numbers of one program."""
    with module.context, ir.Location.unknown():
        copy = cloned(module)
        kernel = the_kernel(copy)
        block = kernel.op.regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block):
            for value, argument in zip(block.arguments, kernel.arguments):
                if argument.kind == "program_id":
                    value.replace_all_uses_with(constant(point[argument.index]))
            fold_constants(below(contents(block)), constant)
        return copy
