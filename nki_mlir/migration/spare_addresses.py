# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes the arithmetic of addresses that nothing reads any more, because the compiler allocates the tensors, and the
functions that only returned addresses.

before:  address = 0                                                       after:  x = nl.ndarray(shape, buffer=nl.sbuf)
         x = nl.ndarray(shape, buffer=ncc.sbuf.mod_alloc(base_addr=address))
         address += n * 4
"""

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence

import libcst as cst

from nki_mlir.migration.names import Names, nodes_of
from nki_mlir.migration.python_trees import tree_names
from nki_mlir.migration.spare_vectors import removed
from nki_mlir.migration.statement_transformer import StatementTransformer
from nki_mlir.migration.tree_transformer import TreeTransformer

code_of = cst.Module([]).code_for_node
PARTIAL = ("partial", "functools.partial")
ALLOCATING = ("ncc.sbuf", "ncc.psum")
MODULES = {"nl", "nisa", "nki", "ncc", "np", "math", "functools"}        # their functions change no host state


def allocators(tree: cst.Module, names: Names) -> dict[str, str]:
    """Return the functions of ``nki.compiler`` that choose addresses, by the names at the top of a file that stand for
    them: an assignment, also of ``functools.partial``, or a function that only returns the result of such a call."""
    table: dict[str, str] = {}
    for statement in tree.body:
        match statement:
            case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))],
                                                          value=value)]):
                if isinstance(value, cst.Call) and value.args and code_of(value.func) in PARTIAL:
                    value = value.args[0].value
            case cst.FunctionDef(name=cst.Name(value=name), body=cst.IndentedBlock(body=[
                    *_, cst.SimpleStatementLine(body=[cst.Return(value=cst.Call(func=value))])])):
                if len(statement.body.body) != 1 + (statement.get_docstring() is not None):
                    continue
            case _:
                continue
        meaning = names.meaning(value)
        if meaning.startswith(ALLOCATING):
            table[name] = meaning
    return table


def without_addresses(body: Sequence[cst.BaseStatement], addresses: Collection[str]) -> list[cst.BaseStatement]:
    """Return the statements of a function without the assignments to addresses, and to what only these read."""
    if not addresses:
        return list(body)
    block = cst.IndentedBlock(list(body) or [cst.SimpleStatementLine([cst.Pass()])])
    tree = ast.parse(cst.Module([cst.FunctionDef(cst.Name("f"), cst.Parameters(), block)]).code)
    spare = _spare(tree, addresses, tree_names(tree, context=ast.Store))
    return removed(body, spare) if spare else list(body)


def address_functions_within(function: cst.FunctionDef, allocates: Callable[[cst.Call], bool]) -> set[str]:
    """Return the functions within a function that only the addresses of tensors read. ``allocates`` returns whether a
    call chooses the address of a tensor."""
    inner = {s.name.value for s in function.body.body if isinstance(s, cst.FunctionDef)}
    if not inner:
        return set()
    reader = _Allocations(allocates)
    tree = ast.parse(cst.Module([cst.ensure_type(function.visit(reader), cst.FunctionDef)]).code)
    return inner & _spare(tree, reader.names, tree_names(tree, context=ast.Store) | inner)


def without_functions(function: cst.FunctionDef, spare: Collection[str]) -> cst.FunctionDef:
    """Return a function without the definitions of some functions in its body."""
    body = [s for s in function.body.body if not (isinstance(s, cst.FunctionDef) and s.name.value in spare)]
    return function.with_changes(body=function.body.with_changes(body=body))


class _Allocations(TreeTransformer):
    """Replaces the addresses of tensors by None, and collects the names that they read."""

    def __init__(self, allocates: Callable[[cst.Call], bool]) -> None:
        super().__init__()
        self.allocates = allocates
        self.names: set[str] = set()

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Replace the choice of an address."""
        if not self.allocates(original_node):
            return updated_node
        self.names |= {name.value for name in nodes_of(original_node, cst.Name)}
        return cst.Name("None")


def _spare(tree: ast.AST, addresses: Collection[str], bound: set[str]) -> set[str]:
    """Return those of the bound names that only addresses read, and what only these read."""
    spare = {*addresses} & bound
    while (fewer := spare - set(_read(tree, spare))) != spare or (more := {
            name for name in _operands(tree, spare) & bound - spare if name not in set(_read(tree, spare | {name}))}):
        spare = fewer if fewer != spare else spare | more
    return spare


def _assigned(node: ast.AST) -> tuple[set[str], ast.expr | None]:
    """Return the names that a statement assigns, and the value, if it only assigns names."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
            return {name}, node.value
    return set(), None


def _read(node: ast.AST, spare: Collection[str]) -> Iterator[str]:
    """Yield the names that a tree reads, other than the values that it assigns to ``spare`` names without a call of a
    method, which may change an object."""
    names, value = _assigned(node)
    if isinstance(node, ast.FunctionDef) and node.name in spare:
        return
    if value is not None and names <= {*spare}:
        if not _changes_objects(value):
            return
        yield from names                    # the assignment stays
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.AugAssign):
        yield from names
    for child in ast.iter_child_nodes(node):
        yield from _read(child, spare)


def _operands(tree: ast.AST, spare: Collection[str]) -> set[str]:
    """Return the names that assignments to ``spare`` names read."""
    values = [value for node in ast.walk(tree) for names, value in [_assigned(node)] if names <= {*spare}]
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name in spare]
    return tree_names(*filter(None, values), *functions)


def _changes_objects(value: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and not (
        isinstance(n.func.value, ast.Name) and n.func.value.id in MODULES) for n in ast.walk(value))


def without_address_functions(text: str, functions: Collection[str], other_texts: Collection[str]) -> str:
    """Return a text without those of the functions that neither it nor the other files read."""
    while spare := {f for f in functions if re.search(rf"^(def {f}\(|{f} = )", text, re.MULTILINE) and len(re.findall(
            rf"\b{f}\b", text)) == 1 and not any(
            f in other for other in other_texts)}:
        text = cst.parse_module(text).visit(_Functions(spare)).code
    return text


class _Functions(StatementTransformer):
    """Removes definitions of functions, and assignments of functions to names."""

    def __init__(self, spare: Collection[str]) -> None:
        super().__init__()
        self.spare = spare

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
                          ) -> "cst.FunctionDef | cst.RemovalSentinel":
        return cst.RemoveFromParent() if original_node.name.value in self.spare else updated_node

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
                                  ) -> "cst.SimpleStatementLine | cst.RemovalSentinel":
        match updated_node.body:
            case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))])] if name in self.spare:
                return cst.RemoveFromParent()
        return updated_node
