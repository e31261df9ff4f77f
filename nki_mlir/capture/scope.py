# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An open block of the module that a capture builds."""

from dataclasses import dataclass, field

from nki_mlir.bindings import ir
from nki_mlir.capture.affine import Affine, Symbol
from nki_mlir.capture.mask import Mask


@dataclass(eq=False)
class Scope:
    """An open block of the IR, and what is known to hold inside it (expressions that are ``>= 0``)."""

    block: ir.Block
    op: ir.Operation | None = None
    symbol: Symbol | None = None
    facts: tuple[Affine, ...] = ()
    condition: tuple[Affine, ...] = ()   # what an enclosing if depends on
    parallel: bool = False
    began: int | None = None            # of a loop: its number among the operations
    may_skip: bool = False              # a run may pass it without an iteration
    holds: Mask | None = None           # the condition of a branch
    end: ir.InsertionPoint = field(init=False)        # where the next operation goes

    def __post_init__(self) -> None:
        self.end = ir.InsertionPoint(self.block)

    def root(self) -> ir.Operation:
        """The outermost operation around it: another one for each capture."""
        op = self.block.owner
        while op.parent is not None:
            op = op.parent
        return op
