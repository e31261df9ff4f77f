# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives kernels of one name, in different functions of a file, unique names while they are rewritten.

before:  def scaling(factor):                       while it is rewritten:  def scaling(factor):
             @nki.jit                                                           @nki.jit
             def kernel(x): ...                                                 def kernel(x): ...
             return kernel                                                      return kernel

         def shifting(offset):                                              def shifting(offset):
             @nki.jit                                                           @nki.jit
             def kernel(x): ...                                                 def kernel_of_line_10(x): ...
             return kernel                                                      return kernel_of_line_10

``with_old_names`` gives them their names again. Several kernels of one name in one block are an error.
"""

import ast
import re
from collections.abc import Iterator, Mapping

from nki_mlir.migration.framework_calls import TextEdits
from nki_mlir.migration.kernel_aliases import WRAPPERS
from nki_mlir.migration.names import Names
from nki_mlir.migration.tile_classes import HOST_FUNCTIONS

MARK = "_of_line_"
Scope = ast.Module | ast.FunctionDef


class NamedTwice(Exception):
    """Two kernels have one name, which does not show which of them the text means."""

    def __init__(self, name: str, first: int, line: int) -> None:
        super().__init__(f"{name} is the name of the kernel in line {first}, too")
        self.line = line


def with_unique_names(text: str) -> tuple[str, dict[str, str]]:
    """Return the text with another name for each kernel, but for one, of several with the same name, and the old names
    by the new ones. Raise ``NamedTwice`` if one block defines two of them, or if a function has the name for something
    else, too."""
    tree, old_names = ast.parse(text), dict[str, str]()
    names, edits = Names(text), TextEdits(text)
    first: dict[str, tuple[ast.FunctionDef, Scope]] = {}
    functions = [(f, scope) for f, scope in _functions(tree, tree, names) if _is_kernel(f, names)]
    for function, scope in sorted(functions, key=lambda pair: pair[1] is not tree):         # those of the file first
        other, other_scope = first.setdefault(function.name, (function, scope))
        if other is function:
            continue
        if scope is other_scope or _bindings(scope, function.name) > 1 or MARK in text:
            raise NamedTwice(function.name, other.lineno, function.lineno)
        unique_name = f"{function.name}{MARK}{function.lineno}"
        old_names[unique_name] = function.name
        at = edits.start(function) + len("def ")
        edits.replace(at, at + len(function.name.encode()), unique_name)
        for node in ast.walk(scope):
            if isinstance(node, ast.Name) and node.id == function.name:
                edits.replace(edits.start(node), edits.end(node), unique_name)
    return edits.result()[0] if edits.edits else text, old_names


def with_old_names(text: str, old_names: Mapping[str, str]) -> str:
    """Return a text with the names that functions have in the old text. Other names that look like the new ones
    stay."""
    if not old_names:
        return text
    return re.sub(rf"\b({'|'.join(old_names)})\b", lambda match: old_names[match[1]], text)


def _functions(node: ast.AST, scope: Scope, names: Names) -> list[tuple[ast.FunctionDef, Scope]]:
    """Return the functions of a file with the module or function that defines each, but for methods and for functions
    within kernels."""
    functions: list[tuple[ast.FunctionDef, Scope]] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            functions += [(child, scope), *([] if _is_kernel(child, names) else _functions(child, child, names))]
        elif not isinstance(child, ast.ClassDef):
            functions += _functions(child, scope, names)
    return functions


def _bindings(scope: Scope, name: str) -> int:
    """Return how many functions and parameters of a function, also of those within it, have a name."""
    return sum(isinstance(n, ast.FunctionDef) and n.name == name and n is not scope for n in ast.walk(scope)) + sum(
        isinstance(n, ast.arg) and n.arg == name for n in ast.walk(scope))


def _is_kernel(function: ast.FunctionDef, names: Names) -> bool:
    """Return whether a function has the decorator of a kernel, or itself calls the language."""
    decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return any(names.meaning(d) in WRAPPERS for d in decorators) or any(
        (meaning := names.meaning(call.func)).startswith(("nl.", "nisa.")) and meaning not in HOST_FUNCTIONS
        for call in _calls(function))


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of a function, but for those in functions within it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child
        if not isinstance(child, ast.FunctionDef):
            yield from _calls(child)
