# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets an instruction that replaces a tile write the tile itself, if no other name can have the old tile.

before:  seen = nl.ndarray(shape, dtype=x.dtype, ...)       after:  seen = nl.ndarray(shape, dtype=x.dtype, ...)
         nisa.affine_select(dst=seen, on_true_tile=x)               nisa.affine_select(dst=seen, on_true_tile=x)
         seen_2 = nl.ndarray(shape, dtype=seen.dtype, ...)          nisa.affine_select(dst=seen, on_true_tile=seen)
         nisa.affine_select(dst=seen_2, on_true_tile=seen)
         seen = seen_2
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.names import Substitution
from nki_mlir.migration.parameters import tree_of_statements
from nki_mlir.migration.python_trees import tree_names

# Instructions whose result at an element reads their operands at this element alone.
ELEMENTWISE = ("activation", "affine_select", "reciprocal", "scalar_tensor_tensor", "tensor_copy", "tensor_scalar",
               "tensor_tensor")


def with_updates_in_place(body: Sequence[cst.BaseStatement], nl: str, nisa: str) -> list[cst.BaseStatement]:
    """Return the statements of a function, in which ``nl`` and ``nisa`` name the packages, without the tiles that only
    replace one of equal shape and dtype, which the same block allocates."""
    nodes = list(ast.walk(tree_of_statements(body)))
    if not any(isinstance(n, ast.Assign) and isinstance(n.value, ast.Name) for n in nodes):
        return list(body)
    names = [n.id for n in nodes if isinstance(n, ast.Name)]
    block = cst.IndentedBlock(list(body)).visit(_Blocks(nl, nisa, names))
    assert isinstance(block, cst.IndentedBlock)
    return [statement for statement in block.body if isinstance(statement, cst.BaseStatement)]


@dataclass
class _Allocation:
    """The statement ``name = nl.ndarray(shape, dtype=dtype, buffer=buffer)``."""

    name: str
    shape: str
    dtype: str
    buffer: str

    @property
    def names(self) -> set[str]:
        """The names that shape and dtype read."""
        return terms.names(f"({self.shape}, {self.dtype})")

    def matches(self, other: "_Allocation") -> bool:
        """Return whether another tile, which replaces this one, has its shape, dtype and memory."""
        return (self.shape, self.buffer) == (other.shape, other.buffer) and (
            other.dtype in (self.dtype, f"{self.name}.dtype"))


class _Blocks(cst.CSTTransformer):
    def __init__(self, nl: str, nisa: str, names: list[str]) -> None:
        super().__init__()
        self.nl, self.nisa, self.names = nl, nisa, names

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
                            ) -> cst.IndentedBlock:
        statements = list(updated_node.body)
        alive: dict[str, _Allocation] = {}              # tiles that have no other name
        k = 0
        while k < len(statements):
            tree = _tree(statements[k])
            if k + 2 < len(statements) and (instruction := self.replacing(alive, statements[k:k + 3])) is not None:
                lines = [*getattr(statements[k], "leading_lines", ()), *instruction.leading_lines]
                statements[k:k + 3] = [instruction.with_changes(leading_lines=lines)]
                k += 1
                continue
            allocation = self.allocation(tree)
            used = set() if allocation is not None or self.keeps_no_tile(tree) else tree_names(tree, context=ast.Load)
            bound = tree_names(tree, context=ast.Store)
            alive = {name: tile for name, tile in alive.items() if name not in used | bound and not tile.names & bound}
            if allocation is not None:
                alive[allocation.name] = allocation
            k += 1
        return updated_node.with_changes(body=statements)

    def allocation(self, tree: ast.stmt) -> _Allocation | None:
        match tree:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=function, args=[shape], keywords=[
                    ast.keyword(arg="dtype", value=dtype), ast.keyword(arg="buffer", value=buffer)])):
                if ast.unparse(function) == f"{self.nl}.ndarray":
                    return _Allocation(name, *map(ast.unparse, (shape, dtype, buffer)))
        return None

    def keeps_no_tile(self, tree: ast.stmt) -> bool:
        """Return whether a statement is a call of the packages, which keeps none of its arguments."""
        match tree:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=package))):
                return ast.unparse(package) in (self.nl, self.nisa)
        return False

    def replacing(self, alive: dict[str, _Allocation], three: Sequence[cst.BaseStatement]
                  ) -> cst.SimpleStatementLine | None:
        """Return the instruction that updates a tile instead of three statements that replace it, or None."""
        new = self.allocation(_tree(three[0]))
        match _tree(three[2]):
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=other)) if (
                    new is not None and other == new.name and name in alive and alive[name].matches(new)):
                pass
            case _:
                return None
        _, instruction, last = three
        if not isinstance(instruction, cst.SimpleStatementLine) or (
                not isinstance(last, cst.SimpleStatementLine) or last.leading_lines):
            return None
        match _tree(instruction):
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=package, attr=name_of_function), args=[],
                                         keywords=operands)):
                if ast.unparse(package) != self.nisa or name_of_function not in ELEMENTWISE:
                    return None
            case _:
                return None
        direct = [k.value.id for k in operands if isinstance(k.value, ast.Name)]
        read = [n.id for k in operands for n in ast.walk(k.value) if isinstance(n, ast.Name)]
        # The new tile has no other use, and the instruction reads and writes complete tiles, not parts or views.
        if self.names.count(new.name) != 3 or direct.count(new.name) != 1 or read.count(name) != direct.count(name):
            return None
        renamed = instruction.visit(Substitution({new.name: cst.Name(name)}))
        assert isinstance(renamed, cst.SimpleStatementLine)
        return renamed


def _tree(statement: cst.BaseStatement) -> ast.stmt:
    """Return Python's tree of a statement."""
    return tree_of_statements([statement]).body[0]
