# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the variables of loops in the ``for`` statements of the source that they come from."""

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache

from nki_mlir.capture.source_text import source_of
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.files import is_known_source
from nki_mlir.transforms.program_loops import PROGRAM_AXIS
from nki_mlir.waist.function import ForLoop, FunctionBlock, TileInstruction, function_blocks, nodes_of


def loop_names(block: FunctionBlock) -> dict[ForLoop, str]:
    """Return the names of the block's loops and of those inside; loops without a statement or without a variable have
    none. A loop over programs has the axis of the grid in its name if there are several."""
    names = {loop: statement.target.id for loop, statement in _statements(block)
             if isinstance(statement.target, ast.Name) and statement.target.id != "_"}
    axes = {node: node.op.attributes[PROGRAM_AXIS].value for node in nodes_of(block)
            if isinstance(node, ForLoop) and PROGRAM_AXIS in node.op.attributes}
    has_several_axes = len(set(axes.values())) > 1
    return names | {loop: f"program_{axis}" if has_several_axes else "program" for loop, axis in axes.items()}


def _statements(block: FunctionBlock) -> Iterator[tuple[ForLoop, ast.For]]:
    """Yield the statement of each loop. An inner loop has an inner statement."""
    for node in block.nodes:
        inside = [pair for part in function_blocks(node) for pair in _statements(part)]
        yield from inside
        if not isinstance(node, ForLoop):
            continue
        locations = [at for n in nodes_of(node.body) if isinstance(n, TileInstruction)
                     and (at := location_of(n.op)) is not None and is_known_source(at.file)]
        at = location_of(node.op)
        used_statements = {statement for _, statement in inside}
        statement = begins_at(at) if at is not None and is_known_source(at.file) else None
        if statement is None:           # lines of functions that a loop calls lie outside of it
            chains = [chain for at in locations if (chain := set(statements_around(at)))]
            around = set.intersection(*chains or [set()]) - used_statements
            statement = max(around, key=lambda loop: loop.lineno, default=None)
        if statement is not None:
            yield node, statement


def begins_at(at: Location) -> ast.For | None:
    """Return the statement that begins at the line of the location."""
    return next((loop for loop in _loops(at.file, id(source_of(at.file).tree)) if loop.lineno == at.line), None)


def statements_around(at: Location) -> Iterable[ast.For]:
    """Return the loops whose bodies contain a location."""
    return [loop for loop in _loops(at.file, id(source_of(at.file).tree))
            if loop.body[0].lineno <= at.line <= (loop.body[-1].end_lineno or at.line)]


@lru_cache(maxsize=64)
def _loops(file: str, tree: int) -> list[ast.For]:
    """Return the ``for`` statements of a file. The file is read again when it changes: ``tree`` is then another."""
    return [node for node in ast.walk(source_of(file).tree) if isinstance(node, ast.For)]
