# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves the results of a kernel to memory that all cores of a launch see, also if the kernel returns a view of them.

before:  out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.hbm)     after:  out = nl.ndarray(..., buffer=nl.shared_hbm)
         ...                                                                ...
         return out.reshape((n * m,))                                       return out.reshape((n * m,))
"""

import libcst as cst

from nki_mlir.migration.names import Names, NodesByClass, children_of
from nki_mlir.migration.tree_transformer import TreeTransformer


def returned_tensors(node: cst.FunctionDef) -> set[str]:
    """Return the names that a function returns."""
    names: set[str] = set()
    pending: list[cst.CSTNode] = [node.body]
    while pending:
        pending_node = pending.pop()
        if isinstance(pending_node, cst.Return) and pending_node.value is not None:
            values = [pending_node.value]
            if isinstance(pending_node.value, (cst.Tuple, cst.List)):
                values = [e.value for e in pending_node.value.elements]
            names |= set(map(_viewed, values))
        elif not isinstance(pending_node, cst.FunctionDef | cst.BaseExpression):
            pending += children_of(pending_node)
    for assignment in reversed(NodesByClass(node.body).of(cst.Assign)):     # `flat = out.reshape(...)`, `return flat`
        target = assignment.targets[0].target
        if isinstance(target, cst.Name) and target.value in names and not isinstance(assignment.value, cst.Name):
            names.add(_viewed(assignment.value))
    return names


def _viewed(node: cst.BaseExpression) -> str:
    """Return the tensor of which an expression is a view, ``out`` of ``out.reshape((n,))[0:4]``; "" for others."""
    while not isinstance(node, cst.Name):
        match node:
            case cst.Subscript(value=owner) | cst.Call(func=cst.Attribute(value=owner)):
                node = owner
            case _:
                return ""
    return node.value


class ReturnedTensors(TreeTransformer):
    """Moves the tensors of these names to memory that all cores of a launch see."""

    def __init__(self, names: Names, returned: set[str], nl: str) -> None:
        super().__init__()
        self.names, self.returned, self.nl = names, returned, nl

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        """Rewrite ``out = nl.ndarray(..., buffer=nl.hbm)`` if the kernel returns ``out``."""
        target, value = updated_node.targets[0].target, updated_node.value
        if not (isinstance(target, cst.Name) and target.value in self.returned and isinstance(value, cst.Call)):
            return updated_node
        arguments = [a.with_changes(value=cst.parse_expression(f"{self.nl}.shared_hbm")) if a.keyword is not None
                     and a.keyword.value == "buffer" and self.names.meaning(a.value) in ("nl.hbm", "nl.private_hbm")
                     else a for a in value.args]
        return updated_node.with_changes(value=value.with_changes(args=arguments))
