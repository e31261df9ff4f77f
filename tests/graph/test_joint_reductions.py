# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions of several tensors, and of their windows, on the CPU and as instruction streams."""

from math import prod

import numpy as np
import pytest

from nki_mlir.frameworks.stablehlo import run_linked
from tests.graph.lowered_graph import results_of

# The body keeps the later of two equal elements, so that the order of the elements counts.
BODY = """{
  ^bb0(%m: tensor<f32>, %p: tensor<i32>, %n: tensor<f32>, %q: tensor<i32>):
    %c = stablehlo.compare GE, %n, %m : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %v = stablehlo.select %c, %n, %m : tensor<i1>, tensor<f32>
    %j = stablehlo.select %c, %q, %p : tensor<i1>, tensor<i32>
    stablehlo.return %v, %j : tensor<f32>, tensor<i32>
  }"""
SHAPE = (3, 7, 5)
X = np.random.default_rng(0).integers(-3, 4, SHAPE).astype(np.float32)


def last_of_the_greatest(windows: np.ndarray, positions: np.ndarray) -> list[np.ndarray]:
    """The greatest element along the last axis and the position of the last one."""
    last = windows.shape[-1] - 1 - windows[..., ::-1].argmax(-1)
    return [np.take_along_axis(a, last[..., None], -1)[..., 0] for a in (windows, positions)]


@pytest.mark.share(3)
@pytest.mark.parametrize("axes", [(1,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("extent", [0, 1, 2, 7])
def test_reductions(axes, extent):
    x = X[:, :extent].copy()
    positions = np.arange(x.size, dtype=np.int32).reshape(x.shape)
    kept = [d for d in range(3) if d not in axes]
    kind, result = "x".join(map(str, x.shape)), "".join(f"{x.shape[d]}x" for d in kept)
    text = f"""func.func @main(%x: tensor<{kind}xf32>, %i: tensor<{kind}xi32>) -> (tensor<{result}f32>, tensor<{result}i32>) {{
  %a = stablehlo.constant dense<-9.0> : tensor<f32>
  %b = stablehlo.constant dense<-1> : tensor<i32>
  %r:2 = "stablehlo.reduce"(%x, %i, %a, %b) ({BODY}) {{dimensions = array<i64: {", ".join(map(str, axes))}>}}
    : (tensor<{kind}xf32>, tensor<{kind}xi32>, tensor<f32>, tensor<i32>) -> (tensor<{result}f32>, tensor<{result}i32>)
  return %r#0, %r#1 : tensor<{result}f32>, tensor<{result}i32>
}}"""
    lines = [a.transpose(*kept, *axes).reshape([*(x.shape[d] for d in kept), prod(x.shape[d] for d in axes)])
             for a in (x, positions)]
    starts = [np.full((*lines[0].shape[:-1], 1), v, a.dtype) for a, v in zip(lines, (-9, -1))]
    expected = last_of_the_greatest(*(np.concatenate(pair, -1) for pair in zip(starts, lines)))
    for results in (run_linked(text, [x, positions]), results_of(text, [x, positions])):
        for got, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(got, wanted, strict=True)


@pytest.mark.parametrize("size, step, dilation, low, high", [(3, 2, 1, 1, 1), (2, 1, 3, 0, 2), (1, 3, 1, 0, 0), (2, 1, 1, None, None)])
def test_windows(size, step, dilation, low, high):
    padding = "" if low is None else f", padding = dense<[[0, 0], [{low}, {high}], [0, 0]]> : tensor<3x2xi64>"
    low, high = low or 0, high or 0
    positions = np.arange(X.size, dtype=np.int32).reshape(SHAPE)
    padded = [np.pad(a, ((0, 0), (low, high), (0, 0)), constant_values=v) for a, v in ((X, -9), (positions, -1))]
    count = (padded[0].shape[1] - (size - 1) * dilation - 1) // step + 1
    at = np.arange(count)[:, None] * step + np.arange(size) * dilation
    windows = [np.moveaxis(a[:, at], -1, 2) for a in padded]                # [3, count, 5, size]
    starts = [np.full((3, count, 5, 1), v, a.dtype) for a, v in zip(windows, (-9, -1))]
    expected = last_of_the_greatest(*(np.concatenate(pair, -1) for pair in zip(starts, windows)))
    text = f"""func.func @main(%x: tensor<3x7x5xf32>, %i: tensor<3x7x5xi32>) -> (tensor<3x{count}x5xf32>, tensor<3x{count}x5xi32>) {{
  %a = stablehlo.constant dense<-9.0> : tensor<f32>
  %b = stablehlo.constant dense<-1> : tensor<i32>
  %r:2 = "stablehlo.reduce_window"(%x, %i, %a, %b) ({BODY}) {{window_dimensions = array<i64: 1, {size}, 1>,
    window_strides = array<i64: 1, {step}, 1>, window_dilations = array<i64: 1, {dilation}, 1>{padding}}}
    : (tensor<3x7x5xf32>, tensor<3x7x5xi32>, tensor<f32>, tensor<i32>) -> (tensor<3x{count}x5xf32>, tensor<3x{count}x5xi32>)
  return %r#0, %r#1 : tensor<3x{count}x5xf32>, tensor<3x{count}x5xi32>
}}"""
    for results in (run_linked(text, [X, positions]), results_of(text, [X, positions])):
        for got, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(got, wanted, strict=True)
