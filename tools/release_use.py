# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Use an installed nki_mlir as its users do: commands, kernels of both generations, operators, frameworks.

`release_check.py` runs this file in a new environment, from an empty directory.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

KERNEL = '''
import nki_mlir.compat
nki_mlir.compat.install()
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out
'''
CURRENT = '''
import nki_mlir.compat
nki_mlir.compat.install()
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def triple(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
    nisa.dma_copy(dst=out, src=tile)
    return out
'''
OPERATOR = '''
#include <torch/torch.h>
torch::Tensor twice(const torch::Tensor& x) {
  torch::Tensor y = torch::zeros(x.sizes(), torch::kFloat);
  auto from = x.accessor<float, 1>();
  auto to = y.accessor<float, 1>();
  for (int i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
  return y;
}
'''
SHAPE = '''
#include <torch/torch.h>
#include "torchneuron/register.h"
torch::Tensor twice_shape(torch::Tensor x) { return torch::zeros(x.sizes(), torch::kFloat); }
NEURON_LIBRARY(own, m) { m.def("twice", &twice_shape, "twice"); }
'''
X = np.arange(128 * 32, dtype=np.float32).reshape(128, 32)


def command(*words: str) -> str:
    process = subprocess.run(words, capture_output=True, text=True)
    assert process.returncode == 0, f"{words}: {process.stderr}"
    return process.stdout


def use_kernels() -> None:
    Path("kernel.py").write_text(KERNEL)
    Path("current.py").write_text(CURRENT)
    sys.path.insert(0, ".")
    import current
    import kernel
    for executor in ("eager", "interpreter", "jit", "isa"):
        assert np.array_equal(kernel.double.on(executor)(X), 2 * X), executor
        assert np.array_equal(current.triple.on(executor)(X), 3 * X), executor


def use_commands() -> None:
    from nki_mlir import __version__
    for name in ("nki-opt", "nki-run", "nki-translate", "nki-lsp", "nki-env", "nki-migrate", "nki-calibrate",
                 "nki-score", "nki-tune", "nki-grade"):
        assert __version__ in command(name, "--version")
        assert "usage" in command(name, "--help")
    streams = command("nki-opt", "--lower-to-isa", "kernel.py:double", "--arg", "128x32xf32")
    assert ".target trn2" in streams
    Path("streams.asm").write_text(streams)
    assert "[" in command("nki-run", "streams.asm", "--on=isa", "--arg", "128x32xf32=ones")
    assert "total_ns" in command("nki-run", "kernel.py:double", "--arg", "128x32xf32", "--time", "--json")
    nki = command("nki-translate", "--import-python", "kernel.py:double", "--arg", "128x32xf32")
    Path("kernel.mlir").write_text(nki)
    assert "linalg.generic" in command("nki-opt", "--lower-to-linalg", "kernel.mlir")


def use_operator() -> None:
    from nki_mlir import customop
    Path("twice.cpp").write_text(OPERATOR)
    Path("shape.cpp").write_text(SHAPE)
    library = customop.load("own", ["twice.cpp"], ["shape.cpp"], ".")
    assert np.array_equal(library.twice(X[0]), 2 * X[0])


def use_frameworks() -> None:
    import jax
    import kernel
    import torch
    assert np.array_equal(jax.jit(lambda x: kernel.double(x) + 1)(X), 2 * X + 1)
    assert torch.equal(kernel.double(torch.from_numpy(X)), torch.from_numpy(2 * X))


if __name__ == "__main__":
    import nki_mlir
    assert Path(nki_mlir.__file__).is_relative_to(sys.prefix), nki_mlir.__file__
    used = ["kernels", "commands"]
    use_kernels()
    use_commands()
    if shutil.which("g++"):
        use_operator()
        used.append("a C++ operator")
    if "--frameworks" in sys.argv:
        use_frameworks()
        used.append("JAX and PyTorch")
    print(f"Python {sys.version.split()[0]}: {', '.join(used)}")
