# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The names that Python sources have for lines: variables of loops, and functions."""

import ast
import linecache
from functools import cached_property

from nki_mlir.files import is_known_source

FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


class SourceNames:
    """The names in one file. There are none in a file that is not Python."""

    def __init__(self, file: str) -> None:
        try:
            self.tree = ast.parse("".join(linecache.getlines(file)) if is_known_source(file) else "")
        except (SyntaxError, ValueError):
            self.tree = ast.parse("")

    @cached_property
    def loops(self) -> list[ast.For]:
        """The loops of the file."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.For)]

    @cached_property
    def functions(self) -> list[tuple[str, Function]]:
        """The functions with their qualified names, outer ones before inner ones."""
        functions = list[tuple[str, Function]]()

        def visit(node: ast.AST, prefix: str) -> None:
            for child in ast.iter_child_nodes(node):
                name = f"{prefix}{child.name}." if isinstance(child, (*FUNCTIONS, ast.ClassDef)) else prefix
                if isinstance(child, FUNCTIONS):
                    functions.append((name[:-1], child))
                visit(child, name)
        visit(self.tree, "")
        return functions

    def variable(self, line: int) -> str:
        """Return the variables of the loop that begins at a line; "" if none does."""
        return next((ast.unparse(loop.target) for loop in self.loops if loop.lineno == line), "")

    def function(self, line: int) -> str:
        """Return the qualified name of the innermost function with a line; "" if none has it."""
        return next((name for name, node in reversed(self.functions)
                     if node.lineno <= line <= (node.end_lineno or node.lineno)), "")


class SourceFiles(dict[str, SourceNames]):
    """The names in files, each of which is read once."""

    def __missing__(self, file: str) -> SourceNames:
        self[file] = names = SourceNames(file)
        return names
