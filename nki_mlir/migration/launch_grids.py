# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites launches: grids become plain numbers, one size or a tuple of sizes, and tensor types become arrays."""

import ast
from collections.abc import Iterable, Mapping, Set
from typing import cast

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.expressions import MODULE
from nki_mlir.migration.names import Names
from nki_mlir.migration.tree_transformer import TreeTransformer


class GridAxes(TreeTransformer):
    """Axes of launch grids as plain numbers: ``nl.nc(2) * 2`` and ``nl.spmd_dim(nl.nc(2), 2)`` are 4."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self.names = names

    def leave_BinaryOperation(self, original_node: cst.BinaryOperation,
                              updated_node: cst.BinaryOperation) -> cst.BaseExpression:
        """Rewrite a number of cores times the programs of each core."""
        if isinstance(updated_node.operator, cst.Multiply) and any(
                self.names.meaning(side.func) == "nl.nc" for side in (original_node.left, original_node.right)
                if isinstance(side, cst.Call)):
            return self._product(updated_node.left, updated_node.right)
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Rewrite ``nl.nc`` as its number, ``nl.spmd_dim`` as the product of its numbers."""
        meaning, arguments = self.names.meaning(original_node.func), [a.value for a in updated_node.args]
        if meaning == "nl.nc" and len(arguments) == 1:
            return arguments[0]
        if meaning == "nl.spmd_dim" and len(arguments) == 2:
            return self._product(*arguments)
        return updated_node

    def _product(self, left: cst.BaseExpression, right: cst.BaseExpression) -> cst.BaseExpression:
        return cst.parse_expression(terms.multiply(*(MODULE.code_for_node(side) for side in (left, right))))


def array_of_type(node: cst.Subscript, names: Names) -> cst.BaseExpression | None:
    """Return an array for a tensor type ``nt.tensor[[128, 512], nl.float32]``, which measurements take as an argument;
    None for any other subscript."""
    match names.meaning(node.value), [e.slice for e in node.slice]:
        case "nt.tensor", [cst.Index(value=cst.List() | cst.Tuple() | cst.Attribute() as shape),
                           cst.Index(value=dtype)]:
            shown = MODULE.code_for_node(cst.Tuple(shape.elements) if isinstance(shape, cst.List) else shape)
            return cst.parse_expression(f"{names.alias('np')}.zeros({shown}, dtype={MODULE.code_for_node(dtype)})")
    return None


def grid_kind(node: ast.expr, module: ast.Module, depth: int = 0) -> str:
    """Return "sizes" for a tuple, "size" for a number, and "" if the text of the file does not say which it is."""
    match node:
        case ast.Tuple() | ast.Call(func=ast.Name(id="tuple")):
            return "sizes"
        case ast.Name(id=name) if depth < 5:
            values = [n.value for n in ast.walk(module) if isinstance(n, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in n.targets)]
            bound = [n for n in ast.walk(module) if (isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                                                     and n.id == name) or (isinstance(n, ast.arg) and n.arg == name)]
            kinds = {grid_kind(value, module, depth + 1) for value in values}
            return kinds.pop() if len(kinds) == 1 and len(values) == len(bound) else ""
        case ast.Name() | ast.Attribute():
            return ""
        case ast.IfExp(body=first, orelse=second):
            kind = grid_kind(first, module, depth)
            return kind if kind == grid_kind(second, module, depth) else ""
    return "size"


def launches(subscripts: Iterable[cst.Subscript], names: Names, functions: Set[str], aliases: Mapping[str, str]
             ) -> dict[str, list[str]]:
    """Return the grids of a file's launches, by kernel. ``aliases`` has other names of kernels."""
    grids: dict[str, list[str]] = {}
    for node in subscripts:
        name = node.value.value if isinstance(node.value, cst.Name) else ""
        if (name := aliases.get(name, name)) in functions:
            grid = [cast(cst.BaseSlice, e.slice.visit(GridAxes(names))) for e in node.slice]
            grids.setdefault(name, []).append(", ".join(MODULE.code_for_node(e) for e in grid))
    return grids
