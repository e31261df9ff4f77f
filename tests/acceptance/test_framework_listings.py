# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documents' listings for JAX and PyTorch run as they are, with the values they should have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LISTINGS = ROOT.parent / "shared" / "seeds" / "listings"

pytestmark = pytest.mark.skipif(not LISTINGS.is_dir(), reason="the listings are not beside the checkout")


def run(arguments, folder):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def check(name, assertion, folder, torch_xla=False):
    """Run a listing in a new process, then an assertion over its names."""
    file = folder / "check.py"
    file.write_text(f"""
import runpy, sys
from nki_mlir.compat import install
install(torch_xla={torch_xla})
sys.path.insert(0, {str(LISTINGS)!r})
found = runpy.run_path({str(LISTINGS / name)!r}, run_name="__main__")
globals().update(found)
import numpy as np
{assertion}
""")
    return run([str(file)], folder)


@pytest.mark.jax
def test_tensor_add_jax__shows_the_custom_call(tmp_path):
    pytest.importorskip("jax")
    out = run(["-m", "nki_mlir", str(LISTINGS / "tensor_add_jax.py")], tmp_path)
    assert 'custom_call_target="AwsNeuronCustomNativeKernel"' in out
    check("tensor_add_jax.py", "assert np.allclose(jax_customop_tutorial(a, b), a * b * (a + b), rtol=1e-6)", tmp_path)


@pytest.mark.jax
def test_tensor_add_jax_grad(tmp_path):
    pytest.importorskip("jax")
    check("tensor_add_jax_grad.py", """
assert np.allclose(c, (a + b) * a * b, rtol=1e-5, atol=1e-5)
expected = jax.grad(lambda x, y: ((x + y) * x * y).sum(), argnums=(0, 1))(a, b)
assert np.allclose(grad_a, expected[0], rtol=1e-5, atol=1e-5)
assert np.allclose(grad_b, expected[1], rtol=1e-5, atol=1e-5)
""", tmp_path)


@pytest.mark.jax
def test_average_pool2d_jax(tmp_path):
    pytest.importorskip("jax")
    out = run(["-m", "nki_mlir", str(LISTINGS / "average_pool2d_jax.py")], tmp_path)
    assert out.endswith("NKI and JAX match\n")


@pytest.mark.torch
def test_tensor_add_torch(tmp_path):
    pytest.importorskip("torch")
    run(["-m", "nki_mlir", "--torch-xla", str(LISTINGS / "tensor_add_torch.py")], tmp_path)
    check("tensor_add_torch.py", "assert torch.equal(out, a * b * (a + b))", tmp_path, torch_xla=True)


@pytest.mark.torch
def test_tensor_add_torch_grad(tmp_path):
    pytest.importorskip("torch")
    check("tensor_add_torch_grad.py", """
assert torch.allclose(a.grad, 2 * a * b + b * b, rtol=1e-5, atol=1e-5)
assert torch.allclose(b.grad, 2 * a * b + a * a, rtol=1e-5, atol=1e-5)
""", tmp_path, torch_xla=True)


@pytest.mark.torch
def test_average_pool2d_torch(tmp_path):
    pytest.importorskip("torch")
    out = run(["-m", "nki_mlir", "--torch-xla", str(LISTINGS / "average_pool2d_torch.py")], tmp_path)
    assert out.endswith("NKI and Torch match\n")


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("torch_xla", [False, True])
def test_giou__either_way_it_chooses(torch_xla, tmp_path):
    """Without torch_xla the script simulates and writes its NumPy output; with it the tensor on the device."""
    pytest.importorskip("torch")
    check("giou.py", f"""
assert simulate == (not {torch_xla})
got = t_out if {torch_xla} else torch.from_numpy(out)
assert torch.allclose(got, torch_giou(t_boxes_0, t_boxes_1), rtol=1e-4, atol=1e-5)
""", tmp_path, torch_xla=torch_xla)
