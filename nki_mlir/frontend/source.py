# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The definition of a function in its source file, as an AST with the file's own lines and columns."""

import ast
import copy
import linecache
from types import CodeType
from typing import Any

Definitions = dict[tuple[int, str], ast.FunctionDef]

_files: dict[str, tuple[list[str], Definitions]] = {}     # the lines that were parsed, and what they define


def definition(code: CodeType, scope: dict[str, Any]) -> ast.FunctionDef | None:
    """The ``def`` that a function was compiled from; None without source, for lambdas, where the source has changed.

    ``scope`` are the function's globals, by which sources in archives are found.
    """
    file = code.co_filename
    linecache.lazycache(file, scope)
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    known = _files.get(file)
    if known is None or known[0] is not lines:
        known = _files[file] = lines, _definitions(lines)
    found = known[1].get((code.co_firstlineno, code.co_name))
    return copy.deepcopy(found) if found is not None and _is_of(found, code) else None


def _definitions(lines: list[str]) -> Definitions:
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return {}
    return {(min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.name): node
            for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _is_of(node: ast.FunctionDef, code: CodeType) -> bool:
    """Whether the definition has the code's parameters and variables. (Test runners add variables named ``@...``.)"""
    given = node.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    if tuple(names) != code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]:
        return False
    known = {name for inner in ast.walk(node) for name in _bound(inner)}
    return all(name in known or name.startswith(("@", ".")) for name in code.co_varnames)


def _bound(node: ast.AST) -> list[str]:
    """Names that a node can bind."""
    match node:
        case ast.Name(name) | ast.arg(name) | ast.FunctionDef(name) | ast.ClassDef(name):
            return [name]
        case ast.alias(name, asname):
            return [asname or name.split(".")[0]]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
    return []
