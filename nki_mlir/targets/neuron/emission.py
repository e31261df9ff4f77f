# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From nisa-level modules to a program: the emission passes on records, without MLIR in between."""

from dataclasses import dataclass
from itertools import product
from typing import Any

from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.transforms.allocate_on_chip import MemoryFull, allocate
from nki_mlir.transforms.kernel_code import Block, Code, Loop, LoopVariable, blocks
from nki_mlir.transforms.read_code import read_code
from nki_mlir.transforms.schedule_instructions import schedule
from nki_mlir.transforms.split_blocks import split_blocks
from nki_mlir.transforms.synchronize_engines import synchronized
from nki_mlir.transforms.unroll_loops import UNROLL_LIMIT, unrolled, with_grid

MEMORY = (90, 60, 30)           # percent of on-chip memory that the scheduler may fill, tried in turn


@dataclass(frozen=True)
class Emission:
    """Options of the emission."""

    unroll_limit: int = UNROLL_LIMIT
    reorder: bool = True        # schedule instructions; else program order


def emit_module(module: Any, options: Emission = Emission()) -> Program:
    """The program of a nisa-level module."""
    return emit_code(with_grid(read_code(the_kernel(module))), options)


def emit_code(code: Code, options: Emission) -> Program:
    code = unrolled(code, options.unroll_limit)
    split_blocks(code)
    arrange(code, options.reorder)
    return synchronized(code)


def arrange(code: Code, reorder: bool) -> None:
    """Order the instructions and allocate memory. Where an order needs too much, one that overlaps less is tried."""
    before = [(block, list(block.nodes)) for block in blocks(code.body)]
    for percent in MEMORY if reorder else ():
        schedule(code, percent)
        try:
            allocate(code)
            return
        except MemoryFull:
            for block, nodes in before:
                block.nodes = nodes
    allocate(code)
    if reorder:
        code.notes.append("on-chip memory is nearly full: instructions stay in program order")


# -- several modules of one kernel -------------------------------------------------------------------------------------
def emit_variants(variants: dict[tuple, Any], grid: tuple[int, ...], options: Emission = Emission()) -> Program:
    """The program of a kernel that was captured once for each combination of some program ids.

    ``variants``: nisa-level module by the ``(axis, id)`` pairs that it is for. Programs come in row-major order.
    """
    codes: dict[int, Code] = {}
    first: Code | None = None
    for module in variants.values():
        if id(module) not in codes:
            codes[id(module)] = read_code(the_kernel(module), like=first)
            first = first or codes[id(module)]
    assert first is not None
    if len(codes) == 1:
        return emit_code(with_grid(first), options)
    programs = []
    for point in product(*(range(n) for n in grid)):
        module = next(m for fixed, m in variants.items() if all(point[axis] == n for axis, n in fixed))
        code = codes[id(module)]
        body = Block([Loop(LoopVariable("program", 0, 0), range(1), code.body)])
        for variable in code.programs:
            assert variable.axis is not None
            body = Block([Loop(variable, range(point[variable.axis], point[variable.axis] + 1), body)])
        programs += body.nodes
    return emit_code(Code(first.name, first.machine, first.globals, Block(programs)), options)
