# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes the assignments of index vectors and of counts of masks that a function does not read; comments stay."""

import ast
from collections.abc import Sequence
from typing import Any

import libcst as cst
import libcst.matchers as m

from nki_mlir.migration.assertions import negated
from nki_mlir.migration.inner_comments import lines_above
from nki_mlir.migration.python_trees import tree_names
from nki_mlir.migration.statement_transformer import StatementTransformer


def without_spare(body: Sequence[cst.BaseStatement], vectors: set[str]) -> list[cst.BaseStatement]:
    """Return the statements without assignments to names of the list that nothing in them reads."""
    statements, spare = list(body), set[str]()
    while vectors and (spare_names := vectors - read_names(statements) - spare):
        spare |= spare_names
        statements = removed(statements, spare)
    return statements


def removed(body: Sequence[cst.BaseStatement], spare: set[str]) -> list[cst.BaseStatement]:
    """Return the statements without the assignments to spare names."""
    remover = _Remover(spare)
    return remover.pruned([s for before in body if (s := _visited(before, remover)) is not None])


def read_names(statements: Sequence[cst.BaseStatement]) -> set[str]:
    """Return the names that statements read."""
    block = cst.IndentedBlock(statements or [cst.SimpleStatementLine([cst.Pass()])])
    tree = ast.parse(cst.Module([cst.FunctionDef(cst.Name("f"), cst.Parameters(), block)]).code)
    return tree_names(tree, context=ast.Load)


def _visited(statement: cst.BaseStatement, remover: "_Remover") -> cst.BaseStatement | None:
    """Return a statement without its parts that are removed, or None if nothing is left of it."""
    visited: Any = statement.visit(remover)
    return None if isinstance(visited, cst.RemovalSentinel) else visited


class _Remover(StatementTransformer):
    def __init__(self, spare: set[str]) -> None:
        super().__init__()
        self.spare, self.nothing = spare, cst.SimpleStatementLine([cst.Pass()])
        self.comments: list[cst.EmptyLine] = []             # lines above removed statements at the end of a block

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
                            ) -> cst.IndentedBlock:
        body = self.pruned([s for s in updated_node.body if isinstance(s, cst.BaseStatement)])
        return updated_node.with_changes(body=body or [self.nothing], footer=[*self.comments, *updated_node.footer])

    def is_empty(self, part: cst.If | cst.Else | None) -> bool:
        """Return whether a part of an ``if`` has lost all of its statements."""
        return part is not None and list(part.body.body) == [self.nothing]

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:
        """Remove branches that have lost all of their statements."""
        orelse = updated_node.orelse
        if isinstance(orelse, cst.Else) and self.is_empty(orelse):
            orelse = None
        if not self.is_empty(updated_node):
            return updated_node.with_changes(orelse=orelse)
        if orelse is None and not m.findall(updated_node.test, m.Call()):
            return cst.RemoveFromParent()
        if isinstance(orelse, cst.Else) and not any(line.comment for line in orelse.leading_lines):
            return updated_node.with_changes(test=negated(updated_node.test), body=orelse.body, orelse=None)
        return updated_node.with_changes(orelse=orelse)

    def pruned(self, statements: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        """Return a block's statements without the removed ones, whose comments move to the next statement."""
        statements_left: list[cst.BaseStatement] = []
        above: list[cst.EmptyLine] | None = None            # the lines above removed statements
        for statement in statements:
            lines = list(getattr(statement, "leading_lines", ()))
            if self.is_spare(statement):
                above = lines_above(above or [], lines, False)
                continue
            if above is not None and hasattr(statement, "leading_lines"):
                statement = statement.with_changes(leading_lines=lines_above(above, lines, not statements_left))
                above = None
            statements_left.append(statement)
        self.comments = [line for line in above or () if line.comment]
        return statements_left

    def is_spare(self, statement: cst.BaseStatement) -> bool:
        match statement:
            case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=target)])]):
                match target:
                    case cst.Name():
                        return target.value in self.spare
                    case cst.Tuple() | cst.List():
                        return all(isinstance(e.value, cst.Name) and e.value.value in self.spare
                                   for e in target.elements)
            case cst.SimpleStatementLine(body=[cst.AugAssign(target=cst.Name(value=name))]):
                return name in self.spare
        return False
