# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves loops into branches on the program, where a loop has nothing else.

before:  for i: if program_id == 0: a else: b        after:  if program_id == 0: for i: a else: for i: b

Python runs the text once for each program, so its capture has only the loops of ``a`` for one, and of ``b`` for the
other.
"""

from collections.abc import Sequence

from nki_mlir.analysis.index_values import roots
from nki_mlir.bindings import Block, Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.transforms.split_masked_loops import contents


def move_loops_into_branches(module: Module) -> None:
    """Exchange loops and the branches on program ids that are alone in them, inner loops first."""
    kernel = the_kernel(module)
    block = kernel.op.regions[0].blocks[0]
    ids = [a for a, spec in zip(block.arguments, kernel.arguments) if spec.kind == "program_id"]
    for loop in reversed(operations_of(kernel.op, lambda name: name == "scf.for")):
        if (branch := _branch_of(loop, ids)) is not None:
            _exchange(loop, branch)


def _branch_of(loop: Operation, ids: Sequence[Value]) -> Operation | None:
    """Return the branch of a loop that only has its condition beside it, if program ids decide the condition."""
    operations = contents(loop.regions[0].blocks[0])
    branches = [op for op in operations if not op.name.startswith("arith.")]
    if len(branches) != 1 or branches[0].name != "scf.if" or loop.results or branches[0].results:
        return None
    values = [branches[0].operands[0], *[op.results[0] for op in operations if op != branches[0]]]
    return branches[0] if all(root in ids for value in values for root in roots(value)) else None


def _exchange(loop: Operation, branch: Operation) -> None:
    body = loop.regions[0].blocks[0]
    for op in contents(body):
        if op != branch:                        # computations of the condition
            op.move_before(loop)
    branch.move_before(loop)
    for block in [block for region in branch.regions for block in region.blocks]:
        _surround(block, loop)
    loop.erase()


def _surround(block: Block, loop: Operation) -> None:
    """Put the operations of a block into a copy of a loop, whose body is empty."""
    operations = contents(block)
    if not operations:
        return
    copy = loop.clone(ip=ir.InsertionPoint(operations[0]))
    end = copy.regions[0].blocks[0].operations[0].operation
    for op in operations:
        op.move_before(end)
    _replace_inside(copy, loop.regions[0].blocks[0].arguments[0], copy.regions[0].blocks[0].arguments[0])


def _replace_inside(loop: Operation, old: Value, new: Value) -> None:
    for op in operations_of(loop, lambda name: True):
        for at, operand in enumerate(op.operands):
            if operand == old:
                op.operands[at] = new
