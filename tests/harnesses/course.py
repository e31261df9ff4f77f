# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A course's runner: benchmark on a gridded kernel, files moved by the shell, percentiles, capture into a named trace."""

import os
import subprocess
import sys
import tempfile

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np

os.chdir(tempfile.mkdtemp())


def pool(x, pool_size):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns // pool_size), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x).reshape((rows, columns // pool_size, pool_size))
    nl.store(out, nl.max(tile, axis=2))
    return out


@nki.jit
def halves(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.ds(nl.program_id(0) * 128, 128)
    nl.store(out[rows, :], nl.load(x[rows, :]) + 1.0)
    return out


x = np.random.default_rng(42).standard_normal((128, 64)).astype(np.float32)
want = x.reshape(128, 32, 2).max(2)
assert np.allclose(nki.baremetal(pool)(x, pool_size=2), want)
assert np.allclose(nki.simulate_kernel(nki.jit(pool), x, pool_size=2), want)
bench = nki.benchmark(warmup=5, iters=20, save_neff_name="file_pool_2_float32.neff",
                      additional_compile_opt="--disable-dge")(pool)
bench(x, pool_size=2)
assert bench.benchmark_result.nc_latency.get_latency_percentile(99) < 4964
other = nki.benchmark(pool, warmup=1, iters=10, save_neff_name="file.neff", save_trace_name="p.ntff",
                      additional_compile_opt="--disable-dge", disable_allocation_opt=False)
other(x, pool_size=2)
subprocess.run("mv file.neff profile.neff", shell=True, check=True)
subprocess.run("neuron-profile capture -n profile.neff -s profile.ntff", shell=True, check=True, capture_output=True)
assert os.path.getsize("profile.ntff") > 0 and os.path.getsize("p.ntff") > 0

gridded = nki.benchmark(warmup=20, iters=100)(halves)[2]
gridded(np.zeros((256, 64), np.float32))
latency = gridded.benchmark_result.nc_latency
assert latency.get_latency_percentile(50) == latency.get_latency_percentile(100) > 0
shape_only = nki.benchmark(pool)
shape_only(nt.tensor[[128, 64], nl.bfloat16], pool_size=2)
assert shape_only.benchmark_result.full_results["nc_latency"]["50"] > 0


@nki.profile(working_directory=os.getcwd(), save_neff_name="cus_file123.neff", save_trace_name="profile-custom.ntff",
             profile_nth=10, num_execs=20, overwrite=True)
def profiled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


assert np.array_equal(profiled(x), x) and len(os.listdir("json_reports")) == 2
assert os.path.exists("profile-custom_exec_10.ntff") and os.path.exists("profile-custom_exec_20.ntff")
subprocess.run(["neuron-bench", "exec", "--warmup=20", "--work=200", "--enable-only-latency", "--fixed-nc-count=1",
                "--output-directory=bench", "cus_file123.neff"], check=True)
assert os.path.exists(os.path.join("bench", "info.json"))
print("all tests passed")
sys.exit(0)
