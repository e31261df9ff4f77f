# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The training step on several devices: of one process, and of two processes of one host. The numbers are the same."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("jax")

from .conftest import ROOT

pytestmark = pytest.mark.jax

EXAMPLE = str(ROOT / "examples" / "train_transformer_parallel.py")


def start(*arguments, **variables):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | variables
    return subprocess.Popen([sys.executable, "-m", "nki_mlir", EXAMPLE, "--steps", "3", *arguments], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output(process):
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err[-3000:]
    return out


def losses(out, devices):
    """The printed losses of a run on that many devices."""
    line = next(line for line in out.splitlines() if f"{devices} devices, losses:" in line)
    return np.array([float(x) for x in line.partition("losses:")[2].split()])


@pytest.fixture(scope="module")
def on_one_device():
    return losses(output(start()), 1)


def test_devices_of_one_process(on_one_device):
    out = output(start(XLA_FLAGS="--xla_force_host_platform_device_count=2"))
    assert out.startswith("1 processes")
    np.testing.assert_allclose(losses(out, 2), on_one_device, rtol=1e-6)


def test_processes_of_one_host(on_one_device):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    both = [start("--coordinator", address, "--processes", "2", "--process", str(n), XLA_FLAGS="") for n in range(2)]
    out, other = [output(process) for process in both]
    assert "2 processes" in out and "losses" not in other
    np.testing.assert_allclose(losses(out, 2), on_one_device, rtol=1e-6)
