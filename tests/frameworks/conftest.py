# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The executor of kernels on framework tensors, and two devices for JAX in child processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(params=["jit", "interpreter", "eager"])
def executor(request, monkeypatch):
    """Every executor in turn."""
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", request.param)
    return request.param


@pytest.fixture
def child(tmp_path):
    """Runs Python text in a new process and returns what it printed; a failure or a hang fails the test."""
    def run(text: str, **variables: str) -> str:
        file = tmp_path / f"child{len(list(tmp_path.iterdir()))}.py"
        file.write_text(text)
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"} | variables
        done = subprocess.run([sys.executable, str(file)], env=environment, cwd=tmp_path, capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout
    return run
