# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of a grid as loops of the function.

before:  grid [3], "nki.load"(%t, %x, %program_id)       after:  scf.for %i = 0 to 3 {
                                                                   "nki.load"(%t, %x, %i)
                                                                 }

One core runs the programs of most grids in their order. As loops they are subject to the passes that split and roll
loops, so that a text and the text of its capture agree.
"""

from collections.abc import Sequence

from nki_mlir.bindings import Module, Operation, Value, ir
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.creation import constant, terminator
from nki_mlir.dialects.kernel_function import KernelFunction, the_kernel

CORES = (2,)                            # the grid whose programs are the cores of a launch
PROGRAM_AXIS = "nki.program_axis"       # of a loop: the axis of the grid that it stands for


def add_program_loops(module: Module, axes: Sequence[int] | None = None) -> None:
    """Enclose a function's body in a loop for each axis of its grid, or for some axes.

    A program id of an axis with one program is 0. Without ``axes``, programs that run on two cores get no loop.
    """
    kernel = the_kernel(module)
    if axes is None and kernel.grid == CORES:
        return
    block = kernel.op.regions[0].blocks[0]
    ids = {spec.index: a for a, spec in zip(block.arguments, kernel.arguments) if spec.kind == "program_id"}
    body = [op.operation for op in block.operations][:-1]
    variables, end = add_loops(kernel, terminator(block), ir.InsertionPoint.at_block_begin(block), axes)
    for axis, value in ids.items():
        if axes is None or axis in axes:
            value.replace_all_uses_with(variables[axis])
    for op in body:
        op.move_before(end)


def add_loops(kernel: KernelFunction, before: Operation, bounds: ir.InsertionPoint, axes: Sequence[int] | None = None
              ) -> tuple[list[Value], Operation]:
    """Create a loop over each axis of a kernel's grid, or over some, before an operation, with bounds at
    ``bounds``.

    Return the loops' variables, which are 0 for an axis without a loop, and the operation before which the caller
    writes the body.
    """
    make = Attributes()
    with kernel.op.location, bounds:
        zero, one = constant(0), constant(1)
        stops = [constant(extent) for extent in kernel.grid]
    variables, end = [zero] * len(stops), before
    for axis, extent in enumerate(kernel.grid):
        if extent > 1 and (axes is None or axis in axes):
            loop = ir.Operation.create("scf.for", operands=[zero, stops[axis], one], regions=1, loc=kernel.op.location,
                                       ip=ir.InsertionPoint(end), attributes={"nki.loop": make.value("sequential"),
                                                                              PROGRAM_AXIS: make.value(axis)})
            inside = loop.regions[0].blocks.append(ir.IndexType.get(), arg_locs=[kernel.op.location])
            end = ir.Operation.create("scf.yield", loc=kernel.op.location, ip=ir.InsertionPoint(inside))
            variables[axis] = inside.arguments[0]
    return variables, end
