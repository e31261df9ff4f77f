# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on what a fold of rows leaves, one element a row, stay on chip as columns."""

import numpy as np
import pytest

from nki_mlir.frameworks import stablehlo
from nki_mlir.targets import neuron

CENTERED = """func.func @main(%x: tensor<NxMxf32>, %g: tensor<Nxf32>) -> tensor<NxMxf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sums = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<NxMxf32>, tensor<f32>) -> tensor<Nxf32>
  %count = stablehlo.constant dense<0.25> : tensor<Nxf32>
  %means = stablehlo.multiply %sums, %count : tensor<Nxf32>
  %rows = stablehlo.broadcast_in_dim %means, dims = [0] : (tensor<Nxf32>) -> tensor<NxMxf32>
  %0 = stablehlo.subtract %x, %rows : tensor<NxMxf32>
  %squares = stablehlo.multiply %0, %0 : tensor<NxMxf32>
  %lengths = stablehlo.reduce(%squares init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<NxMxf32>, tensor<f32>) -> tensor<Nxf32>
  %scaled = stablehlo.multiply %lengths, %g : tensor<Nxf32>
  %more = stablehlo.broadcast_in_dim %scaled, dims = [0] : (tensor<Nxf32>) -> tensor<NxMxf32>
  %again = stablehlo.broadcast_in_dim %means, dims = [0] : (tensor<Nxf32>) -> tensor<NxMxf32>
  %apart = stablehlo.subtract %x, %again : tensor<NxMxf32>
  %1 = stablehlo.add %apart, %more : tensor<NxMxf32>
  return %1 : tensor<NxMxf32>
}"""
SIZES = [(128, 8), (129, 8), (200, 512), (256, 300), (640, 16)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_columns_stay_on_chip(size):
    n, m = size
    text = CENTERED.replace("NxM", f"{n}x{m}").replace("tensor<Nx", f"tensor<{n}x")
    rng = np.random.default_rng(n)
    x, g = (rng.integers(-4, 5, shape).astype(np.float32) for shape in (size, (n,)))
    centered = x - x.sum(1, keepdims=True) / 4
    wanted = centered + (centered**2).sum(1, keepdims=True) * g[:, None]
    for on in ("jit", "isa"):
        (value,) = stablehlo.LinkedProgram(text, on)(x, g)
        np.testing.assert_allclose(value, wanted, rtol=1e-5)
    (program,) = stablehlo.linked_streams(text, neuron.emission(), "graph.mlir")
    assert {variable.kind for variable in program.variables} <= {"input", "output", "constant"}
