# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether results agree: what another order of additions may explain, and what it cannot."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.cli import run
from nki_mlir.cli.agreement import error_of, largest_error, orders_explain, rounding_step

PRODUCT = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def product(x, w):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(x.shape[0] // 128):
        rows = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        columns = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=x[k * 128:(k + 1) * 128, :])
        nisa.dma_copy(dst=columns, src=w[k * 128:(k + 1) * 128, :])
        nisa.nc_matmul(dst=total, stationary=rows, moving=columns)
    tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=total)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def test_errors_are_relative_to_values_above_one():
    assert error_of([1000.0, 0.5], [1001.0, 0.5]) == pytest.approx(1e-3)
    assert error_of([0.5], [0.25]) == 0.25
    assert error_of([np.nan, np.inf, -0.0], [np.nan, np.inf, 0.0]) == 0
    assert error_of([np.inf], [1.0]) == np.inf and error_of([np.nan], [1.0]) == np.inf
    assert largest_error([np.ones(2)], [np.ones(2)]) == 0 == largest_error([], [])


@pytest.mark.parametrize(("dtype", "step"), [
    (np.float32, 2.0**-23), (ml_dtypes.bfloat16, 2.0**-7), (np.float16, 2.0**-10), (ml_dtypes.float8_e4m3, 0.125),
    (ml_dtypes.float8_e5m2, 0.25), (np.int32, 0.0), (np.bool_, 0.0)])
def test_rounding_step(dtype, step):
    assert rounding_step(np.zeros(3, dtype)) == step


def test_terms_that_cancel__are_compared_by_the_largest_value():
    large = np.array([1e3, 1e-5, np.inf, np.nan], np.float32)
    assert orders_explain([large], [large + np.float32([0, 0.09, 0, 0])])
    assert not orders_explain([large], [large + np.float32([0, 0.11, 0, 0])])
    assert not orders_explain([large], [large[::-1]])


def test_neighbors_of_a_narrow_dtype_agree__others_differ():
    values = np.array([[256.0, 1.0], [2.0, 1.0]], ml_dtypes.bfloat16)
    next_values = (values.view(np.uint16) + np.uint16(1)).view(ml_dtypes.bfloat16)
    assert error_of(values, next_values) > 1e-3 and orders_explain([values], [next_values])
    changed = values.copy()
    changed[1, 1] = 1.0625              # 8 steps of its size, 4 of the largest value of its row
    assert not orders_explain([values], [changed])
    changed[1, 1] = 1.0
    changed[0, 1] = 2.0                 # half a step of the largest value of its row
    assert orders_explain([values], [changed])


def test_the_narrowest_result_decides():
    narrow, wide = np.ones(2, ml_dtypes.bfloat16), np.ones(2, np.float32)
    assert orders_explain([narrow, wide], [narrow, wide * np.float32(1.005)])
    assert not orders_explain([wide], [wide * np.float32(1.005)])


def test_another_order_changes_no_integers():
    assert not orders_explain([np.array([1000000])], [np.array([1000001])])
    assert orders_explain([np.array([7])], [np.array([7])])


def test_sums_that_round_to_neighbors_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "product.py"
    file.write_text(PRODUCT)
    command = ["--quiet", "--compare", f"{file}:product", "--arg", "1024x128xbf16", "--arg", "1024x512xbf16"]
    assert run.main(command) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == 3 and all(line.endswith((": agrees", "native code adds in another order")) for line in lines)
    assert run.main([*command, "--on", "interpreter", "--compare=isa,eager"]) == 0
    assert capsys.readouterr().out.count("largest error against interpreter 0: agrees") == 2
