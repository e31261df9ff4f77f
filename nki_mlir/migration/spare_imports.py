# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes imports of ``nki.typing`` that the new text does not read: shapes annotate no variable any more."""

import ast
from collections.abc import Callable, Sequence
from typing import TypeVar

import libcst as cst

TYPING = "nki.typing"
Node = TypeVar("Node", cst.Import, cst.ImportFrom)


def without_spare_imports(text: str) -> str:
    """Return a text without the imports of ``nki.typing`` whose names nothing reads."""
    if TYPING not in text:
        return text
    read = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    return cst.parse_module(text).visit(_Imports(read)).code


class _Imports(cst.CSTTransformer):
    def __init__(self, read: set[str]) -> None:
        super().__init__()
        self.read = read

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import | cst.RemovalSentinel:
        return _without_spare(updated_node, updated_node.names, lambda n: (
            n.asname is None or n.evaluated_name != TYPING or n.evaluated_alias in self.read))

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
                         ) -> cst.ImportFrom | cst.RemovalSentinel:
        module = cst.Module([]).code_for_node(updated_node.module) if updated_node.module is not None else ""
        if module != TYPING or isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        return _without_spare(updated_node, updated_node.names,
                              lambda n: (n.evaluated_alias or n.evaluated_name) in self.read)


def _without_spare(node: Node, names: Sequence[cst.ImportAlias],
                   is_read: Callable[[cst.ImportAlias], bool]) -> Node | cst.RemovalSentinel:
    kept_names: list[cst.ImportAlias] = [n for n in names if is_read(n)]
    if not kept_names:
        return cst.RemoveFromParent()
    last = kept_names[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(names=[*kept_names[:-1], last]) if len(kept_names) < len(names) else node
