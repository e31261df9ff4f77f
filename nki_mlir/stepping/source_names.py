# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Find the variable that a statement writes: ``tile`` of ``tile = nl.load(x)`` and of ``f(dst=tile[0])``.

Operations of every level have source locations, so tiles have the names that the kernel's author knows.
"""

import ast
import linecache
import re
from collections.abc import Iterator

from nki_mlir.capture.source_text import source_of
from nki_mlir.diagnostics import Location

SSA_RESULT = re.compile(r"\s*%([A-Za-z_]\w*) =")          # a line of MLIR
# Functions whose first argument is the destination.
WRITTEN_FIRST = ("store", "dma_copy", "tensor_copy", "memset", "nc_matmul", "nc_transpose")


def written_variable(at: Location | None) -> str:
    """Return the variable that the statement at a location assigns or passes as a destination, or an empty text."""
    if at is None:
        return ""
    if (value := SSA_RESULT.match(linecache.getline(at.file, at.line))) is not None:
        return value[1]
    matching = [s for s in statements(source_of(at.file).tree) if s.lineno <= at.line <= (s.end_lineno or s.lineno)]
    if not matching:
        return ""
    statement = max(matching, key=lambda s: (s.lineno, s.col_offset))
    match statement:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return root(target)
        case ast.Expr(value=ast.Call() as call):
            destination = next((k.value for k in call.keywords if k.arg == "dst"), None)
            function = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if destination is None and call.args and function in WRITTEN_FIRST:
                destination = call.args[0]
            return root(destination)
    return ""


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements that contain no other statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr):
            yield node


def root(node: ast.AST | None) -> str:
    """Return the name with which a chain of subscripts, attributes and calls begins."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
