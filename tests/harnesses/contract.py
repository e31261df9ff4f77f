# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A contract of verification: operators of a benchmark by case, several seeds, a median, a digest, speedups and their mean."""

import json
import math
import os
import subprocess
import sys
import tempfile
import types

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa  # noqa: F401  candidates import them
import neuronxcc.nki.typing as nt  # noqa: F401
import numpy as np
from neuronxcc.nki import trace  # noqa: F401
from neuronxcc.nki.language import par_dim  # noqa: F401

HEAD = ("import numpy as np\nimport neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n"
        "import neuronxcc.nki.isa as nisa\nimport neuronxcc.nki.typing as nt\nfrom neuronxcc.nki import trace\n"
        "from neuronxcc.nki.language import par_dim\n")
REFERENCE = """
import numpy as np
def get_inputs():
    return [np.random.normal(size=(256, 64)).astype(np.float32), np.random.normal(size=(1, 64)).astype(np.float32)]
def forward(x, gamma):
    return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + 1e-5) * gamma
def transform_to_nki_inputs(inputs):
    return [inputs[0].reshape(2, 128, 64), inputs[1]]
def transform_nki_outputs(k_res, ref):
    return [k_res.reshape(ref.shape)]
"""
KERNEL = HEAD + """
@nki.jit
def kernel(x, gamma):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scale = nl.load(gamma).broadcast_to((128, 64))
    for i in nl.STEPS(x.shape[0]):
        tile = nl.load(x[i])
        mean = nl.mean(nl.square(tile), axis=1, keepdims=True)
        nl.store(out[i], tile * nl.rsqrt(mean + 1e-5) * scale)
    return out
"""
OPTIONS = "--disable-dge --logical-nc-config=1"
DIGEST = {"MFU_pct": "mfu_estimated_percent", "PE_pct": "tensor_engine_active_time_percent",
          "Vec_pct": "vector_engine_active_time_percent", "Scl_pct": "scalar_engine_active_time_percent",
          "DMA_pct": "dma_active_time_percent", "throttle": "throttle_avg_util_limit_nc0_percent"}


def module_of(source, name="module"):
    module = types.ModuleType(name)
    path = os.path.join(tempfile.mkdtemp(), "module.py")
    with open(path, "w") as file:
        file.write(source)
    exec(compile(source, path, "exec"), vars(module))
    return module


def profiled(kernel, arrays):
    folder = tempfile.mkdtemp()
    neff, ntff = os.path.join(folder, "a.neff"), os.path.join(folder, "a.ntff")
    result = nki.baremetal(kernel, save_neff_name=neff, save_trace_name=ntff, additional_compile_opt=OPTIONS)(*arrays)
    done = subprocess.run(f"neuron-profile view --output-format summary-json -n {neff} -s {ntff}", shell=True, check=True,
                          capture_output=True, text=True)
    summaries = json.loads(done.stdout)
    assert len(summaries) == 1
    return result, next(iter(summaries.values()))


def verify(source, seeds=(0, 21, 42)):
    reference, candidate = module_of(REFERENCE), module_of(source)
    kernel = getattr(candidate, "optimized_kernel", None) or candidate.kernel
    latencies, summary = [], None
    for seed in seeds:
        np.random.seed(seed)
        inputs = reference.get_inputs()
        want = reference.forward(*inputs)
        got, summary = profiled(kernel, reference.transform_to_nki_inputs(inputs))
        got, = reference.transform_nki_outputs(got, want)
        difference = np.linalg.norm((got - want).astype(np.float64))
        if got.shape != want.shape or not difference < 2e-5 * np.linalg.norm(want.astype(np.float64)):
            return {"passed": False, "latency_ms": None, "error": f"relative L2 at seed {seed}", "summary_metrics": {}}
        latencies.append(summary["total_time"] * 1e3)
    metrics = {name: None if summary.get(field) is None else summary[field] * 100 for name, field in DIGEST.items()}
    metrics |= {"HBMrd_MB": summary["hbm_read_bytes"] / 1e6, "HBMwr_MB": summary["hbm_write_bytes"] / 1e6}
    return {"passed": True, "latency_ms": float(np.median(latencies)), "error": "", "summary_metrics": metrics}


baseline = verify(KERNEL.replace("STEPS", "sequential_range"), seeds=(0,))
baselines = {"rmsnorm[case=0]": {"baseline_latency_ms": baseline["latency_ms"], "case_id": "0", "kernel": "k", "op": "rmsnorm"}}
report = verify(KERNEL.replace("STEPS", "affine_range").replace("def kernel", "def optimized_kernel"), seeds=(21, 42))
assert report["passed"] and report["summary_metrics"]["throttle"] is None, report
assert 0 < report["summary_metrics"]["DMA_pct"] < 100 and report["summary_metrics"]["HBMwr_MB"] == 256 * 64 * 4 / 1e6
report["speedup"] = baselines["rmsnorm[case=0]"]["baseline_latency_ms"] / report["latency_ms"]
wrong = verify(KERNEL.replace("STEPS", "affine_range").replace("1e-5", "1e-1"), seeds=(0,))
assert not wrong["passed"]
try:
    profiled(module_of(KERNEL.replace("nl.STEPS", "nl.no_such_range")).kernel,
             [np.zeros((2, 128, 64), np.float32), np.zeros((1, 64), np.float32)])
except Exception as error:
    assert "no_such_range" in str(error)
else:
    sys.exit("a kernel that does not compile raised nothing")
speedups = [report["speedup"]]
print(json.dumps({"rmsnorm": report, "geomean": math.exp(sum(map(math.log, speedups)) / len(speedups))}))
print("all operators passed")
