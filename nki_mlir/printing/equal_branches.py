# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Joins branches that follow each other under the same condition, or under opposite ones, because capture emits one for
each operation.

before:  if i == 0:                     after:  if i == 0:
             nisa.memset(dst=t, ...)                nisa.memset(dst=t, ...)
         if i == 0:                                 nisa.memset(dst=u, ...)
             nisa.memset(dst=u, ...)            else:
         if i != 0:                                 nisa.memset(dst=v, ...)
             nisa.memset(dst=v, ...)
"""

from nki_mlir.printing.index_text import IndexValues
from nki_mlir.waist.function import (
    BufferAllocation,
    ConstantBuffer,
    FunctionBlock,
    FunctionNode,
    IfBranch,
    ScalarValue,
)


def join_equal_branches(nodes: list[FunctionNode], at: int, indices: IndexValues) -> None:
    """Replace the branch at an index of a block's nodes, and the ones after it under the same condition or the opposite
    one, by one branch. Allocations and index values in between move before it."""
    first = nodes[at]
    assert isinstance(first, IfBranch)
    condition = indices.texts.get(first.condition)
    then, otherwise = list(first.then.nodes), _nodes(first.otherwise)
    between: list[FunctionNode] = []
    end = at + 1
    for k, node in enumerate(nodes[at + 1:], at + 1):
        if isinstance(node, ScalarValue):
            indices.define(node)
        other = indices.texts.get(node.condition) if isinstance(node, IfBranch) else None
        if isinstance(node, IfBranch) and other is not None and condition is not None and (
                other == condition or indices.are_opposite(other, condition)):
            is_same = other == condition
            then += node.then.nodes if is_same else _nodes(node.otherwise)
            otherwise += _nodes(node.otherwise) if is_same else node.then.nodes
            between += nodes[end:k]
            end = k + 1
        elif not isinstance(node, BufferAllocation | ConstantBuffer | ScalarValue):
            break
    if end > at + 1:
        sides = FunctionBlock(then), FunctionBlock(otherwise) if otherwise else None
        nodes[at:end] = [*between, IfBranch(first.op, first.condition, *sides)]


def _nodes(block: FunctionBlock | None) -> list[FunctionNode]:
    return [] if block is None else list(block.nodes)
