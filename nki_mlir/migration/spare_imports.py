# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes imports that the new text does not read, and exports of functions that it does not have; places new imports.

Removed imports are of ``nki.typing``, because shapes annotate no variable any more, of functions whose bodies replace
calls, of the language's functions, which the new text calls through ``nl`` and ``nisa``, and of functions of the
standard library that only the old text read, such as ``partial`` of an allocator.
"""

import ast
import re
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import libcst as cst

from nki_mlir.migration.expressions import MODULE
from nki_mlir.migration.python_trees import tree_names
from nki_mlir.migration.statement_transformer import StatementTransformer

TYPING, EXPORTS = "nki.typing", "__all__"
Node = TypeVar("Node", cst.Import, cst.ImportFrom)


def without_spare_imports(text: str, old: ast.AST, functions: Collection[str], before: Collection[str]) -> str:
    """Return a text without the imports that nothing reads of ``nki.typing``, of ``functions`` and of what only the
    ``old`` text read of the standard library, and without the exports of functions that the file had ``before`` and no
    longer has."""
    tree = ast.parse(text)
    read = tree_names(tree)
    unread = tree_names(old) - read
    if TYPING not in text and not functions and EXPORTS not in text and not unread:
        return text
    removed = {*before} - {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    return cst.parse_module(text).visit(_Imports(read, unread, functions, removed)).code


class _Imports(StatementTransformer):
    def __init__(self, read: set[str], unread: set[str], functions: Collection[str], removed: set[str]) -> None:
        super().__init__()
        self.read, self.unread, self.functions, self.removed = read, unread, functions, removed

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        match updated_node:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value="__all__"))],
                            value=(cst.List() | cst.Tuple()) as exports):
                elements = [e for e in exports.elements if not (isinstance(e.value, cst.SimpleString)
                                                                and e.value.evaluated_value in self.removed)]
                if len(elements) < len(exports.elements):
                    elements = [e.with_changes(comma=cst.MaybeSentinel.DEFAULT) for e in elements]
                    return updated_node.with_changes(value=exports.with_changes(elements=elements))
        return updated_node

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import | cst.RemovalSentinel:
        return _without_spare(updated_node, updated_node.names, lambda n: not (
            self._is_left_over(n.evaluated_name, n.evaluated_alias or n.evaluated_name) or (
                n.evaluated_name == TYPING and n.asname is not None and n.evaluated_alias not in self.read)))

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
                         ) -> cst.ImportFrom | cst.RemovalSentinel:
        module = cst.Module([]).code_for_node(updated_node.module) if updated_node.module is not None else ""
        if isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        return _without_spare(updated_node, updated_node.names, lambda n: (
            (name := n.evaluated_alias or n.evaluated_name) in self.read or (
                module != TYPING and name not in self.functions and (
                    bool(updated_node.relative) or not self._is_left_over(module, name)))))

    def _is_left_over(self, module: str, name: str) -> bool:
        """Return whether only the old text read a name that an import binds to (a part of) the standard library."""
        return name in self.unread and module.partition(".")[0] in sys.stdlib_module_names


def _without_spare(node: Node, names: Sequence[cst.ImportAlias],
                   is_read: Callable[[cst.ImportAlias], bool]) -> Node | cst.RemovalSentinel:
    kept_names: list[cst.ImportAlias] = [n for n in names if is_read(n)]
    if not kept_names:
        return cst.RemoveFromParent()
    last = kept_names[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(names=[*kept_names[:-1], last]) if len(kept_names) < len(names) else node


def first_import(body: Sequence[cst.BaseStatement]) -> int:
    """Return the index of the first import of a file; without one, that of the statement after the docstring."""
    for k, statement in enumerate(body):
        if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Import | cst.ImportFrom
                                                                         ) and (
                "__future__" not in MODULE.code_for_node(statement)):
            return k
    match body[:1]:
        case [cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString())])]:
            return 1
    return 0


def import_position(text: str, body: Sequence[cst.BaseStatement], first: int) -> int:
    """Return the index at which to insert an import: that of a module of ``nki`` follows the imports of ``nki`` that
    sort before it, any other is at ``first``, but outside of the standard library behind that library's imports."""
    lines = [MODULE.code_for_node(s).strip().splitlines()[-1] if isinstance(s, cst.SimpleStatementLine) else ""
             for s in body]
    before = [k + 1 for k, line in enumerate(lines) if line.startswith("import nki") and line < text]
    if text.startswith("import nki.") and before:
        return max(before)
    of_nki = [k for k, line in enumerate(lines) if re.match(r"(import|from) nki\b", line)]
    if text.startswith("from nki.") and of_nki:
        return of_nki[-1] + 1
    if text == "import nki" and of_nki:
        return of_nki[0]
    at = first
    while at < len(lines) and _is_of_standard_library(lines[at]) and not (
            _is_of_standard_library(text) and _sorted_by(text) < _sorted_by(lines[at])):
        at += 1
    if _is_of_standard_library(text):
        return at
    begins_group = first < at < len(lines) and lines[at].startswith(("import ", "from ")) and "\n" in (
        MODULE.code_for_node(body[at]).partition(lines[at])[0])
    return at + begins_group


def insert_import(text: str, body: list[cst.SimpleStatementLine | cst.BaseCompoundStatement], first: int) -> None:
    """Insert an import at its position, with an empty line between the standard library and other imports."""
    at = import_position(text, body, first)
    statement = cst.parse_statement(text)
    assert isinstance(statement, cst.SimpleStatementLine)
    match body[at:at + 1]:
        case [cst.SimpleStatementLine(body=[cst.Import() | cst.ImportFrom()], leading_lines=lines) as following]:
            ends_group = _is_of_standard_library(text) and not _is_of_standard_library(
                MODULE.code_for_node(following).strip())
            begins_group = at == first or not ends_group
            if lines and begins_group and not any(line.comment for line in lines):
                statement, lines = statement.with_changes(leading_lines=lines), ()
            if not lines and ends_group:
                lines = [cst.EmptyLine(indent=False)]
            body[at] = following.with_changes(leading_lines=lines)
    body.insert(at, statement)


def _sorted_by(line: str) -> tuple[bool, str]:
    """Return the key by which imports of a group are sorted."""
    return line.startswith("from"), line


def _is_of_standard_library(line: str) -> bool:
    words = line.split()
    return len(words) > 1 and words[0] in ("import", "from") and words[1].partition(".")[0] in sys.stdlib_module_names
