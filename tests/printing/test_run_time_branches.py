# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches and loops of a graph that loaded numbers decide: the text has loops that registers end."""

import numpy as np
import pytest

from nki_mlir.cli.source import read_module
from nki_mlir.printing.kernel import kernel_text

from .reading import reread

EXECUTORS = ("eager", "interpreter", "jit", "isa")
X = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
TENSOR = "tensor<6x5xf32>"

IF = f"""func.func public @main(%n: tensor<i32>, %x: {TENSOR}) -> {TENSOR} {{
  %limit = stablehlo.constant dense<-7> : tensor<i32>
  %p = stablehlo.compare GE, %n, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %r = "stablehlo.if"(%p) ({{
    %0 = stablehlo.add %x, %x : {TENSOR}
    stablehlo.return %0 : {TENSOR}
  }}, {{
    %0 = stablehlo.negate %x : {TENSOR}
    stablehlo.return %0 : {TENSOR}
  }}) : (tensor<i1>) -> {TENSOR}
  return %r : {TENSOR}
}}"""

CASE = f"""func.func public @main(%n: tensor<i32>, %x: {TENSOR}) -> {TENSOR} {{
  %r = "stablehlo.case"(%n) ({{
    stablehlo.return %x : {TENSOR}
  }}, {{
    %0 = stablehlo.add %x, %x : {TENSOR}
    stablehlo.return %0 : {TENSOR}
  }}, {{
    %0 = stablehlo.negate %x : {TENSOR}
    stablehlo.return %0 : {TENSOR}
  }}) : (tensor<i32>) -> {TENSOR}
  return %r : {TENSOR}
}}"""

# While the sum of all elements is below a bound, multiply by 2 and add 1; where the sum is negative, add 40 in addition.
WHILE = f"""func.func public @main(%bound: tensor<f32>, %x: {TENSOR}) -> {TENSOR} {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %two = stablehlo.constant dense<2.0> : {TENSOR}
  %one = stablehlo.constant dense<1.0> : {TENSOR}
  %many = stablehlo.constant dense<40.0> : {TENSOR}
  %r = stablehlo.while(%y = %x) : {TENSOR} cond {{
    %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : ({TENSOR}, tensor<f32>) -> tensor<f32>
    %p = stablehlo.compare LT, %s, %bound, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : ({TENSOR}, tensor<f32>) -> tensor<f32>
    %p = stablehlo.compare LT, %s, %zero, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %0 = stablehlo.multiply %y, %two : {TENSOR}
    %1 = stablehlo.add %0, %one : {TENSOR}
    %2 = "stablehlo.if"(%p) ({{
      %3 = stablehlo.add %1, %many : {TENSOR}
      stablehlo.return %3 : {TENSOR}
    }}, {{
      stablehlo.return %1 : {TENSOR}
    }}) : (tensor<i1>) -> {TENSOR}
    stablehlo.return %2 : {TENSOR}
  }}
  return %r : {TENSOR}
}}"""


def text_of(graph):
    return kernel_text([read_module(graph, "graph.mlir")], comments=False)


def check(graph, meaning, numbers, dtype, rtol=0.0):
    text = text_of(graph)
    kernel = reread(text)
    for number in numbers:
        expected = meaning(dtype(number), X)
        for on in EXECUTORS:
            result = kernel.run((np.array(number, dtype), X), {}, on)
            np.testing.assert_allclose(np.reshape(result, X.shape), expected, rtol=rtol, err_msg=f"{on} {number}")
    return text


def test_two_branches():
    text = check(IF, lambda n, x: x + x if n >= -7 else -x, (0, -7, -8, 5, -(1 << 31), (1 << 31) - 1), np.int32)
    assert text.count("nl.while_loop(") == 2 and text.count("nisa.register_move(") == 2


def test_several_branches():
    """A number outside takes the last branch."""
    check(CASE, lambda n, x: (x, x + x, -x)[n if 0 <= n < 3 else 2], (0, 1, 2, 3, -1, 1 << 30), np.int32)


def doubled(bound, x):
    y = x.copy()
    while y.sum(dtype=np.float32) < bound:
        y = 2 * y + 1 + (40 if y.sum(dtype=np.float32) < 0 else 0)
    return y


@pytest.mark.parametrize("sign", [1, -1])
def test_a_loop_whose_condition_instructions_compute(sign, monkeypatch):
    monkeypatch.setitem(globals(), "X", sign * abs(X))
    text = check(WHILE, doubled, (-1e9, 0, 100, 1e4), np.float32, rtol=1e-5)
    assert text.count("nl.while_loop(") >= 2


def test_a_carried_number__ends_a_loop():
    """The loop of a counter and a limit, which are both loaded."""
    graph = f"""func.func public @main(%n: tensor<i32>, %x: {TENSOR}) -> {TENSOR} {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, {TENSOR} cond {{
    %p = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %j = stablehlo.add %i, %one : tensor<i32>
    %0 = stablehlo.add %y, %x : {TENSOR}
    stablehlo.return %j, %0 : tensor<i32>, {TENSOR}
  }}
  return %r#1 : {TENSOR}
}}"""
    check(graph, lambda n, x: x * max(1, n + 1), (0, 1, 3, -5), np.int32, rtol=1e-6)


def test_a_condition_of_two_loaded_numbers():
    """A comparison of two numbers is a truth value that an instruction computes."""
    graph = IF.replace("%n: tensor<i32>, ", "%n: tensor<i32>, %limit: tensor<i32>, ").replace(
        "  %limit = stablehlo.constant dense<-7> : tensor<i32>\n", "")
    kernel = reread(text_of(graph))
    for n, limit in ((3, 4), (4, 4), (5, 4), (-(1 << 31), (1 << 31) - 1), ((1 << 31) - 1, (1 << 31) - 2)):
        for on in EXECUTORS:
            result = kernel.run((np.array(n, np.int32), np.array(limit, np.int32), X), {}, on)
            np.testing.assert_array_equal(np.reshape(result, X.shape), X + X if n >= limit else -X, f"{on} {n} {limit}")
