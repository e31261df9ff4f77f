# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs as text: equal tiles are one tensor, and what computes each of them is a loop."""

import numpy as np
import pytest

from nki_mlir.cli.source import read_module
from nki_mlir.printing.kernel import kernel_text

from .reading import reread

PRODUCTS = """module {
  func.func public @main(%x: tensor<256x64xf32>, %up: tensor<64x512xf32>, %down: tensor<512x64xf32>)
      -> tensor<256x64xf32> {
    %0 = stablehlo.dot_general %x, %up, contracting_dims = [1] x [0] : (tensor<256x64xf32>, tensor<64x512xf32>)
        -> tensor<256x512xf32>
    %1 = stablehlo.dot_general %0, %down, contracting_dims = [1] x [0] : (tensor<256x512xf32>, tensor<512x64xf32>)
        -> tensor<256x64xf32>
    %2 = stablehlo.add %x, %1 : tensor<256x64xf32>
    return %2 : tensor<256x64xf32>
  }
}"""
RESIDUAL = """module {
  func.func public @main(%x: tensor<512x64xf32>) -> tensor<512x64xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<512x64xf32>, tensor<f32>) -> tensor<512xf32>
    %scale = stablehlo.constant dense<64.0> : tensor<512xf32>
    %1 = stablehlo.divide %0, %scale : tensor<512xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<512xf32>) -> tensor<512x64xf32>
    %3 = stablehlo.subtract %x, %2 : tensor<512x64xf32>
    return %3 : tensor<512x64xf32>
  }
}"""
MEAN = """module {
  func.func public @main(%x: tensor<64x32xf32>) -> tensor<f32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<64x32xf32>, tensor<f32>) -> tensor<f32>
    %1 = stablehlo.negate %0 : tensor<f32>
    return %1 : tensor<f32>
  }
}"""


GATED = """module {
  func.func public @main(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<64x32xf32>
    %third = stablehlo.constant dense<3.0> : tensor<64x32xf32>
    %0 = stablehlo.negate %x : tensor<64x32xf32>
    %1 = stablehlo.exponential %0 : tensor<64x32xf32>
    %2 = stablehlo.add %1, %one : tensor<64x32xf32>
    %3 = stablehlo.divide %one, %2 : tensor<64x32xf32>
    %4 = stablehlo.multiply %x, %3 : tensor<64x32xf32>
    %5 = stablehlo.divide %4, %third : tensor<64x32xf32>
    return %5 : tensor<64x32xf32>
  }
}"""


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def products(x, up, down):
    return x + x @ up @ down


def less_mean(x):
    return x - x.sum(1, keepdims=True) / 64


def negative_sum(x):
    return -x.sum().reshape(1)


def gated(x):
    return x / (1 + np.exp(-x)) / 3


@pytest.mark.parametrize(("graph", "function", "arrays"), [
    (PRODUCTS, products, (drawn(256, 64), drawn(64, 512), drawn(512, 64))), (RESIDUAL, less_mean, (drawn(512, 64),)),
    (MEAN, negative_sum, (drawn(64, 32),)), (GATED, gated, (drawn(64, 32),))],
    ids=["products", "residual", "mean", "gated"])
def test_values_and_second_round(graph, function, arrays):
    text = kernel_text([read_module(graph, "graph.mlir")], comments=False)
    kernel, wanted = reread(text, ()), function(*arrays)
    for on in ("eager", "jit", "isa"):
        np.testing.assert_allclose(kernel.run(arrays, {}, on), wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    again = kernel_text(kernel.lower(*arrays).specialization.modules, comments=False)
    assert again == kernel_text(reread(again, ()).lower(*arrays).specialization.modules, comments=False)


def test_tiles_that_stay_on_chip_are_one_tensor():
    text = kernel_text([read_module(PRODUCTS, "graph.mlir")], comments=False)
    assert """    arg2_tiles = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(2):
        nisa.dma_copy(dst=arg2_tiles[:, i, :], src=arg2[nl.ds(i * 256, 256), :])
""" in text
    assert text.count("nisa.nc_matmul(") == 2 and "arg2_tiles[:, j, nl.ds(k * 64, 64)]" in text


def test_input_of_a_residual_addition_is_loaded_once():
    text = kernel_text([read_module(RESIDUAL, "graph.mlir")], comments=False)
    assert text.count("for i in range(4):") >= 1 and text.count("nisa.tensor_reduce(") == 1
    assert "nl.divide" not in text and "operand0=0.015625" in text          # 1 / 64 is exact


def test_devices_have_all_instructions_of_a_graph():
    text = kernel_text([read_module(GATED, "graph.mlir")], comments=False)
    assert "divide" not in text and "simulator" not in text and text.count("nisa.reciprocal(") == 1


@pytest.mark.parametrize("count", [1, 5, 31])
@pytest.mark.parametrize("after", ["", "and", "add"])
def test_arithmetic_shifts_are_logical_ones_and_the_sign(count, after):
    """Alone, and with a second function of the same instruction."""
    then = f"%2 = stablehlo.{after} %1, %k : tensor<64x32xi32>" if after else ""
    graph = f"""module {{
  func.func public @main(%x: tensor<64x32xi32>) -> tensor<64x32xi32> {{
    %n = stablehlo.constant dense<{count}> : tensor<64x32xi32>
    %k = stablehlo.constant dense<7> : tensor<64x32xi32>
    %1 = stablehlo.shift_right_arithmetic %x, %n : tensor<64x32xi32>
    {then}
    return %{2 if after else 1} : tensor<64x32xi32>
  }}
}}"""
    x = np.random.default_rng(count).integers(-1 << 31, 1 << 31, (64, 32)).astype(np.int32)
    x[0, :5] = -1 << 31, (1 << 31) - 1, -1, 0, 1
    text = kernel_text([read_module(graph, "graph.mlir")], comments=False)
    wanted = {"": lambda y: y, "and": lambda y: y & 7, "add": lambda y: y + 7}[after](x >> count)
    for on in ("eager", "isa"):
        np.testing.assert_array_equal(reread(text).run((x,), {}, on), wanted)


def test_result_that_is_a_scalar_has_one_element():
    text = kernel_text([read_module(MEAN, "graph.mlir")], comments=False)
    assert "result0 = nl.ndarray((1,), dtype=nl.float32, buffer=nl.shared_hbm)" in text and "nl.negative" not in text
