# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nodes of PyTorch's graphs that read no argument have the values that PyTorch computes."""

import pytest

torch = pytest.importorskip("torch")

from nki_mlir.frameworks.torch_constants import Folds  # noqa: E402

aten = torch.ops.aten


def test_fixed_nodes__have_the_values_of_their_operators() -> None:
    """Operands, keywords and lists of nodes are the values of these, whichever node is computed first."""
    graph = torch.fx.Graph()
    a, x = graph.placeholder("a"), graph.placeholder("x")
    total = graph.call_function(aten.add.Tensor, (a, 2.0), {"alpha": 3})
    less = graph.call_function(aten.sub.Tensor, (total, a), {"alpha": 0.5})
    both = graph.call_function(aten.cat.default, ([less, total],))
    open_node = graph.call_function(aten.mul.Tensor, (x, total))
    random = graph.call_function(aten.rand_like.default, (a,))
    values = torch.tensor([1.0, -2.0, 4.0])
    expected = {a: values, total: values + 6, less: values + 6 - values / 2,
                both: torch.cat([values + 6 - values / 2, values + 6])}
    for first in expected:
        folds = Folds(graph, {"a": values})
        assert folds.fixed == {*expected} and not {x, open_node, random} & folds.fixed
        for node in (first, *expected):
            assert torch.equal(folds.value(node), expected[node])
