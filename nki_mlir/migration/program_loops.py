# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts statements into loops over the programs of a grid: decides which stay outside, and names the variables."""

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection

import libcst as cst

from nki_mlir.migration.expressions import MODULE
from nki_mlir.migration.names import Substitution
from nki_mlir.migration.parameters import bound_names
from nki_mlir.migration.python_trees import tree_names


def loop_variable(program: str, body: list[cst.BaseStatement], counts: Counter[str]
                   ) -> tuple[str, list[cst.BaseStatement]]:
    """Return the name of the variable of a loop over programs, and the loop's body: the kernel's own name for the
    program if nothing else reads the program's number."""
    for k, statement in enumerate(body):
        match statement:
            case cst.SimpleStatementLine(leading_lines=leading, body=[cst.Assign(
                    targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Name(value=value))]) if (
                    value == program and counts[name] == 1 and not any(line.comment for line in leading)):
                other_statements = [*body[:k], *body[k + 1:]]
                if other_statements and not any(program in terms_of(other) for other in other_statements):
                    if not re.fullmatch(rf"{program}_\d+", name):
                        return name, other_statements
                    # the parameter of a function whose body replaces its call
                    original = Substitution({name: cst.Name(program)})
                    block = cst.IndentedBlock(other_statements).visit(original)
                    return program, [*cst.ensure_type(block, cst.IndentedBlock).body]
    return program, body


def is_shared(statement: cst.BaseStatement, hidden: set[str], counts: Counter[str], meaning: Callable[[ast.expr], str],
              functions: Collection[str]) -> bool:
    """Return whether a statement is the same for all programs: arithmetic of the host, or a tensor that they share,
    also under a condition. It reads no name that programs bind (``hidden``), and calls no function of the file."""
    if not isinstance(statement, cst.SimpleStatementLine | cst.If):
        return False
    tree = ast.parse(dedented(statement)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    if tree_names(tree) & hidden:
        return False
    bound = bound_names(tree)
    if any(counts[n] > bound[n] for n in bound):
        return False
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute))):
            continue
        called = meaning(call.func)
        if called in ("nl.ndarray", "nl.zeros", "nl.shared_constant", "nl.shared_identity_matrix"):
            if called in ("nl.ndarray", "nl.zeros") and "shared_hbm" not in ast.unparse(call):
                return False
        elif called.startswith(("nl.", "nisa.")) and called not in ("nl.ds", "nisa.get_nc_version"):
            return False
        elif isinstance(call.func, ast.Name) and call.func.id in functions:
            return False
    return all(isinstance(s, (ast.Assign, ast.Assert, ast.AnnAssign, ast.If))
               for s in ast.walk(tree) if isinstance(s, ast.stmt) and s is not tree)


def terms_of(statement: cst.BaseStatement) -> set[str]:
    """Return the names that a statement reads."""
    return tree_names(ast.parse(dedented(statement)))


def dedented(statement: cst.BaseStatement) -> str:
    """Return the text of a statement within a function."""
    text = MODULE.code_for_node(statement)
    return "def f():\n" + "\n".join("    " + line for line in text.splitlines())


def only_returns(statement: cst.BaseStatement | cst.Else | None) -> bool:
    """Return whether a statement is ``return``, or an ``if`` whose branches are."""
    match statement:
        case cst.SimpleStatementLine():
            return isinstance(statement.body[-1], cst.Return) and len(statement.body) == 1
        case cst.If() | cst.Else():
            other = statement.orelse if isinstance(statement, cst.If) else None
            return all(only_returns(s) for s in statement.body.body if isinstance(s, cst.BaseStatement)) and (
                other is None or only_returns(other))
    return False


def returns_of(function: ast.FunctionDef) -> list[ast.Return]:
    """Return the returns of a function, without those of the functions and classes within it."""
    nodes: list[ast.AST] = [*function.body]
    returns: list[ast.Return] = []
    while nodes:
        node = nodes.pop(0)
        if isinstance(node, ast.Return):
            returns.append(node)
        elif not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
    return returns


def returns_in(statement: cst.BaseStatement) -> bool:
    """Return whether a statement of a function returns."""
    function, = ast.parse(dedented(statement)).body
    assert isinstance(function, ast.FunctionDef)
    return bool(returns_of(function))


def is_docstring(statement: cst.BaseStatement) -> bool:
    """Return whether a statement is a text."""
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Expr) and isinstance(
        statement.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
