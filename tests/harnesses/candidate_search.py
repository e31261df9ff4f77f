# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A search over candidates of both generations: files of compiled kernels, traces of the tenth and twentieth execution."""

import json
import os
import shutil
import subprocess
import tempfile

import neuronxcc.nki as beta
import neuronxcc.nki.language as beta_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
from nki.framework.compiled import CompileKernel


@beta.jit
def first(x):
    out = beta_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta_nl.shared_hbm)
    beta_nl.store(out, beta_nl.load(x) * 2.0)
    return out


@nki.jit
def second(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


folder = tempfile.mkdtemp()
x = np.random.rand(128, 64).astype(np.float32)
neff = os.path.join(folder, "candidate.neff")
raw = getattr(first, "func", first)
measured = beta.baremetal(raw, save_neff_name=neff)
assert np.allclose(measured(x), x * 2) and os.path.exists(neff)

artifacts = tempfile.mkdtemp()
compiled = CompileKernel(func=getattr(second, "func", second), artifacts_dir=artifacts, _enable_simulation=True)
assert np.allclose(compiled(x), x * 2)
other = os.path.join(folder, "other.neff")
shutil.copy(os.path.join(artifacts, "kernel.neff"), other)


def latency(file, stem):
    trace = os.path.join(folder, f"{stem}.ntff")
    subprocess.run(["neuron-profile", "capture", "-n", file, "-s", trace, "--num-exec", "20", "--profile-nth-exec", "10"],
                   check=True, timeout=120, capture_output=True)
    traces = [os.path.join(folder, f"{stem}_exec_{n}.ntff") for n in (20, 10)]
    chosen = next(t for t in traces if os.path.exists(t))
    done = subprocess.run(["neuron-profile", "view", "-n", file, "-s", chosen, "--output-format=summary-json"],
                          capture_output=True, text=True, timeout=30, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return round(next(iter(json.loads(line).values()))["total_time"] * 1000, 3)


bench = beta.benchmark(warmup=2, iters=10)(first)
bench(x)
p99 = bench.benchmark_result.nc_latency.get_latency_percentile(99)
assert latency(neff, "a") > 0 and latency(other, "b") > 0 and p99 > 0
print("Test passed")
print(f"Latency: {p99 / 1000:.3f} ms")
