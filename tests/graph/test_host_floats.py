# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions near zero and 8-bit floats in graphs on the CPU that call the native entries of kernels."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.frameworks.stablehlo import LinkedProgram, NativeCalls, read_graph
from nki_mlir.graph.upstream import graph_context

X = np.array([-0.0, 0.0, 1e-9, -1e-9, 3e-5, -3e-5, 0.3, -0.3, 0.999, -0.999, 1, 2.5, 80, np.inf, np.nan, -1, 1e-40])


def called(text, *arguments):
    """Run a graph as calls around kernels, which the CPU compiler for kernels does not support as one program."""
    with graph_context(), ir.Location.unknown():
        calls = NativeCalls(read_graph(text))
    results = [np.empty_like(arguments[0])]
    calls(list(arguments), results)
    return results[0]


@pytest.mark.parametrize("dtype, kind, tolerance", [
    (np.float32, "f32", 4e-7), (np.float64, "f64", 1e-15), (ml_dtypes.bfloat16, "bf16", 8e-3), (np.float16, "f16", 2e-3)])
@pytest.mark.parametrize("name, function", [("exponential_minus_one", np.expm1), ("log_plus_one", np.log1p)])
@np.errstate(all="ignore")
def test_functions_near_zero(name, function, dtype, kind, tolerance):
    text = f"func.func @main(%x: tensor<17x{kind}>) -> tensor<17x{kind}> {{ %y = stablehlo.{name} %x : tensor<17x{kind}> return %y : tensor<17x{kind}> }}"
    x = X.astype(dtype)
    got, expected = called(text, x), function(x.astype(np.float64)).astype(dtype)
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=tolerance)
    assert np.array_equal(np.signbit(got)[:2], [True, False])


@pytest.mark.parametrize("name, function", [("exponential_minus_one", np.expm1), ("erf", None)])
@pytest.mark.parametrize("on", ["", "isa"])
def test_signs_of_zero(name, function, on):
    op = "chlo.erf %x : tensor<2xf32> -> tensor<2xf32>" if name == "erf" else f"stablehlo.{name} %x : tensor<2xf32>"
    text = f"func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{ %y = {op} return %y : tensor<2xf32> }}"
    got, = LinkedProgram(text, on)(X[:2].astype(np.float32))
    assert np.array_equal(got, [0, 0]) and np.array_equal(np.signbit(got), [True, False])


@pytest.mark.parametrize("dtype, kind", [(ml_dtypes.float8_e4m3fn, "f8E4M3FN"), (ml_dtypes.float8_e5m2, "f8E5M2"),
                                         (ml_dtypes.float8_e4m3, "f8E4M3")])
def test_floats_of_8_bits(dtype, kind):
    """All pairs: products, converted sums, choices and functions, rounded once each."""
    every = np.arange(256, dtype=np.uint8).view(dtype)
    a, b = np.repeat(every, 256), np.tile(every, 256)
    tensor = f"tensor<65536x{kind}>"
    text = f"""func.func @main(%a: {tensor}, %b: {tensor}) -> {tensor} {{
      %p = stablehlo.multiply %a, %b : {tensor}
      %h = stablehlo.convert %b : ({tensor}) -> tensor<65536xf16>
      %n = stablehlo.convert %h : (tensor<65536xf16>) -> {tensor}
      %s = stablehlo.add %p, %n : {tensor}
      %c = stablehlo.compare GT, %a, %b : ({tensor}, {tensor}) -> tensor<65536xi1>
      %t = stablehlo.tanh %s : {tensor}
      %r = stablehlo.select %c, %t, %p : tensor<65536xi1>, {tensor}
      return %r : {tensor} }}"""
    with np.errstate(all="ignore"):
        products = a * b
        expected = np.where(a > b, np.tanh((products + b).astype(np.float32)).astype(dtype), products)
    got = called(text, a, b)
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))
