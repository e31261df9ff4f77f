# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that do not change a buffer: what is copied from it for their bodies can be copied once, in front of them."""

from typing import TYPE_CHECKING, Any

from nki_mlir.analysis.buffer_effects import defining, memory_of, own_effects, users_through_views
from nki_mlir.bindings import Block, Operation, Value

if TYPE_CHECKING:
    from nki_mlir.bindings import ir


def outermost_loop(buffer: Value, block: Block) -> Any:
    """The outermost of the loops directly around a block that leave a buffer as it is; None where none does."""
    loop, buffer = None, memory_of(buffer)
    around = block.owner.operation
    writers = None
    while around.name == "scf.for":
        if writers is None:
            writers = [op for op in users_through_views(buffer) if buffer in own_effects(op).writes]
        if _inside(buffer, around) or any(is_inside(op, around) for op in writers):
            break
        loop = around
        around = around.block.owner.operation
    return loop


def is_inside(op: Operation, loop: Operation) -> bool:
    """Whether an operation is in the body of a loop."""
    while op is not None and op.name != "func.func":
        if op == loop:
            return True
        op = op.block.owner.operation
    return False


def _inside(value: Value, loop: "ir.Operation") -> bool:
    return is_inside(defining(value) or value.owner.owner.operation, loop)
