# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Readers of traces: the store of tables, instructions by source line, text of sessions, framework captures by directory."""

import json
import os
import re
import subprocess
import tempfile
import time

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pyarrow.parquet as pq

os.chdir(tempfile.mkdtemp())
os.environ.update(NEURON_RT_INSPECT_ENABLE="1", NEURON_RT_INSPECT_DEVICE_PROFILE="1", NEURON_RT_INSPECT_OUTPUT_DIR="./inspect",
                  NEURON_RT_ENABLE_DGE_NOTIFICATIONS="1", NEURON_FRAMEWORK_DEBUG="1", XLA_IR_DEBUG="1", XLA_HLO_DEBUG="1")


@nki.jit
def product(a_t, b):
    (k, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray((k, m), dtype=a_t.dtype, buffer=nl.sbuf)
    right = nl.ndarray((k, n), dtype=b.dtype, buffer=nl.sbuf)
    sums = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=left, src=a_t)
    nisa.dma_copy(dst=right, src=b)
    nisa.nc_matmul(dst=sums, stationary=left, moving=right)
    result = nl.ndarray((m, n), dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=sums)
    nisa.dma_copy(dst=out, src=result)
    return out


def tool(*words, name="neuron-explorer"):
    return subprocess.run([name, *words], check=True, capture_output=True, text=True).stdout


rng = np.random.default_rng(0)
a_t, b = rng.standard_normal((128, 64)).astype(np.float32), rng.standard_normal((128, 32)).astype(np.float32)
# sums of 128 products of float32
assert np.allclose(product(a_t, b), a_t.T @ b, atol=1e-3)

# what a framework's call leaves below the directory
deadline, neff_files = time.time() + 5, []
while not neff_files and time.time() < deadline:
    neff_files = [(folder, f) for folder, _, files in os.walk("inspect") for f in files if re.fullmatch(r"neff_\w+\.neff", f)]
folder, file = neff_files[0]
digest = re.fullmatch(r"neff_(\w+)\.neff", file)[1]
neff, trace = os.path.join(folder, file), os.path.join(folder, f"{digest}_vnc_0.ntff")
assert os.path.getsize(neff) > 0 and os.path.getsize(trace) > 0

# tables in a store, read by path, as scripts wait for them
tool("view", "-d", "inspect", "--ingest-only", "--data-path", "store", "--display-name", "product", "--force",
     "--nki-source-root", os.getcwd(), "--framework-source-root", os.getcwd())
store = "store/profiles/global/product@latest"
summary = pq.read_table(f"{store}/Summary.parquet").to_pylist()[0]
rows = pq.read_table(f"{store}/Instruction.parquet").to_pylist()
products = [r for r in rows if r["engine"] == "Tensor" and re.search(r"(\d+)\*(\d+)\s*$", r["operands"])]
assert products and re.search(r"src=\S+\[[\d,\-]+\]\[(\d+),", products[-1]["operands"])
lines = {r["bir_debug_info_source_location"] for r in rows if r["hbm_read_bytes"]}
assert any(re.search(r"trace_reader\.py:\d+$", line) for line in lines if line), lines
transfers = pq.read_table(f"{store}/DmaPacketAggregated.parquet").to_pylist()
assert sum(t["transfer_bytes"] for t in transfers) == a_t.nbytes + b.nbytes + 64 * 32 * 4
assert summary["total_time"] > 0 and pq.read_table(f"{store}/Warning.parquet").num_rows
flows = pq.read_table(f"{store}/Flow.parquet").to_pylist()
assert {"Instruction", "DmaPacketAggregated"} >= {f["in_table"] for f in flows}

# JSON, with what each instruction moves
tool("view", "-n", neff, "-s", trace, "--output-format", "json", "--output-file", "d.json", "--disable-ui", name="neuron-profile")
document = json.load(open("d.json"))
wanted = {"timestamp", "duration", "opcode", "evt_wait_time", "label", "subgroup", "subgraph", "layer", "hbm_read_bytes",
          "hbm_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes", "bir_debug_info_source_location", "nki_source_location",
          "hlo_attrs", "stack_frame_ids", "compiler_opcode", "operands", "compiler_operands", "hlo_name"}
assert all(wanted <= set(i) for i in document["instruction"]), wanted - set(document["instruction"][0])
assert sum(i["hbm_read_bytes"] or 0 for i in document["instruction"]) == a_t.nbytes + b.nbytes
assert {"summary", "instruction", "dma", "layer_summary", "model_info", "metadata", "cc_stream", "instruction_usage",
        "stack_frame_function_name"} <= set(document)
summary = document["summary"][0] if isinstance(document["summary"], list) else document["summary"]
assert summary["hardware_flops"] == 2 * 128 * 64 * 32 and summary["neuroncore_cycle_count"] > 0
assert summary["interval"][0] <= summary["total_time"] <= summary["interval"][1] and summary["source"] == "model"

# text, as shells search it
text = tool("view", "-n", neff, "-s", trace, "--output-format", "summary-text", name="neuron-profile")
assert all(re.search(rf"^\s*{name}\s+\S+", text, re.M) for name in ("nd_idx", "nc_idx", "total_time"))
session = tool("show-session", "-s", trace, "--show-trace", "--show-dma", name="neuron-profile")
assert re.search(r"Instruction trace for ND \d+ NC \d+", session) and "START" in session and "END" in session
assert all(re.search(rf"^\s*{engine}\b.*\d", session, re.M) for engine in ("Tensor", "Vector", "Scalar", "GpSimd", "Sync", "DMA"))
assert "M2S_SOP" in session and "S2M_EOP" in session
tool("view", "-n", neff, "-s", trace, "--output-format", "perfetto", "--output-file", "t.pftrace", "--show-perfetto-flows")
assert os.path.getsize("t.pftrace") > 0
for words, name in ((["view", "-n", neff, "-s", trace, "--output-format", "parquet"], "neuron-profile"),
                    (["view", "-n", neff, "-s", "missing.ntff", "--output-format", "summary-json"], "neuron-explorer"),
                    (["view", "--no-such-option"], "neuron-explorer"), (["capture", "-n", "missing.neff"], "neuron-profile")):
    done = subprocess.run([name, *words], capture_output=True, text=True)
    assert done.returncode and not done.stdout and done.stderr, words
assert "neuron-explorer" in tool("--version") + tool("--version", name="neuron-profile")
print("all traces read")
