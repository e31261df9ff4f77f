# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The training examples: gradients of their kernels, and the losses of a few steps with kernels and natively."""

import importlib

import numpy as np
import pytest

from ..examples import EXAMPLES

pytestmark = pytest.mark.usefixtures("example_modules")


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
def test_rmsnorm_backward__gradients(on):
    kernels = importlib.import_module("transformer_kernels")
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((2, 256, 128)).astype(np.float32)
    gain = rng.standard_normal((1, 128)).astype(np.float32)
    expected = kernels.rmsnorm_gradients(*(a.astype(np.float64) for a in (x, gain, g)))
    for got, wanted in zip(kernels.rmsnorm_backward.run((x, gain, g), {}, on), expected):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.jax
def test_jax__same_losses_as_the_native_model():
    pytest.importorskip("jax")
    example = importlib.import_module("train_transformer_jax")
    observed = []
    losses = example.train(True, 6, observed.append)
    np.testing.assert_allclose(losses, example.train(False, 6), rtol=1e-5)
    assert observed == losses and losses[-1] < losses[0] - 0.3


@pytest.mark.torch
def test_torch__same_losses_as_the_native_model():
    torch = pytest.importorskip("torch")
    example = importlib.import_module("train_transformer_torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        losses = example.train(True, 4)
        np.testing.assert_allclose(losses, example.train(False, 4), rtol=1e-5)
        np.testing.assert_allclose(losses, example.train(True, 4, backend="aot_eager"), rtol=1e-5)
        assert losses[-1] < losses[0] - 0.15
    finally:
        torch.set_num_threads(threads)


@pytest.mark.jax
@pytest.mark.torch
def test_frameworks__train_the_same_model():
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    one, other = (importlib.import_module(f"train_transformer_{name}") for name in ("jax", "torch"))
    np.testing.assert_allclose(one.train(True, 3), other.train(True, 3), rtol=1e-5)


def test_plot__as_text_has_both_curves():
    curves = importlib.import_module("training_curves")
    text = curves.text_plot({"native": [4.0, 3.0, 2.0], "kernels": [4.0, 3.0, 1.0]}, width=9, height=4)
    assert text.splitlines()[0] == "  4.000 |***      "
    assert text.splitlines()[3] == "  1.000 |      xxx" and text.splitlines()[2].endswith("ooo")


@pytest.mark.jax
def test_command__prints_the_difference(child):
    assert "difference to the native version at most" in child(f"""
import runpy, sys
sys.argv = ["nki_mlir", {str(EXAMPLES / "train_transformer_jax.py")!r}, "--steps", "2"]
runpy.run_module("nki_mlir", run_name="__main__")
""")
