# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Labs for agents: counted transfers, a predicted time, a model on tensors, a call that leaves its compiled kernel."""

import dataclasses
import importlib.metadata
import json
import math
import os
import subprocess
import tempfile
import warnings

import nki
import nki.isa
import nki.language as nl
import numpy as np
from nki.compiler.driver import CompileOptions, _compile_bir_to_neff
from nki.framework.compiled import StandaloneKernel, compile_kernel_to_nir
from nki.runtime import SpikeModel, SpikeTensor
from nrtpy import SpikeTensor as same_tensor
from nrtpy._nrtpy import SystemTraceSession

assert same_tensor is SpikeTensor
try:
    importlib.metadata.version("nki")
except importlib.metadata.PackageNotFoundError:
    pass
SOURCE = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
names = {"nki": nki, "nl": nl, "nisa": nki.isa}
exec(SOURCE, names)                     # there is no file of the kernel
kernel, x = names["kernel"], np.random.default_rng(0).standard_normal((128, 256)).astype(np.float32)

# the simulator, with transfers counted
moved, original = [], nki.isa.dma_copy


def counted(*arguments, **keywords):
    source = keywords["src"]
    nbytes = getattr(source, "nbytes", None)
    moved.append(nbytes if isinstance(nbytes, int) else math.prod(source.shape) * np.dtype(source.dtype).itemsize)
    return original(*arguments, **keywords)


nki.isa.dma_copy = counted
expected = x.copy()
with warnings.catch_warnings(record=True):
    warnings.simplefilter("always")
    got = nki.simulate(kernel)(x)
nki.isa.dma_copy = original
assert np.abs(got - x * 2).max() <= 2e-2 * np.sqrt(np.mean(np.square(x * 2))) and np.array_equal(expected, x)
assert sum(moved) == 2 * x.nbytes and got.dtype == x.dtype

# a prediction, and the file
work = tempfile.mkdtemp()
options = CompileOptions(target="trn2", lnc=1, emit_predicted_latency=True, enable_statistics=True, artifacts_dir=work,
                         output_path=os.path.join(work, "kernel.neff"))
nir = compile_kernel_to_nir(kernel, inputs={"x": x}, compile_opts=options, enable_cache=False)
print(f"predicted {nir.total_time_ns / 1000} us,", {k: f"{v:.2f}" for k, v in nir.estimated_utilization.items()})
assert getattr(nir, "mac_count", 0) == 0
compiled = _compile_bir_to_neff(nir, options, {"x": x})

# the device layer
standalone = kernel._to_subclass(StandaloneKernel)
assert dataclasses.is_dataclass(standalone) and standalone._compile_opts().lnc == 1
again = compile_kernel_to_nir(standalone, inputs={"x": x}, compile_opts=dataclasses.replace(options, lnc=1), enable_cache=False,
                              frontend=standalone._frontend_cls(enable_backend_opt=standalone._enable_backend_opt))
assert again.total_time_ns == nir.total_time_ns and nki.__version__.startswith("0.6.")
model = compiled._ensure_loaded(0, 1)
tensors = {n: SpikeTensor.from_numpy(v, name=n, core_id=0) for n, v in compiled.prepare_inputs({"x": x}).items()}
outputs = {n: SpikeTensor.from_numpy(np.full_like(v, np.nan), name=n, core_id=0)
           for n, v in compiled.prepare_outputs().items()}
with SystemTraceSession(core_id=0) as session:
    model(tensors, outputs=outputs)
    events = json.loads(session.fetch_events_json())["events"]
assert [e["phase"] for e in events] == ["start", "stop"]
assert np.array_equal(next(iter(outputs.values())).numpy(), x * 2)
measured = model.benchmark(tensors, outputs=outputs, warmup_iter=3, benchmark_iter=20, mode="device")
assert len(measured.durations_ms) == 20 and max(measured.durations_ms) == min(measured.durations_ms) > 0
again = SpikeModel.load_from_neff(compiled.neff_path, core_id=0)
assert not again.alias_info and list(again.input_tensors_info) == ["x"] and len(again.output_tensors_info) == 1

# a plain call with a folder for artifacts
artifacts = tempfile.mkdtemp()
os.environ.update(NKI_ARTIFACTS_DIR=artifacts, NKI_DEBUG_INFO="1")
assert np.array_equal(kernel(x), x * 2)
neff, trace = os.path.join(artifacts, "kernel.neff"), os.path.join(artifacts, "t.ntff")
subprocess.run(["neuron-explorer", "capture", "-n", neff, "-s", trace, "--profile-nth-exec=2"], check=True,
               capture_output=True)
last = sorted(f for f in os.listdir(artifacts) if f.endswith(".ntff"))[-1]
assert last == "t_exec_2.ntff"
done = subprocess.run(["neuron-explorer", "view", "-n", neff, "-s", os.path.join(artifacts, last), "--output-format",
                       "summary-json"], check=True, capture_output=True, text=True)
figures = next(iter(json.loads(done.stdout).values()))
assert figures["total_time"] > 0 and figures["hbm_read_bytes"] + figures["hbm_write_bytes"] == 2 * x.nbytes
print("all layers passed")
