# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an attempt at capturing a kernel goes by: what earlier ones asked for, and its open blocks."""

from dataclasses import dataclass, field
from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.frontend.index import Index, Mask, Symbol


@dataclass(eq=False)
class Scope:
    """An open block of the IR, and what is known to hold inside it (expressions that are ``>= 0``)."""

    block: ir.Block
    op: ir.Operation | None = None
    symbol: Symbol | None = None
    facts: tuple[Index, ...] = ()
    condition: tuple[Index, ...] = ()   # what an enclosing if depends on
    parallel: bool = False
    began: int | None = None            # of a loop: its number among the operations
    may_skip: bool = False              # a run may pass it without an iteration
    holds: Mask | None = None           # the condition of a branch
    end: ir.InsertionPoint = field(init=False)        # where the next operation goes

    def __post_init__(self) -> None:
        self.end = ir.InsertionPoint(self.block)


@dataclass
class UnrollPlan:
    """What earlier attempts asked for: places to capture with numbers, each with the reason; and the options."""

    reasons: dict[tuple[Any, ...], str] = field(default_factory=dict)
    limit: int = 50_000
    replay: bool = True
