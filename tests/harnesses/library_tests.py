# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of a kernel library: one shell line of capture with inputs from files, saved outputs, sessions, several views."""

import json
import os
import re
import subprocess
import tempfile

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
from nki.compiler.frontend import ParserFrontend
from nki.compiler.ncc_driver import CompiledKernel, CompileOptions


@nki.jit
def kernel(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    nisa.dma_copy(dst=out, src=a)
    return out


os.chdir(tempfile.mkdtemp())
x, y = (np.random.default_rng(k).standard_normal((128, 32)).astype(np.float32) for k in range(2))
options = CompileOptions(target="trn2", lnc=1, output_path=os.path.abspath("file.neff"),
                         artifacts_dir=os.path.abspath("artifacts")).disable_backend_optimizations()
traced = ParserFrontend().compile(kernel, inputs={"x": x, "y": y}, target="trn2", lnc=1, artifacts_dir=options.artifacts_dir,
                                  dump_python_ast=False, output_names=None)
assert traced.function_name == "kernel" and [s.name for s in traced.input_specs] == ["x", "y"] and traced.module is not None
compiled = CompiledKernel.from_frontend(traced, options, frontend_time=0.1)
assert compiled.output_specs[0].shape == x.shape and compiled.compilation_time >= 0
assert os.path.exists("file.neff") and json.load(open("artifacts/info.json"))["num_tpb"] == 1
for name, array in (("x", x), ("y", y)):
    array.tofile(f"{name}.bin")
done = subprocess.run("timeout 300 neuron-profile capture --save-output --neff file.neff --write-tensors-per-exec alias "
                      "--num-exec=2 --profile-nth-exec=2 --save-nth-output=2 x x.bin y y.bin", shell=True, check=True,
                      capture_output=True, text=True)
saved = re.findall(r'saved output "(.+?)" as "(.+?)"', done.stdout)
assert len({name for name, _ in saved}) == 1, done.stdout
assert np.array_equal(np.fromfile(saved[0][1], np.float32).reshape(x.shape), x + y)
trace = "profile_exec_2.ntff"
subprocess.run(f"neuron-profile show-session -s {trace} --show-errors -j > show_session_0.json", shell=True, check=True)
session = json.load(open("show_session_0.json"))
graph = session["NeffNodes"][0]["NodeInfo"]["Graphs"][0]
assert graph["CycleCount"] > 0 and graph["ErrorCount"] == 0 and {"NC", "TotalInstructionTraceCount"} <= set(graph)
subprocess.run(f"neuron-profile view -n file.neff -s {trace} --output-format=summary-json > ntff.json", shell=True,
               check=True)
summary = next(iter(json.load(open("ntff.json")).values()))
assert summary["total_time"] > 0 and {"mbu_estimated_percent", "hardware_flops", "transpose_flops"} <= set(summary)
subprocess.run(f"neuron-profile view -n file.neff -s {trace} --output-format=json --output-file=ntff_detailed.json",
               shell=True, check=True)
detailed = json.load(open("ntff_detailed.json"))
assert all({"timestamp", "duration", "opcode"} <= set(i) for i in detailed["instruction"])
assert all({"timestamp", "duration", "semaphore_id"} <= set(d) for d in detailed["dma"])
subprocess.run(["neuron-explorer", "view", "-n", "file.neff", "-s", trace, "--output-format", "parquet", "--output-file",
                "tables", "--disable-ui", "--ignore-event-trace"], check=True)
assert {"Summary.parquet", "Instruction.parquet"} <= set(os.listdir("tables"))
subprocess.run(["neuron-explorer", "view", "-n", "file.neff", "-s", trace, "--ingest-only", "--data-path", "store",
                "--display-name", "run-1", "--force"], check=True)
assert os.path.exists("store/profiles/global/run-1@latest/Summary.parquet")
devices = json.loads(subprocess.run(["neuron-ls", "--json-output"], check=True, capture_output=True, text=True).stdout)
assert devices[0]["neuroncore_ids"] and devices[0]["logical_neuroncore_config"] in (1, 2)
print("all tests passed")
