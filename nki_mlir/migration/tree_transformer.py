# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Base of all transformers of source trees: it enters no node that holds only text, and calls no empty methods."""

import functools
from collections.abc import Callable
from typing import Any

import libcst as cst

# Most nodes of a tree are these. libcst copies each node that a transformer enters, and these have no children but
# white space and parentheses.
TEXT_ONLY = frozenset({
    cst.SimpleWhitespace, cst.TrailingWhitespace, cst.ParenthesizedWhitespace, cst.EmptyLine, cst.Comment, cst.Newline,
    cst.Comma, cst.Dot, cst.Colon, cst.Semicolon, cst.AssignEqual, cst.LeftParen, cst.RightParen, cst.LeftSquareBracket,
    cst.RightSquareBracket, cst.LeftCurlyBrace, cst.RightCurlyBrace, cst.Name, cst.Integer, cst.Float,
    cst.SimpleString, *cst.BaseBinaryOp.__subclasses__(), *cst.BaseUnaryOp.__subclasses__(),
    *cst.BaseCompOp.__subclasses__(), *cst.BaseAugOp.__subclasses__(), *cst.BaseBooleanOp.__subclasses__()})


@functools.cache
def methods_of(kind: type["TreeTransformer"], prefix: str) -> dict[type[cst.CSTNode], Callable[..., Any]]:
    """Return the methods ``visit_NODE`` or ``leave_NODE`` of a transformer that are not libcst's, which are empty."""
    methods = {}
    for name in dir(kind):
        if name.startswith(prefix) and getattr(kind, name) is not getattr(cst.CSTTransformer, name, None):
            methods[getattr(cst, name.removeprefix(prefix))] = getattr(kind, name)
    return methods


class TreeTransformer(cst.CSTTransformer):
    """A transformer with methods ``visit_NODE`` and ``leave_NODE``, but none for attributes of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self._visits, self._leaves = methods_of(type(self), "visit_"), methods_of(type(self), "leave_")

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Return whether the children of a node are visited."""
        kind = type(node)
        visit = self._visits.get(kind)
        return (visit is None or visit(self, node) is not False) and kind not in TEXT_ONLY

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
                 ) -> "cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]":
        """Return what replaces a node."""
        leave = self._leaves.get(type(original_node))
        return updated_node if leave is None else leave(self, original_node, updated_node)

    def on_visit_attribute(self, node: cst.CSTNode, attribute: str) -> None:
        """Do nothing: no transformer has methods for attributes."""

    def on_leave_attribute(self, original_node: cst.CSTNode, attribute: str) -> None:
        """Do nothing: no transformer has methods for attributes."""
