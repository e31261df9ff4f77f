# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches under one condition, or under opposite ones, become one; all other nodes stay, in their order."""

import pytest

from nki_mlir.printing.equal_branches import join_equal_branches
from nki_mlir.printing.index_text import IndexText, IndexValues
from nki_mlir.waist.function import BufferAllocation, FunctionBlock, FunctionNode, IfBranch

TEXTS = {"a": "i < 4", "b": "i < 4", "c": "i < 5", "opposite": "i >= 4", "first": "core == 0", "second": "core == 1"}
INDICES = IndexValues({name: IndexText(text=text) for name, text in TEXTS.items()}, program_id="core")


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


@pytest.mark.parametrize(("one", "other"), [("a", "opposite"), ("first", "second"), ("second", "first")])
def test_branches__under_opposite_conditions_become_the_sides_of_one(one, other):
    first, second, third, fourth, fifth = (FunctionNode(None) for _ in range(5))
    nodes = [branch(one, first), branch(other, second, otherwise=[third]), branch(one, fourth, otherwise=[fifth])]
    join_equal_branches(nodes, 0, INDICES)
    assert shown(nodes) == [([first, third, fourth], [second, fifth])]
