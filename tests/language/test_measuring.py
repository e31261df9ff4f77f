# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.benchmark``, ``nki.baremetal`` and ``nki.profile`` around kernels."""

import json

import numpy as np
import pytest

import nki_mlir.language.beta.language as nl
from nki_mlir.language.beta import nki


def exponential(x):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.exp(nl.load(x)))
    return result


DATA = np.linspace(-1, 1, 128 * 64, dtype=np.float32).reshape(128, 64)


def test_benchmark_gives_the_result_and_a_latency():
    kernel = nki.benchmark(warmup=2, iters=5)(exponential)
    with pytest.raises(AttributeError, match="has not been called yet"):
        kernel.benchmark_result  # noqa: B018
    np.testing.assert_allclose(kernel(DATA), np.exp(DATA), rtol=1e-5)
    latency = kernel.benchmark_result.nc_latency
    assert latency.get_latency_percentile(50) == latency.get_latency_percentile(99)
    assert 1 < latency.get_latency_percentile(50) < 100      # two transfers of 32 KiB and one activation


def test_benchmark_grows_with_the_work():
    kernel = nki.benchmark(exponential)
    kernel(DATA)
    small = kernel.benchmark_result.nc_latency.get_latency_percentile(50)
    kernel(np.zeros((128, 8192), np.float32))
    assert kernel.benchmark_result.nc_latency.get_latency_percentile(50) > 4 * small


def test_baremetal_runs_the_kernel():
    np.testing.assert_allclose(nki.baremetal(exponential)(DATA), np.exp(DATA), rtol=1e-5)


def test_profile_writes_the_program_and_its_summary(tmp_path):
    kernel = nki.profile(working_directory=tmp_path, save_neff_name="kernel.neff", save_trace_name="kernel.ntff",
                         profile_nth=2)(exponential)
    np.testing.assert_allclose(kernel(DATA), np.exp(DATA), rtol=1e-5)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["json_reports", "kernel.neff", "kernel_exec_2.ntff"]
    summary = json.loads((tmp_path / "json_reports" / "kernel_exec_2.json").read_text())
    assert summary["hbm_bytes"] == 2 * DATA.nbytes
    assert summary["total_time"] > 0


def test_a_measured_kernel_may_be_a_jit_kernel():
    kernel = nki.benchmark(nki.jit(exponential))
    np.testing.assert_allclose(kernel(DATA), np.exp(DATA), rtol=1e-5)
    assert kernel.benchmark_result.nc_latency.get_latency_percentile(50) > 0
