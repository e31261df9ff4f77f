# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers of constants in a body, on which the repairs of extrema depend."""

import math

import pytest

from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.extrema import _number
from nki_mlir.waist.nest import Nest, Operand, Step

ROW = Operand(FLOAT32, (8, 1))
TEXTS = ("0.0", "-0.0", "nan", "-inf", "2.5")
NEST = Nest((3, 8), frozenset(), (ROW,), 0, (ROW,), (
    *(Step("constant", FLOAT32, (), "", text) for text in TEXTS), Step("alu", FLOAT32, (0, 2), "add")), (7,))


@pytest.mark.parametrize("text", TEXTS)
def test_number_of_a_constant(text: str) -> None:
    value, number = NEST.first_step + TEXTS.index(text), float(text)
    result = _number(NEST, value)
    if math.isnan(number):
        assert result is None
    else:
        assert result == number and math.copysign(1, result) == math.copysign(1, number)


def test_inputs_outputs_and_sums__have_no_number() -> None:
    assert NEST.first_step == 2
    assert _number(NEST, 0) is None and _number(NEST, 1) is None and _number(NEST, NEST.first_step + len(TEXTS)) is None
