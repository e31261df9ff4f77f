# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons of integers with known spans, against all pairs of values in them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.graph.numbers import COMPARISONS, Number, _Counting, constant

SPANS = st.tuples(st.integers(-3, 3), st.integers(0, 4)).map(lambda span: (span[0], span[0] + span[1]))


@pytest.mark.parametrize("predicate", range(len(COMPARISONS)))
@given(spans=st.tuples(SPANS, SPANS))
def test_a_comparison_is_a_constant_where_all_values_compare_alike(predicate, spans):
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @f(%a: index, %b: index) { return }")
        block = module.body.operations[0].regions[0].blocks[0]
        numbers = [constant(low) if low == high else Number(value, (low, high))
                   for (low, high), value in zip(spans, block.arguments)]
        with ir.InsertionPoint.at_block_begin(block):
            result = _Counting().compared(predicate, *numbers)
        outcomes = {COMPARISONS[predicate](a, b) for a, b in itertools.product(
            *(range(low, high + 1) for low, high in spans))}
        if result.value is None:
            assert outcomes == {bool(result.span[0])}
        else:
            assert result.span == (0, 1)
            assert [op.name for op in block.operations][-3:] == ["arith.cmpi", "arith.index_castui", "func.return"]
        if len(outcomes) == 1 and predicate > 1:
            assert result.value is None
