# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of 8-bit floats with two rows a partition (``perf_mode=double_row``), one instruction in both generations."""

import re

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.targets.neuron.profile.slices import operations_of_product

from ..dialects.samples import SAMPLES
from ..printing.reading import printed, reread, reread_beta

E4M3, E5M2 = ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2
EXECUTORS = ("eager", "interpreter", "jit", "isa")


def integers(*shape, seed=0, dtype=E4M3):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def answer(a, b):
    return np.einsum("krm,krn->mn", a.astype(np.float64), b.astype(np.float64))


@nki.jit
def current_product(a, b, terms=1):
    (_, _, m), n = a.shape, b.shape[2]
    left, right = (nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.sbuf) for t in (a, b))
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    total = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    for k in range(terms):
        nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate=k > 0,
                       perf_mode=nisa.matmul_perf_mode.double_row)
    tile = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=total)
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@beta_nki.jit(platform_target="trn2")
def beta_product(a, b, terms=1):
    left, right = beta.load(a), beta.load(b)
    total = beta.zeros((a.shape[2], b.shape[2]), beta.float32, buffer=beta.psum)
    for _ in beta.affine_range(terms):
        total += beta_isa.nc_matmul(left, right, perf_mode="double_row_gen3")
    out = beta.ndarray(total.shape, dtype=beta.float32, buffer=beta.shared_hbm)
    beta.store(out, total)
    return out


def products_in(lowered):
    return re.findall(r"\bMATMUL\w*", lowered.as_text("isa"))


@pytest.mark.parametrize("kernel", [current_product, beta_product], ids=["current", "beta"])
@pytest.mark.parametrize("k, m, n", [(1, 1, 1), (96, 64, 300), (128, 128, 512)])
@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E5M2, E4M3)])
def test_values_and_instructions(kernel, k, m, n, dtypes):
    a, b = integers(k, 2, m, dtype=dtypes[0]), integers(k, 2, n, seed=1, dtype=dtypes[1])
    for executor in EXECUTORS:
        assert np.array_equal(kernel.on(executor)(a, b, terms=2), 2 * answer(a, b)), executor
    assert products_in(kernel.lower(a, b, terms=2)) == ["MATMUL_DOUBLE_ROW"] * 2


def test_two_rows_take_the_time_of_one():
    """The instruction takes as long as a product of one row a partition."""
    op = SAMPLES["nisa.nc_matmul_double_row"].make(sizes={"P": 128, "G": 128, "F": 512})
    assert op.work() == op.row(0).work() and op.work().elements == 512
    assert operations_of_product(op) == 2 * operations_of_product(op.row(0)) == 2 * 2 * 128 * 128 * 512


def test_rows_that_are_no_parts_of_one_tile_are_two_products():
    """An operand whose free axes do not merge is copied, row by row."""
    @nki.jit
    def kernel(a, b):
        left, right = (nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.sbuf) for t in (a, b))
        nisa.dma_copy(dst=left, src=a)
        nisa.dma_copy(dst=right, src=b)
        total = nl.ndarray((6, 20), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=left[:, :, 0:3, 0:2], moving=right, accumulate=False,
                       perf_mode=nisa.matmul_perf_mode.double_row)
        tile = nl.ndarray((6, 20), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=total)
        out = nl.ndarray((6, 20), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out
    a, b = integers(32, 2, 5, 4), integers(32, 2, 20, seed=1)
    expected = answer(a[:, :, 0:3, 0:2].reshape(32, 2, 6), b)
    for executor in EXECUTORS:
        assert np.array_equal(kernel.on(executor)(a, b), expected), executor
    assert products_in(kernel.lower(a, b)) == ["MATMUL", "MATMUL"]


def test_rows_of_a_wide_result_fill_several_banks(monkeypatch):
    """On trn3 a result of 1,024 columns is one call, and a product for each bank."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    a, b = integers(16, 2, 8), integers(16, 2, 1024, seed=1)
    assert products_in(current_product.lower(a, b)) == ["MATMUL_DOUBLE_ROW"] * 2
    for executor in EXECUTORS:
        assert np.array_equal(current_product.on(executor)(a, b), answer(a, b)), executor


@pytest.mark.parametrize("kernel", [current_product, beta_product], ids=["current", "beta"])
@pytest.mark.parametrize("generation, read, mode", [("current", reread, "nisa.matmul_perf_mode.double_row"),
                                                    ("beta", reread_beta, '"double_row_gen3"')])
def test_printed_text_has_the_mode(kernel, generation, read, mode):
    a, b = integers(32, 2, 16), integers(32, 2, 40, seed=1)
    text = printed(kernel, [a, b, 2], generation=generation)
    assert f"perf_mode={mode}" in text
    for executor in EXECUTORS:
        assert np.array_equal(read(text).on(executor)(a, b), 2 * answer(a, b)), executor


def test_first_generation_has_no_double_row(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(NkiMlirError, match="double_row needs generation 3 of the core, and trn1 is generation 2"):
        current_product.lower(integers(16, 2, 8), integers(16, 2, 8))
