# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chains of graph operations and kernels as one program: what passes between them stays on chip."""

import numpy as np
import pytest

from nki_mlir.frameworks.stablehlo import linked_streams
from nki_mlir.targets.neuron.codegen.emission import Emission
from nki_mlir.targets.neuron.simulator import simulate

from . import kernels

jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.jax


def streams(program, *arrays, options=None):
    lowered = jax.jit(program).trace(*arrays).lower(lowering_platforms=("neuron",))
    return linked_streams(lowered.as_text(), options or Emission())[0]


@pytest.mark.parametrize("chain, tensors", [
    (lambda x, w: kernels.scaled(jnp.tanh(x @ w), 2.0) + 1.0, 0),
    (lambda x, w: kernels.scaled(kernels.scaled(x, 2.0) @ w, 0.5), 1),
    (lambda x, w: kernels.scaled(kernels.scaled(x, 2.0) + 1.0, 0.5) * x[:, :1], 0),
], ids=["between operations", "a product, which loads its factor transposed", "two kernels"])
def test_values_stay_on_chip(chain, tensors):
    """``tensors``: how many pass through HBM."""
    r = np.random.default_rng(0)
    x, w = (r.standard_normal(shape, np.float32) for shape in ((96, 64), (64, 64)))
    program = streams(chain, x, w)
    expected = np.asarray(chain(x, w))
    assert len(program.of_kind("internal")) <= tensors
    for code in program, streams(chain, x, w, options=Emission(loads=False)):
        result = np.zeros_like(expected)
        simulate(code, [array for array, _ in zip((x, w), code.of_kind("input"))], [result])
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
