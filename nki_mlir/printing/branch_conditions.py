# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sets the conditions of run-time loops within branches: each branch gets the tile of its loop, and sets it.

before:  c = 1;  if p: while c: ... else: while c: ...   after:  if p: c = 1;  while c: ... else: d = 1;  while d: ...

A tile that only one loop uses, and that is set before it, is the loop's register in the text. It may also be a copy of
another tile that no operation uses between the copy and the branches.
"""

from nki_mlir.analysis.dead_code import ancestor_in
from nki_mlir.bindings import Module, Operation, Value, ir, operations_of

FILLS = ("nki.memset", "nisa.memset")
COPIES = ("nki.copy", "nisa.tensor_copy")
CONDITION = "memref<1x1xi32"


def set_in_branches(module: Module) -> None:
    """Set the conditions of loops in the branches that contain the loops, in place."""
    for allocation in operations_of(module, lambda name: name == "memref.alloc"):
        if str(allocation.results[0].type).startswith(CONDITION):
            _set_in_branches(allocation)


def _set_in_branches(allocation: Operation) -> None:
    buffer, block = allocation.results[0], allocation.block
    users = dict.fromkeys(use.owner.operation for use in buffer.uses)
    sets = [user for user in users
            if user.name in FILLS + COPIES and user.block == block and user.operands[0] == buffer]
    around = [ancestor_in(block, user) for user in users if user not in sets]
    if len(sets) != 1 or not around or any(op is None or op.name != "scf.if" or op != around[0] for op in around):
        return
    branch = around[0]
    assert branch is not None
    if not sets[0].is_before_in_block(branch) or not any(_is_tested(user) for user in users):
        return
    if len(sets[0].operands) != (2 if sets[0].name in COPIES else 1) or any(
            _is_used_between(source, sets[0], branch) for source in [*sets[0].operands][1:]):
        return
    for region in branch.regions:
        inside = [user for inner in region.blocks for user in users if ancestor_in(inner, user) is not None]
        if inside:
            at = ir.InsertionPoint.at_block_begin(region.blocks[0])
            copied_allocation = allocation.clone(at)
            copied_set = sets[0].clone(at)
            copied_set.operands[0] = copied_allocation.results[0]
            for user in inside:
                for number, operand in enumerate(user.operands):
                    if operand == buffer:
                        user.operands[number] = copied_allocation.results[0]
    sets[0].erase()
    allocation.erase()


def _is_used_between(value: Value, first: Operation, last: Operation) -> bool:
    """Return whether an operation between two operations of a block uses a value."""
    around = [ancestor_in(first.block, use.owner.operation) for use in value.uses]
    return any(op is None or (first.is_before_in_block(op) and op.is_before_in_block(last)) for op in around)


def _is_tested(operation: Operation) -> bool:
    """Return whether an operation loads the condition of a loop."""
    return operation.name == "memref.load" and operation.parent is not None and operation.parent.name == "scf.while"
