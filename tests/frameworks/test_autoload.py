# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""JAX and PyTorch find the project where the environment asks for it, and not otherwise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LOADED = "print(sorted(m for m in ('torch_mlir', 'nki_mlir.frameworks.jax', 'nki_mlir.frameworks.torch') if m in sys.modules))"


@pytest.fixture
def metadata(tmp_path):
    """The project's entry points as an installation has them, before all others."""
    text = (ROOT / "pyproject.toml").read_text()
    groups = re.findall(r'^\[project\.entry-points\."?([\w.]+)"?\]\n((?:.+\n)+)', text, re.MULTILINE)
    assert [name for name, _ in groups] == ["jax_plugins", "torch.backends"]
    info = tmp_path / "site" / "nki_mlir-9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nki_mlir\nVersion: 9\n")
    (info / "entry_points.txt").write_text("".join(f"[{name}]\n{entries.replace(chr(34), '')}\n" for name, entries in groups))
    return info.parent


def run(site: Path, text: str, autoload: str, status: int = 0) -> str:
    file = site.parent / "script.py"
    file.write_text(text)
    done = subprocess.run([sys.executable, file], cwd=site.parent, capture_output=True, text=True, env={
        **os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "NKI_MLIR_AUTOLOAD": autoload, "JAX_PLATFORMS": "cpu"})
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status else done.stdout + done.stderr


@pytest.mark.torch
def test_torch__loads_it_where_it_is_asked_for(metadata):
    pytest.importorskip("torch")
    assert run(metadata, f"import sys, torch\n{LOADED}", "") == "[]\n"
    output = run(metadata, "import torch\nprint(torch.ops.nki.call.default, torch.ones(2).to('neuron').device)", "torch,neuron")
    assert output == "nki.call.default neuron:0\n"
    warned = run(metadata, "import torch", "tensorflow")
    assert "UserWarning: NKI_MLIR_AUTOLOAD has tensorflow; it takes jax, torch, neuron" in warned
    assert "Traceback" not in warned


@pytest.mark.torch
def test_torch__runs_an_exported_program_without_an_import(metadata):
    pytest.importorskip("torch")
    program = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import torch
from frameworks import kernels
class Scaled(torch.nn.Module):
    def forward(self, x):
        return kernels.scaled(x, 2.0) + 1
torch.export.save(torch.export.export(Scaled(), (torch.ones(4, 8),)), "scaled.pt2")
"""
    run(metadata, program, "")
    used = "import torch\nprint(torch.export.load('scaled.pt2').module()(torch.ones(4, 8)).unique().tolist())"
    assert run(metadata, used, "torch") == "[3.0]\n"
    assert "nki" in run(metadata, used, "", 1)


@pytest.mark.jax
def test_jax__runs_an_exported_program_without_an_import(metadata):
    pytest.importorskip("jax")
    program = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import jax, jax.export, jax.numpy as jnp
from frameworks import kernels
from nki_mlir.frameworks.jax import export_checks
exported = jax.export.export(jax.jit(lambda x: kernels.scaled(x, 2.0) + 1), disabled_checks=export_checks())
open("scaled.bin", "wb").write(exported(jnp.ones((4, 8))).serialize())
"""
    run(metadata, program, "")
    used = """
import sys, jax, jax.export, jax.numpy as jnp
program = jax.export.deserialize(open("scaled.bin", "rb").read())
x = jnp.ones((4, 8))
""" + LOADED + "\nprint(set(program.call(x).ravel().tolist()))"
    assert run(metadata, used, "jax") == "['nki_mlir.frameworks.jax', 'torch_mlir']\n{3.0}\n"
    assert "AwsNeuronCustomNativeKernel" in run(metadata, used, "", 1)
