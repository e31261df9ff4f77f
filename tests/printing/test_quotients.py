# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quotients that print as operations of devices, with equal bits, and those that stay."""

import numpy as np
import pytest

from nki_mlir.cli.source import read_module
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.printing.kernel import kernel_text

from .reading import printed, reread, reread_beta

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


GRAPH = """func.func @main(%x: tensor<200x16xf32>, %y: tensor<200x16xf32>) -> (tensor<200x16xf32>, tensor<200x16xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sums = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<200x16xf32>, tensor<f32>) -> tensor<200xf32>
  %rows = stablehlo.broadcast_in_dim %sums, dims = [0] : (tensor<200xf32>) -> tensor<200x16xf32>
  %0 = stablehlo.divide %x, %rows : tensor<200x16xf32>
  %1 = stablehlo.divide %x, %y : tensor<200x16xf32>
  return %0, %1 : tensor<200x16xf32>, tensor<200x16xf32>
}"""


def test_quotients_of_a_graph_are_products_with_reciprocals():
    text = kernel_text([read_module(GRAPH, "graph.mlir")])
    assert "divide" not in text and "simulator" not in text and text.count("nisa.reciprocal(") == 3
    x, y = (np.random.default_rng(k).random((200, 16), np.float32) + 0.5 for k in (1, 2))
    for on in ("eager", "jit", "isa"):
        for value, wanted in zip(reread(text).run((x, y), {}, on), (x / x.sum(1, keepdims=True), x / y), strict=True):
            np.testing.assert_allclose(value, wanted, rtol=4e-7)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"keep_placement": True}, {"generation": "beta"}])
def test_quotients_of_a_kernel_are_products_on_request(options):
    @nki.jit
    def quotients(x, y):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        top, below = nl.load(x), nl.load(y)
        nl.store(out, nl.divide(nl.divide(top, nl.sum(below, axis=1)), below) + nl.divide(top, 3.0))
        return out
    x, y = (np.random.default_rng(k).random((20, 16), np.float32) + 0.5 for k in (1, 2))
    assert "divide" in printed(quotients, [x, y], **options)
    text = printed(quotients, [x, y], reciprocals=True, **options)
    assert "divide" not in text and "simulator" not in text and text.count("reciprocal(") == 2
    again = (reread_beta if "generation" in options else reread)(text)
    expected = x / y.sum(1, keepdims=True) / y + x / np.float32(3.0)
    for on in ("eager", "interpreter", "jit", "isa"):
        np.testing.assert_allclose(again.on(on)(x, y), expected, rtol=1e-6)
    assert printed(again, [x, y], **options).count("reciprocal(") == 2


@pytest.mark.parametrize("divisor", [3, 8])
@pytest.mark.filterwarnings("ignore")
def test_quotients_of_integers_of_a_graph_stay(divisor):
    graph = f"""func.func @main(%x: tensor<8x4xi32>) -> tensor<8x4xi32> {{
  %c = stablehlo.constant dense<{divisor}> : tensor<8x4xi32>
  %0 = stablehlo.divide %x, %c : tensor<8x4xi32>
  return %0 : tensor<8x4xi32>
}}"""
    text = kernel_text([read_module(graph, "graph.mlir")])
    assert "# No device has nl.divide: the simulator alone runs this kernel." in text and "nl.trunc(" in text
    x = np.array([0, 1, -1, 7, -7, 8, -8, 9, -9, 16777217, -16777217, 2147483647, -2147483648, 2147483646, 2147483640,
                  -2147483641, 3, -3, 1 << 30, -(1 << 30), 5, 6, 2, 4, *range(100, 108)], np.int32).reshape(8, 4)
    for on in ("eager", "interpreter", "jit", "isa"):
        result = np.reshape(reread(text).run((x.copy(),), {}, on), x.shape)
        np.testing.assert_array_equal(result, np.trunc(x / np.float64(divisor)).astype(np.int32), on)
