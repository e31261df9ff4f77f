# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products whose factors are converted once: the same bits as where each element is converted when it is read."""

import re

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets.cpu.lowering import listing
from nki_mlir.targets.cpu.pipeline import PIPELINE

from .compiled import set_options

EDGES = (np.nan, np.inf, -np.inf, -0.0, 0.0, 2.0 ** -24, -(2.0 ** -16), 2.0 ** -9)


def product(a_t, b):
    """Multiply blocks of 128 positions of the summed axis by tiles of at most 512 columns."""
    (depth, rows), (_, columns) = a_t.shape, b.shape
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((rows, columns), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(depth // 128):
        some = nl.ds(k * 128, 128)
        total += nisa.nc_matmul(nl.load(a_t[some, :]), nl.load(b[some, :]))
    nl.store(out, nl.copy(total))
    return out


def of_dtype(dtype: type, shape: tuple[int, int], edges: bool) -> np.ndarray:
    rng = np.random.default_rng(shape[1])
    values = rng.standard_normal(shape).astype(np.float32)
    if edges:
        values[rng.integers(0, shape[0], 8), rng.integers(0, shape[1], 8)] = EDGES
    with np.errstate(all="ignore"):
        return values.astype(dtype)


@pytest.mark.share(3)
@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("dtypes", [(np.float16,) * 2, (ml_dtypes.bfloat16,) * 2, (ml_dtypes.float8_e4m3,) * 2, (ml_dtypes.float8_e5m2,) * 2,
                                    (ml_dtypes.bfloat16, np.float16), (ml_dtypes.float8_e5m2, ml_dtypes.bfloat16)])
@pytest.mark.parametrize("rows, columns", [(128, 512), (33, 70)])
def test_factors__are_converted_once(monkeypatch, dtypes, rows, columns, edges):
    for other in ("form-products", "widen-tiles", "pair-factors", "divide-columns", "spread-nests"):
        monkeypatch.delitem(PIPELINE, other)
    a_t, b = (of_dtype(d, (256, n), edges) for d, n in zip(dtypes, (rows, columns)))
    kernel = nki.jit(product)
    calls = listing(kernel.lower(a_t, b).module("nisa")).split("module {")[0]
    assert re.search(rf"copy_[\dx]+_float32_{kernel_name(dtypes[0])}_", calls)
    assert re.search(rf"add_{rows}x{columns}x128_float32_[0-9a-f]+\(", calls)
    result = kernel.on("jit")(a_t, b)
    set_options(monkeypatch, "widen-factors", most=0)
    as_read = nki.jit(product).on("jit")(a_t, b)
    assert np.array_equal(result.view(np.uint32)[~np.isnan(result)], as_read.view(np.uint32)[~np.isnan(as_read)])
    assert np.array_equal(np.isnan(result), np.isnan(as_read))


def kernel_name(dtype: type) -> str:
    return np.dtype(dtype).name
