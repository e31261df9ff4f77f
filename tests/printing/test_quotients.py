# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quotients that print as operations of devices, with equal bits, and those that stay."""

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .reading import printed, reread

EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3e-42, 1.2e-38, 3.4e38, -7.0, 1 / 3, 2.0**-126],
                 np.float32)
X = np.concatenate([np.tile(EDGES, (8, 1)), np.random.default_rng(5).standard_normal((8, 12), np.float32)])


def quotient_of(**operators):
    @nki.jit
    def quotient(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_scalar(dst=tile, data=tile, **operators)
        nisa.dma_copy(dst=out, src=tile)
        return out
    return quotient


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("operators", "shown"), [
    ({"op0": nl.divide, "operand0": 128.0}, "op0=nl.multiply, operand0=0.0078125"),
    ({"op0": nl.divide, "operand0": -0.5}, "op0=nl.multiply, operand0=-2.0"),
    ({"op0": nl.divide, "operand0": 2.0**126}, "op0=nl.multiply, operand0=1.17549435"),
    ({"op0": nl.add, "operand0": 1.0, "op1": nl.divide, "operand1": 4.0}, "op1=nl.multiply, operand1=0.25"),
    ({"op0": nl.divide, "operand0": 1.0, "reverse0": True}, "nisa.reciprocal("),
    ({"op0": nl.divide, "operand0": 3.0}, "op0=nl.divide, operand0=3.0"),
    ({"op0": nl.divide, "operand0": 2.0**127}, "op0=nl.divide"),
    ({"op0": nl.divide, "operand0": 0.0}, "op0=nl.divide, operand0=0.0"),
    ({"op0": nl.divide, "operand0": 2.0, "reverse0": True}, "op0=nl.divide"),
    ({"op0": nl.divide, "operand0": 1.0, "reverse0": True, "op1": nl.add, "operand1": 2.0}, "op0=nl.divide"),
])
def test_quotients(operators, shown):
    kernel = quotient_of(**operators)
    text = printed(kernel, [X])
    assert shown in text and ("simulator alone" in text) == ("nl.divide" in text)
    np.testing.assert_array_equal(reread(text)(X).view(np.int32), kernel(X).view(np.int32))
    assert printed(reread(text), [X]) == text
