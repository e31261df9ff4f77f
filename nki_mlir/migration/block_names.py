# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives new variables of separate blocks the same name, as a person would.

before:  for i in range(n):                                 after:  for i in range(n):
             num_rows = min(128, rows - i * 128)                        num_rows = min(128, rows - i * 128)
             ...                                                        ...
         for i in range(n):                                         for i in range(n):
             tile_rows = min(128, rows - i * 128)                       num_rows = min(128, rows - i * 128)
             ...                                                        ...

A block here is a suite: the body of a loop, or a branch. A name moves if all of its reads are in one suite, whose first
statement with the name assigns it; the suites of the other name fulfil this, too, and lie outside of that suite. So no
read of one can get the value of the other. A name without another one of its kind is the first of the kind.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Sequence, Set

import libcst as cst

from nki_mlir.migration.names import Substitution
from nki_mlir.migration.parameters import tree_of_statements

NUMBERED = re.compile(r"(\w+?)_(\d+)")
FIRST_HINTS = {"tile_rows": "num_rows", "tile_columns": "num_columns"}      # names of a second count, and of the first
Suite = tuple[int | str, ...]           # the statements that lead to a suite: index, field, index, field, ...
BARRIERS = (ast.FunctionDef, ast.Lambda, ast.Global, ast.Nonlocal, ast.Delete, ast.ClassDef)


def with_shared_names(body: Sequence[cst.BaseStatement], old_names: Set[str]) -> tuple[
        list[cst.BaseStatement], dict[str, str]]:
    """Return the statements of a function with fewer new names, those which are not ``old_names`` of the old text; and
    the new name of each variable that is renamed."""
    suites = _Suites(tree_of_statements(body), old_names)
    renamed: dict[str, str] = {}
    for name in suites.order:
        for other in candidates(name):
            if suites.join(name, other):
                renamed[name] = other
                break
    if not renamed:
        return list(body), {}
    block = cst.IndentedBlock(list(body)).visit(Substitution({n: cst.Name(other) for n, other in renamed.items()}))
    assert isinstance(block, cst.IndentedBlock)
    return [s for s in block.body if isinstance(s, cst.BaseStatement)], renamed


def candidates(name: str) -> list[str]:
    """Return the names that may replace that of a variable, in the order of preference."""
    match = NUMBERED.fullmatch(name)
    base, number = (match.group(1), int(match.group(2))) if match else (name, 1)
    family = [base, *(f"{base}_{k}" for k in range(2, number))] if number > 1 else []
    return [*([FIRST_HINTS[base]] if base in FIRST_HINTS else []), *family]


class _Suites:
    """The suites in which each name lives; ``order`` has the new names in the order of their first statements."""

    def __init__(self, tree: ast.FunctionDef, old_names: Set[str]) -> None:
        self.old_names, self.order = old_names, list[str]()
        self.of_name: dict[str, list[Suite]] = {}
        self._mentions: dict[str, list[Suite]] = defaultdict(list)
        self._statements: dict[Suite, Sequence[ast.stmt]] = {}
        self._excluded = set[str]()
        self._visit(tree.body, ())
        for name, mentions in self._mentions.items():
            suite = _common(mentions)
            if name not in self._excluded:
                if suite and begins_with_assignment(self._statements[suite], name):
                    self.of_name[name] = [suite]
                self.order += [name] if name not in old_names else []

    def join(self, name: str, other: str) -> bool:
        """Let a new name and another one be one name if their suites are separate, or if nothing has the other name.
        Return whether this is so."""
        if other not in self._mentions and other not in self.old_names | self._excluded:
            self._mentions[other] = self._mentions.pop(name)
            self.of_name |= {other: self.of_name.pop(name)} if name in self.of_name else {}
            return True
        if name not in self.of_name or other not in self.of_name or any(
                _contains(a, b) or _contains(b, a) for a in self.of_name[name] for b in self.of_name[other]):
            return False
        self.of_name[other] += self.of_name.pop(name)
        self._mentions[other] += self._mentions.pop(name)
        return True

    def _visit(self, statements: Sequence[ast.stmt], suite: Suite) -> None:
        self._statements[suite] = statements
        for k, statement in enumerate(statements):
            headers: list[ast.AST] = [statement]
            if isinstance(statement, ast.For | ast.While | ast.If | ast.With):
                headers = [n for n in ast.iter_child_nodes(statement) if not isinstance(n, ast.stmt)]
                for field in ("body", "orelse"):
                    self._visit(getattr(statement, field, []), (*suite, k, field))
            for node in (n for header in headers for n in ast.walk(header)):
                if isinstance(node, ast.Name):
                    self._mentions[node.id].append(suite)
                elif isinstance(node, BARRIERS):
                    inner = list(ast.walk(node))
                    self._excluded |= {n.id for n in inner if isinstance(n, ast.Name)} | {
                        n.arg for n in inner if isinstance(n, ast.arg)} | {
                        *getattr(node, "names", ()), getattr(node, "name", "")}


def begins_with_assignment(statements: Sequence[ast.stmt], name: str) -> bool:
    """Return whether the first of some statements that has a name assigns it, or both branches of it do, and does not
    read it."""
    for statement in statements:
        mentions = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name]
        if mentions and isinstance(statement, ast.If) and not any(n in mentions for n in ast.walk(statement.test)):
            return all(begins_with_assignment(branch, name) for branch in (statement.body, statement.orelse))
        if mentions:
            return len(mentions) == 1 and isinstance(statement, ast.Assign) and statement.targets == mentions
    return False


def _contains(outer: Suite, inner: Suite) -> bool:
    return inner[:len(outer)] == outer


def _common(suites: Sequence[Suite]) -> Suite:
    """Return the innermost suite that contains all of some suites."""
    common = suites[0]
    for suite in suites[1:]:
        length = next((k for k, (a, b) in enumerate(zip(common, suite)) if a != b), min(len(common), len(suite)))
        common = common[:length - length % 2]
    return common
