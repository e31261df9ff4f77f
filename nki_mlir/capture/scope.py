# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The open blocks of the module that a capture builds."""

from dataclasses import dataclass, field

from nki_mlir.bindings import ir
from nki_mlir.capture.affine import Affine, Symbol
from nki_mlir.capture.mask import Mask


@dataclass(eq=False)
class Scope:
    """An open block of the IR, and the expressions that are known to be ``>= 0`` inside it (``facts``)."""

    block: ir.Block
    op: ir.Operation | None = None
    symbol: Symbol | None = None
    facts: tuple[Affine, ...] = ()
    condition: tuple[Affine, ...] = ()  # for a branch, the expressions that its condition compares
    parallel: bool = False
    began: int | None = None            # for a loop, the number of the operation that begins it

    may_skip: bool = False              # whether a loop may run no iteration
    holds: Mask | None = None           # for a branch, the condition under which it runs
    end: ir.InsertionPoint = field(init=False)        # where the next operation goes

    def __post_init__(self) -> None:
        self.end = ir.InsertionPoint(self.block)

    def root(self) -> ir.Operation:
        """Return the outermost operation around the block, which differs between captures."""
        op = self.block.owner
        while op.parent is not None:
            op = op.parent
        return op
