# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that do not change a buffer: what is copied from it for their bodies can be copied once, in front of them."""

from collections.abc import Iterator
from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op

PURE = ("arith.", "affine.apply", "memref.reinterpret_cast", "memref.subview", "memref.cast", "nki.reinterpret",
        "nki.view")


def outermost_loop(buffer: Any, block: Any) -> Any:
    """The outermost of the loops directly around a block that leave a buffer as it is; None where none does."""
    loop = None
    around = block.owner.operation
    writers: list[Any] | None = None
    while around.name == "scf.for":
        if writers is None:
            writers = [op for op in users(buffer) if writes(op, buffer)]
        if _inside(buffer, around) or any(is_inside(op, around) for op in writers):
            break
        loop = around
        around = around.block.owner.operation
    return loop


def users(value: Any) -> Iterator[Any]:
    """The operations that use a value, through views of it as well."""
    for use in value.uses:
        op = use.owner.operation
        if op.name.startswith(PURE):
            for result in op.results:
                yield from users(result)
        else:
            yield op


def writes(op: Any, buffer: Any) -> bool:
    """Whether an operation that uses a buffer may write to it."""
    if is_tile_op(op):
        return any(tile.handle == buffer for _, tile in read_op(op).targets())
    if op.name.startswith("linalg."):
        outputs = list(op.attributes["operandSegmentSizes"])[1]
        return any(_base(v) == buffer for v in list(op.operands)[-outputs:])
    return True


def _base(value: Any) -> Any:
    """The buffer that a value is a view of."""
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name.startswith(PURE):
        value = value.owner.operation.operands[0]
    return value


def is_inside(op: Any, loop: Any) -> bool:
    """Whether an operation is in the body of a loop."""
    while op is not None and op.name != "func.func":
        if op == loop:
            return True
        op = op.block.owner.operation
    return False


def _inside(value: Any, loop: Any) -> bool:
    owner = value.owner
    return is_inside(owner.owner.operation if isinstance(owner, ir.Block) else owner.operation, loop)
