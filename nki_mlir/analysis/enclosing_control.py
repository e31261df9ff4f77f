# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loops and branches that enclose an operation of a kernel, and whether they always run it."""

from typing import NamedTuple

from nki_mlir.bindings import Operation, Value, enclosing
from nki_mlir.dialects.symbol_ranges import loop_span


class ControlAround(NamedTuple):
    """The loops and branches around an operation, from the inside out."""

    loops: list[tuple[Value, range | None]]     # variables and their values, None if they are known only at run time
    branches: list[tuple[Value, bool]]          # conditions, and their values where the operation runs
    is_repeated: bool                           # whether it is in a loop whose end depends on data


def control_around(op: Operation) -> ControlAround:
    """Return the loops and branches around an operation, without reading the function's other operations."""
    around = ControlAround([], [], False)
    *parents, _ = enclosing(op)
    for inner, parent in zip((op, *parents), parents):
        match parent.name:
            case "scf.for":
                around.loops.append((parent.regions[0].blocks[0].arguments[0], loop_span(parent)))
            case "scf.if":
                around.branches.append((parent.operands[0], inner.block == parent.regions[0].blocks[0]))
            case _:
                around = around._replace(is_repeated=True)
    return around


def always_runs(operation: Operation) -> bool:
    """Return whether only loops with at least one iteration enclose the operation."""
    around = control_around(operation)
    return not around.branches and not around.is_repeated and all(span for _, span in around.loops)
