# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.benchmark`` and ``nki.baremetal`` of the current generation, which programs call as they did in the other one."""

import numpy as np

from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


def test_benchmark__measures_and_leaves_a_file(tmp_path):
    kernel = nki.benchmark(warmup=2, iters=10, save_neff_name=str(tmp_path / "file.neff"))(nki.jit(double))
    assert np.array_equal(kernel(X), X * 2) and (tmp_path / "file.neff").stat().st_size > 0
    assert kernel.benchmark_result.nc_latency.get_latency_percentile(99) > 0


def test_baremetal__leaves_files(tmp_path):
    assert np.array_equal(nki.baremetal(double, save_trace_name=str(tmp_path / "t.ntff"))(X), X * 2)
    assert (tmp_path / "t.ntff").stat().st_size > 0
