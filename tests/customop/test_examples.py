# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples of custom operators run, and say what they should."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.customop import cost

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples" / "custom_operators"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def run(name):
    done = subprocess.run([sys.executable, "-m", "nki_mlir", str(EXAMPLES / name)], cwd=ROOT, capture_output=True,
                          text=True, env=os.environ | {"PYTHONWARNINGS": "error::UserWarning"}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_relu():
    lines = run("relu_operator.py").split("\n")
    assert [line.partition(":")[0] for line in lines[:3]] == [
        "relu by elements, 1 core", "relu by blocks, 1 core", "relu by blocks, 8 cores"]


@pytest.mark.torch
def test_giou():
    pytest.importorskip("torch")
    assert "equal to the NKI kernel's" in run("giou_operator.py")


@pytest.mark.torch
def test_mlp__learns():
    pytest.importorskip("torch")
    assert run("mlp.py").startswith("loss 0.7")


@pytest.mark.torch
@pytest.mark.parametrize("compiled", [False, True])
def test_mlp__has_the_gradients_of_pytorchs_relu(compiled, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from nki_mlir.compat import install
    install()
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import mlp
    mlp.load(tmp_path)
    losses = [mlp.train(5, compiled)]
    monkeypatch.setattr(mlp.Relu, "apply", torch.relu)
    torch.compiler.reset()
    losses.append(mlp.train(5))
    assert np.allclose(losses[0], losses[1], rtol=1e-6)


# -- cost --------------------------------------------------------------------------------------------------------------
def test_cost__of_the_published_measurements(build):
    """0.061 ms for 1024 x 256 pairs of boxes; element accessors 127 times as slow as transfers."""
    from nki_mlir import customop
    folder = build("spread").path.parent
    boxes = np.random.default_rng(0).uniform(size=(1024, 256, 4)).astype(np.float32)
    giou = customop.load("giou", [EXAMPLES / "giou.cpp"], [EXAMPLES / "giou_shape.cpp"], folder, multicore=True)
    assert round(giou.giou.microseconds(boxes, boxes)) == 61
    relu = customop.load("relu", [EXAMPLES / "relu.cpp"], [EXAMPLES / "relu_shape.cpp"], folder)
    x = np.ones((512, 1024), np.float32)
    assert round(relu.relu_elements.microseconds(x) / relu.relu_forward.microseconds(x)) == 127
    assert cost.cycles(relu.relu_elements.counters(x)) == 2 * x.size * cost.ELEMENT


def test_counters__of_streams(build):
    counted, = build("api").streamed.counters(np.ones(2000, np.float32))
    assert (counted.refills, counted.stream_elements) == (6 * 2, 6 * 2000)
    assert cost.core_cycles(counted) == 12 * (cost.TRANSFER + 4096 / cost.BYTES) + 12_000 * cost.STREAMED
