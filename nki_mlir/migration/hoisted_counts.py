# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hoists the counts of elements that masks select out of the loops whose iterations do not change them.

before:  for j in range(n):                             after:  num_rows = min(128, rows - i * 128)
             num_rows = min(128, rows - i * 128)                for j in range(n):
             tile = nl.load(x[nl.ds(i * 128, num_rows)])            tile = nl.load(x[nl.ds(i * 128, num_rows)])
"""

import ast
from collections.abc import Sequence, Set

import libcst as cst

from nki_mlir.migration.names import Substitution
from nki_mlir.migration.parameters import bound_names, tree_of_statements
from nki_mlir.migration.python_trees import tree_names

MODULE = cst.Module([])


def with_hoisted_counts(body: Sequence[cst.BaseStatement], counts: Set[str]) -> list[cst.BaseStatement]:
    """Return the statements of a function with the assignments of ``counts`` hoisted. Only counts that are assigned
    once move; two equal counts of one block become one."""
    bound = bound_names(tree_of_statements(body)) if counts else {}
    counts_assigned_once = {name for name in counts if bound[name] == 1}
    if not counts_assigned_once:
        return list(body)
    hoister = _Hoister(counts_assigned_once)
    statements = hoister.block(body)
    if not hoister.names:
        return statements
    renamed = cst.IndentedBlock(statements).visit(Substitution({name: cst.Name(hoister.replacement(name))
                                                                for name in hoister.names}))
    assert isinstance(renamed, cst.IndentedBlock)
    return [s for s in renamed.body if isinstance(s, cst.BaseStatement)]


class _Hoister:
    def __init__(self, counts: set[str]) -> None:
        self.counts = counts
        self.names: dict[str, str] = {}             # counts that are equal to another one, which replaces them

    def replacement(self, name: str) -> str:
        """Return the count that replaces another one, directly or by way of others."""
        while name in self.names:
            name = self.names[name]
        return name

    def block(self, body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        statements: list[cst.BaseStatement] = []
        for statement in body:
            statements += self.statement(statement)
        return self.merged(statements)

    def statement(self, node: cst.BaseStatement) -> list[cst.BaseStatement]:
        if isinstance(node, cst.If):
            return [self.conditional(node)]
        if not isinstance(node, cst.For) or not isinstance(node.body, cst.IndentedBlock):
            return [node]
        inner = self.block([s for s in node.body.body if isinstance(s, cst.BaseStatement)])
        bound = set(bound_names(tree_of_statements([node])))
        hoisted: list[cst.BaseStatement] = []
        body: list[cst.BaseStatement] = []
        comments: list[cst.EmptyLine] = []
        for statement in inner:
            if (count := self.count(statement)) and not (tree_names(count[1]) & (bound - {count[0]})):
                comments += _comments(statement)
                hoisted.append(statement.with_changes(leading_lines=()))
                bound.discard(count[0])
                continue
            if comments:
                statement = statement.with_changes(leading_lines=[*comments, *getattr(statement, "leading_lines", ())])
                comments = []
            body.append(statement)
        if not hoisted:
            return [node.with_changes(body=node.body.with_changes(body=inner))]
        hoisted[0] = hoisted[0].with_changes(leading_lines=[*node.leading_lines, *comments])     # without a statement
        empty = [cst.SimpleStatementLine([cst.Pass()])]
        return [*hoisted, node.with_changes(leading_lines=(), body=node.body.with_changes(body=body or empty))]

    def conditional(self, node: cst.If) -> cst.If:
        def branch(suite: cst.BaseSuite) -> cst.BaseSuite:
            statements = [s for s in suite.body if isinstance(s, cst.BaseStatement)]
            return suite.with_changes(body=self.block(statements)) if isinstance(suite, cst.IndentedBlock) else suite
        other = node.orelse
        if isinstance(other, cst.If):
            other = self.conditional(other)
        elif isinstance(other, cst.Else):
            other = other.with_changes(body=branch(other.body))
        return node.with_changes(body=branch(node.body), orelse=other)

    def count(self, statement: cst.BaseStatement) -> tuple[str, ast.expr] | None:
        """Return the name and the value of a statement that assigns a count, or None for other statements."""
        match statement:
            case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))],
                                                          value=value)]) if name in self.counts:
                tree = ast.parse(MODULE.code_for_node(value).strip(), mode="eval").body
                calls = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
                if all(isinstance(f, ast.Name) and f.id in ("min", "max") for f in calls):
                    return name, tree
        return None

    def merged(self, statements: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        """Return the statements of a block without counts that are equal to one before."""
        counts_by_text: dict[str, tuple[str, set[str]]] = {}
        result: list[cst.BaseStatement] = []
        for statement in statements:
            count = self.count(statement)
            text = ast.unparse(count[1]) if count else ""
            if count and text in counts_by_text and not _comments(statement):
                self.names[count[0]] = counts_by_text[text][0]
                continue
            bound = set(bound_names(tree_of_statements([statement]))) if counts_by_text else set()
            counts_by_text = {t: (name, read) for t, (name, read) in counts_by_text.items() if not read & bound}
            if count:
                counts_by_text[text] = count[0], tree_names(count[1])
            result.append(statement)
        return result


def _comments(statement: cst.BaseStatement) -> list[cst.EmptyLine]:
    return [line for line in getattr(statement, "leading_lines", ()) if line.comment is not None]
