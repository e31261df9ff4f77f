# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Joins branches that follow each other under the same condition, because capture emits one for each operation.

before:  if i == 0:                     after:  if i == 0:
             nisa.memset(dst=t, ...)                nisa.memset(dst=t, ...)
         if i == 0:                                 nisa.memset(dst=u, ...)
             nisa.memset(dst=u, ...)
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
    """Replace the branch at an index of a block's nodes, and the ones after it under the same condition, by one branch.
    Allocations and index values in between move before it."""
    first = nodes[at]
    assert isinstance(first, IfBranch)
    condition, parts = indices.texts.get(first.condition), [first]
    between: list[FunctionNode] = []
    end = at + 1
    for k, node in enumerate(nodes[at + 1:], at + 1):
        if isinstance(node, ScalarValue):
            indices.define(node)
        if isinstance(node, IfBranch) and condition is not None and indices.texts.get(node.condition) == condition:
            parts.append(node)
            between += nodes[end:k]
            end = k + 1
        elif not isinstance(node, BufferAllocation | ConstantBuffer | ScalarValue):
            break
    if len(parts) > 1:
        otherwise = [node for part in parts if part.otherwise is not None for node in part.otherwise.nodes]
        joined = IfBranch(first.op, first.condition, FunctionBlock([n for part in parts for n in part.then.nodes]),
                          FunctionBlock(otherwise) if otherwise else None)
        nodes[at:end] = [*between, joined]
