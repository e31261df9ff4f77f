# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Joins consecutive instructions under the same condition of the host in one ``if``, which also creates their tiles.

    k_tile = nl.ndarray((64, 64), dtype=k.dtype, buffer=nl.sbuf)        if i >= j:
    if i >= j:                                                              k_tile = nl.load(k[...])
        nisa.dma_copy(dst=k_tile, src=k[...])                               nisa.nc_matmul(dst=s, ..., moving=k_tile)
    if i >= j:
        nisa.nc_matmul(dst=s, ..., moving=k_tile)
"""

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import libcst as cst

from nki_mlir.migration.parameters import bound_names, tree_of_statements
from nki_mlir.migration.python_trees import tree_names
from nki_mlir.migration.tree_transformer import TreeTransformer

MODULE = cst.Module([])
Statements = list[cst.BaseStatement]


def with_shared_conditions(body: Sequence[cst.BaseStatement], conditions: set[str],
                           shorter: Mapping[tuple[str, ...], str]) -> Statements:
    """Return the statements of a function with one ``if`` for each row of instructions under one of the conditions.

    ``shorter`` has the assignment that creates and writes a tile by the texts of the statements that do it in turn.
    """
    if not conditions:
        return list(body)
    merger = _Merger(conditions, shorter, _reads(body))
    visited = [cast(cst.BaseStatement, cast(Any, s).visit(merger)) for s in body]
    return merger.merged(visited)


def _reads(statements: Sequence[cst.BaseStatement]) -> Counter[str]:
    """Return how often each name is read."""
    return Counter(n.id for n in ast.walk(tree_of_statements(statements))
                   if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def _created(statement: cst.BaseStatement) -> str:
    """Return the name of the tile that a statement creates, or ""."""
    match statement:
        case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))],
                                                      value=cst.Call(func=cst.Attribute(attr=cst.Name("ndarray"))))]):
            return name
    return ""


def _other_terms(test: cst.BaseExpression, condition: str) -> str:
    """Return ``b`` of ``a and b`` where ``a`` is the condition, or ""."""
    terms, first = (node.values if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else [node]
                    for node in (ast.parse(text, mode="eval").body
                                 for text in (MODULE.code_for_node(test), condition)))
    begin, other_terms = terms[:len(first)], terms[len(first):]
    if not other_terms or [ast.unparse(term) for term in begin] != [ast.unparse(term) for term in first]:
        return ""
    return ast.unparse(other_terms[0] if len(other_terms) == 1 else ast.BoolOp(ast.And(), other_terms))


def _text(statement: cst.BaseStatement) -> str:
    return MODULE.code_for_node(statement.with_changes(leading_lines=()) if hasattr(statement, "leading_lines")
                                else statement).strip()


class _Merger(TreeTransformer):
    def __init__(self, conditions: set[str], shorter: Mapping[tuple[str, ...], str], reads: Counter[str]) -> None:
        super().__init__()
        self.conditions, self.shorter, self.reads = conditions, shorter, reads

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
                            ) -> cst.IndentedBlock:
        return updated_node.with_changes(body=self.merged(cast(Statements, list(updated_node.body))))

    def guard(self, statement: cst.BaseStatement) -> str:
        """Return the condition of an ``if`` that migration has added, also within another ``if``, or ""."""
        if not isinstance(statement, cst.If):
            return ""
        test = MODULE.code_for_node(statement.test)
        if test in self.conditions and statement.orelse is None:
            return test
        inner = {self.guard(s) for s in statement.body.body if isinstance(s, cst.BaseStatement)} - {""}
        return inner.pop() if len(inner) == 1 else ""

    def unguarded(self, statement: cst.BaseStatement, condition: str) -> Statements | None:
        """Return the statements to which a statement is equivalent if the condition holds, or None if it also does
        something else."""
        if _created(statement):
            return [statement]
        if not isinstance(statement, cst.If):
            return None
        if MODULE.code_for_node(statement.test) == condition and statement.orelse is None:
            body = cast(Statements, list(statement.body.body))
            return [body[0].with_changes(leading_lines=statement.leading_lines), *body[1:]]
        if statement.orelse is None and (other_terms := _other_terms(statement.test, condition)):
            return [statement.with_changes(test=cst.parse_expression(other_terms))]
        orelse: cst.If | cst.Else | None = statement.orelse
        if isinstance(orelse, cst.If):
            inner = self.unguarded(orelse, condition)
            if inner is None or not isinstance(inner[0], cst.If):
                return None
            orelse = inner[0]
        elif orelse is not None:
            suite = self._unguarded_suite(orelse.body, condition)
            if suite is None:
                return None
            orelse = orelse.with_changes(body=suite)
        suite = self._unguarded_suite(statement.body, condition)
        return None if suite is None else [statement.with_changes(body=suite, orelse=orelse)]

    def _unguarded_suite(self, suite: cst.BaseSuite, condition: str) -> cst.BaseSuite | None:
        parts = [self.unguarded(cast(cst.BaseStatement, s), condition) for s in suite.body]
        if any(part is None for part in parts):
            return None
        return suite.with_changes(body=self.shortened([s for part in parts for s in part or ()]))

    def merged(self, statements: Statements) -> Statements:
        """Return the statements of a block with one ``if`` for each row."""
        result: Statements = []
        k = 0
        while k < len(statements):
            count, replacement = self._row(statements[k:])
            result += replacement or statements[k:k + count]
            k += count
        return result

    def _row(self, statements: Statements) -> tuple[int, Statements]:
        """Return the number of first statements that one ``if`` replaces, and the replacement; 1 and none if no row
        begins here."""
        first = next((s for s in statements if not _created(s)), None)
        condition = self.guard(first) if first is not None else ""
        parts: list[Statements] = []
        lengths: list[int] = []                 # up to each instruction
        for statement in statements if condition else ():
            part = self.unguarded(statement, condition)
            if part is None:
                break
            parts.append(part)
            if not _created(statement):
                lengths.append(len(parts))
        for length in reversed(lengths[1:]):
            replacement = self._together(condition, statements[:length], [s for part in parts[:length] for s in part])
            if replacement:
                return length, replacement
        return 1, []

    def _together(self, condition: str, row: Statements, inside: Statements) -> Statements:
        """Return the ``if`` that replaces a row, after the tiles that other statements read, or [] if there is none.
        """
        reads = _reads(row)
        names = bound_names(tree_of_statements(row))
        needed = {name for name in names if self.reads[name] > reads[name]}
        before = [s for s in row if _created(s) in needed]
        late = set(names) - {_created(s) for s in before}
        test = tree_names(ast.parse(condition))
        if needed & late or set(_reads(before)) & late or test & set(names):
            return []
        body = self.shortened([s for s in inside if s not in before])
        merged = cst.If(cst.parse_expression(condition), cst.IndentedBlock(body))
        if not before:
            lines = getattr(body[0], "leading_lines", ())
            merged = merged.with_changes(leading_lines=lines, body=cst.IndentedBlock(
                [body[0].with_changes(leading_lines=()), *body[1:]]))
        return [*before, merged]

    def shortened(self, statements: Statements) -> Statements:
        """Return the statements in which an assignment creates and writes a tile, if one expression does both."""
        result: Statements = []
        k = 0
        while k < len(statements):
            pair = tuple(_text(s) for s in statements[k:k + 2])
            if pair in self.shorter:
                new = cst.parse_statement(self.shorter[pair])
                lines = [line for s in statements[k:k + 2] for line in getattr(s, "leading_lines", ())]
                result.append(cast(Any, new).with_changes(leading_lines=lines))
                k += 2
                continue
            result.append(statements[k])
            k += 1
        return result
