# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches under one condition become one; all other nodes stay, in their order."""

from types import SimpleNamespace

import pytest

from nki_mlir.printing.equal_branches import join_equal_branches
from nki_mlir.waist.function import BufferAllocation, FunctionBlock, FunctionNode, IfBranch

INDICES = SimpleNamespace(texts={"a": "i < 4", "b": "i < 4", "c": "i < 5"})


def branch(condition, *then, otherwise=None):
    return IfBranch(None, condition, FunctionBlock([*then]), None if otherwise is None else FunctionBlock([*otherwise]))


def shown(nodes):
    return [(node.then.nodes, node.otherwise and node.otherwise.nodes) if isinstance(node, IfBranch) else node
            for node in nodes]


@pytest.mark.parametrize("allocations", [0, 2])
def test_branches__that_follow_each_other_are_joined(allocations):
    one, two, three, four, before, after, last = (FunctionNode(None) for _ in range(7))
    between = [BufferAllocation(None, None) for _ in range(allocations)]
    nodes = [before, branch("a", one, otherwise=[four]), *between, branch("b", two), branch("a", three), after, last]
    join_equal_branches(nodes, 1, INDICES)
    assert shown(nodes) == [before, *between, ([one, two, three], [four]), after, last]


@pytest.mark.parametrize("condition", ["c", "unknown"])
def test_branches__under_other_conditions_or_behind_other_nodes_stay(condition):
    nodes = [branch("a", FunctionNode(None)), branch(condition), FunctionNode(None), branch("b")]
    before = [*nodes]
    for at in (0, 1, 3):
        join_equal_branches(nodes, at, INDICES)
        assert nodes == before
