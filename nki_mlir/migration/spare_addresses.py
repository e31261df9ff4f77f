# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes the arithmetic of addresses that nothing reads any more, because the compiler allocates the tensors, and the
functions of a file that only returned addresses.

before:  address = 0                                                       after:  x = nl.ndarray(shape, buffer=nl.sbuf)
         x = nl.ndarray(shape, buffer=ncc.sbuf.mod_alloc(base_addr=address))
         address += n * 4
"""

import ast
from collections.abc import Collection, Iterator, Sequence

import libcst as cst

from nki_mlir.migration.python_trees import tree_names
from nki_mlir.migration.spare_vectors import removed
from nki_mlir.migration.statement_transformer import StatementTransformer

MODULES = {"nl", "nisa", "nki", "ncc", "np", "math"}        # whose functions change no state of the host


def without_addresses(body: Sequence[cst.BaseStatement], addresses: Collection[str]) -> list[cst.BaseStatement]:
    """Return the statements of a function without the assignments to addresses, and to what only these read."""
    if not addresses:
        return list(body)
    block = cst.IndentedBlock(list(body) or [cst.SimpleStatementLine([cst.Pass()])])
    tree = ast.parse(cst.Module([cst.FunctionDef(cst.Name("f"), cst.Parameters(), block)]).code)
    bound = tree_names(tree, context=ast.Store)
    spare = {*addresses} & bound
    while (fewer := spare - set(_read(tree, spare))) != spare or (more := {
            name for name in _operands(tree, spare) & bound - spare if name not in set(_read(tree, spare | {name}))}):
        spare = fewer if fewer != spare else spare | more
    return removed(body, spare) if spare else list(body)


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
    return tree_names(*filter(None, values))


def _changes_objects(value: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and not (
        isinstance(n.func.value, ast.Name) and n.func.value.id in MODULES) for n in ast.walk(value))


def without_address_functions(text: str, functions: Collection[str], other_texts: Collection[str]) -> str:
    """Return a text without those of the functions that neither it nor the other files read."""
    while spare := {f for f in functions if f"def {f}(" in text and text.count(f) == 1 and not any(
            f in other for other in other_texts)}:
        text = cst.parse_module(text).visit(_Functions(spare)).code
    return text


class _Functions(StatementTransformer):
    """Removes functions of a module."""

    def __init__(self, spare: Collection[str]) -> None:
        super().__init__()
        self.spare = spare

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
                          ) -> "cst.FunctionDef | cst.RemovalSentinel":
        return cst.RemoveFromParent() if original_node.name.value in self.spare else updated_node
