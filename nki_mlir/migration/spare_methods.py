# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes methods that return index vectors or masks once their values have replaced all calls.

before:  class Rows:                                after:  class Rows:
             def __init__(self, count):                         def __init__(self, count):
                 self.count = count                                 self.count = count

             def valid(self, i):
                 return i * 128 + nl.arange(128)... < self.count
"""

import ast
import re
from collections.abc import Collection

import libcst as cst

from nki_mlir.migration.names import nodes_of, parsed
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.tree_transformer import TreeTransformer

VECTORS = re.compile(r"\bnl\.(?:arange\(|mgrid\[)")


def without_spare_methods(new: str, old: str, replaced: Collection[str], other_texts: Collection[str],
                          report: MigrationReport) -> str:
    """Return the new text of a file without the methods among ``replaced`` that neither it nor the other files read.
    Report their lines in the old text, and those of the others that return index vectors."""
    tree = cst.parse_module(new)
    methods = [m for c in nodes_of(tree, cst.ClassDef) for m in c.body.body if isinstance(m, cst.FunctionDef)
               and m.name.value in replaced]
    spare = {m for m in methods if not any(re.search(rf"\.{m.name.value}\b", text) for text in other_texts)}
    while called := {m for m in spare if m.name.value in _read(tree, spare)}:
        spare -= called
    lines = {m.name: m.lineno for c in ast.walk(ast.parse(old)) if isinstance(c, ast.ClassDef)
             for m in c.body if isinstance(m, ast.FunctionDef)}
    for method in methods:
        name = method.name.value
        if method in spare:
            report.changed(lines[name], f"the method {name} is removed: its value has replaced all calls")
        elif VECTORS.search(cst.Module([]).code_for_node(method)):
            report.add_manual(lines[name],
                              f"{name} returns index vectors or masks: let it return starts and sizes instead")
    return tree.visit(_Methods(spare)).code if spare else new


def _read(tree: cst.Module, left_out: set[cst.FunctionDef]) -> set[str]:
    """Return the attributes that a text reads outside of some functions."""
    inside = {a for function in left_out for a in nodes_of(function, cst.Attribute)}
    return {a.attr.value for a in nodes_of(tree, cst.Attribute) if a not in inside}


class _Methods(TreeTransformer):
    def __init__(self, spare: set[cst.FunctionDef]) -> None:
        super().__init__()
        self.spare = spare

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
                          ) -> "cst.FunctionDef | cst.RemovalSentinel":
        return cst.RemoveFromParent() if original_node in self.spare else updated_node

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        if not updated_node.body.body:
            return updated_node.with_changes(body=updated_node.body.with_changes(body=parsed("pass")))
        return updated_node
