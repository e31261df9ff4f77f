# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Expressions whose values are used more than once: walked as trees, these would have 2^200 nodes."""

import itertools

import numpy as np

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8, INT32, INT64, UINT8, UINT32, convert
from nki_mlir.waist.expression import Alu, Constant, Convert, Input, Node, Output, below, converted, inputs_of, rebuilt


def doubled(times: int, start: Node) -> Node:
    for _ in range(times):
        start = Alu(FLOAT32, "add", (start, start))
    return start


def test_equal_expressions__are_one_object():
    assert doubled(200, Input(FLOAT32, 0)) is doubled(200, Input(FLOAT32, 0))
    assert doubled(200, Input(FLOAT32, 0)) is not doubled(200, Input(FLOAT32, 1))
    assert Constant(FLOAT32, 0.0) is not Constant(FLOAT32, -0.0)
    assert Constant(FLOAT32, float("nan")) is Constant(FLOAT32, float("nan"))
    assert Constant(FLOAT32, 1.0) is not Constant(INT32, 1)
    assert Convert(INT32, Output(FLOAT32)) is converted(Output(FLOAT32), INT32)


def test_conversions__leave_out_wider_integers():
    word = Input(UINT32, 0)
    assert converted(Convert(INT64, word), UINT32) is word
    assert converted(Convert(INT64, Convert(INT32, Input(INT8, 0))), FLOAT32) is Convert(FLOAT32, Input(INT8, 0))
    for narrow in Convert(INT32, word), Convert(FLOAT32, word), Convert(UINT32, Input(INT32, 0)):
        assert converted(narrow, INT64) is Convert(INT64, narrow)


def test_walks__meet_each_node_once():
    body = Alu(FLOAT32, "multiply", (doubled(200, Input(FLOAT32, 3)), Input(FLOAT32, 5)))
    assert len(list(below(body))) == 203
    assert inputs_of(body) == {3, 5}


def test_rebuilt__from_the_leaves_on():
    observed = []

    def change(node: Node) -> Node | None:
        observed.append(node)
        return Input(FLOAT32, 1) if isinstance(node, Input) else None
    assert rebuilt(doubled(200, Input(FLOAT32, 0)), change) is doubled(200, Input(FLOAT32, 1))
    assert observed == [Input(FLOAT32, 0), *(doubled(n, Input(FLOAT32, 1)) for n in range(1, 201))]


def test_constants__are_converted_as_arrays_are():
    for dtype, other in itertools.product((BFLOAT16, FLOAT16, FLOAT32, INT8, INT32, UINT8, UINT32), repeat=2):
        for value in (0, 1, 2.75, 100, 127, 1e9) if dtype.is_float else (0, 1, 100, 127):
            kept = np.asarray(value, dtype.numpy)
            constant = converted(Constant(dtype, kept.item() if dtype.is_float else int(kept)), other)
            assert constant.dtype is other
            assert constant.value == convert(kept, other, dtype), (dtype, other, value)
