# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks of matrix products that a kernel adds in PSUM: they select terms of the sums, rows and columns."""

import numpy as np
import pytest

from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.product_masks import UNKNOWN_AXIS
from nki_mlir.migration.report import MigrationReport

from .test_text import HEAD, assert_same_values, migrated

KERNEL = """def kernel(x, y):
    k, m = x.shape
    n = y.shape[1]
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    i_k, i_m = nl.mgrid[0:16, 0:32]
    j_k, j_n = nl.mgrid[0:16, 0:24]
    o_m, o_n = nl.mgrid[0:32, 0:24]
    row_m, f_m, f_n = nl.arange(32)[None, :], nl.arange(32)[None, :, None], nl.arange(24)[None, None, :]
    left = nl.load(x[i_k, i_m])
    right = nl.load(y{part})
    acc = nl.zeros((32, 24), nl.float32, buffer=nl.psum)
    for t in nl.affine_range(2):
        {statement}
    nl.store(out, acc)
    return out
"""
PRODUCT = "acc[...] += nl.matmul(left, right, transpose_x=True, mask={mask})"
NEXT_TO_PRODUCT = "acc += nisa.nc_matmul(left, right)\n        sums = nl.full((32, 24), 2.0, dtype=nl.float32)\n        "


def numbers(*shape):
    """Whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(1).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("statement", [
    *(PRODUCT.format(mask=mask) for mask in (
        "i_k < 10", "(t > 0) & (j_k < 7 - t)", "row_m < 20", "(i_k < 10) & (i_m < 20)", "(i_k < 10) & (o_m < 20)",
        "(j_k >= 3) & (j_n < 13)", "f_m >= 5", "f_n >= 5 * t", "f_m <= f_n", "o_m >= o_n")),
    "acc[o_m, o_n] += nisa.nc_matmul(left[i_k, i_m], right[j_k, j_n], mask=(o_m < m - t) & (o_n < n - 11))",
    NEXT_TO_PRODUCT + "acc += nl.multiply(sums, 2.0, mask=o_n >= 3)",
    NEXT_TO_PRODUCT + "acc += nl.multiply(sums, 2.0, mask=o_m >= 3)",
    "part = nisa.nc_matmul(left, right, mask=o_n >= 3 + t)\n        acc[...] += part",
])
def test_values(statement, tmp_path):
    kernel = KERNEL.format(part="[j_k, j_n]", statement=statement)
    assert_same_values(kernel, tmp_path, numbers(16, 32), numbers(16, 24))


@pytest.mark.parametrize("mask, text", [
    ("i_k < 10", "nisa.nc_matmul(dst=acc, stationary=left[0:10], moving=right[0:10])"),
    ("o_m < 10", "nisa.nc_matmul(dst=acc[0:10], stationary=left[:, 0:10], moving=right)")])
def test_a_mask_of_two_dimensions_selects_terms_if_it_has_their_number(mask, text):
    assert f"        {text}\n" in migrated(KERNEL.format(part="[j_k, j_n]", statement=PRODUCT.format(mask=mask)))


@pytest.mark.parametrize("mask, text", [
    ("i_k < 10", "nisa.nc_matmul(dst=acc, stationary=left[0:10], moving=right[0:10])"),
    ("o_m < 10", "nisa.nc_matmul(dst=acc[0:10], stationary=left[:, 0:10], moving=right)")])
def test_parts_of_factors_have_the_extents_of_their_slices(mask, text):
    statement = PRODUCT.format(mask=mask).replace("left, right", "left[0:16, 0:32], right[0:16, 0:24]")
    assert f"        {text}\n" in migrated(KERNEL.format(part="[j_k, j_n]", statement=statement))


def test_a_mask_that_may_select_terms_or_rows_is_left():
    kernel = KERNEL.format(part="", statement=PRODUCT.format(mask="o_m < 20")).replace("x[i_k, i_m]", "x")
    report = MigrationReport("kernel.py")
    assert PRODUCT.format(mask="o_m < 20") in rewritten(HEAD + kernel, report)
    assert [entry.text for entry in report.entries if entry.left] == [UNKNOWN_AXIS]


IMAGES = """def kernel(x, w):
    k, rows, columns = x.shape
    taps, m = w.shape[1:]
    out = nl.ndarray((m, rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    i_k, i_r, i_c = nl.arange(16)[:, None, None], nl.arange(6)[None, :, None], nl.arange(8)[None, None, :]
    j_m, j_r = nl.arange(32)[:, None, None], nl.arange(4)[None, :, None]
    image, weights = nl.load(x), nl.load(w)
    acc = nl.zeros((32, 6, 8), nl.float32, buffer=nl.psum)
    for t in nl.affine_range(3):
        {statement}
    nl.store(out, acc)
    return out
"""


@pytest.mark.parametrize("statement, text", [
    ("acc += nisa.nc_matmul(weights[:, t, :], image[i_k, i_r, i_c], mask=(i_k < 10 + t) & (t + i_r < 6))",
     "dst=acc[:, 0:num_columns], stationary=weights[0:num_rows, t, :], moving=image[0:num_rows, 0:num_columns, 0:8])"),
    ("acc += nisa.nc_matmul(weights[:, t, :], image[i_k, i_r, i_c], mask=(i_k >= 2) & (j_m < 30 - t) & (i_c < 5))",
     "src=image[2:16, 0:6, 0:5]"),
    ("acc[:, 0:4, :] += nisa.nc_matmul(weights[:, t, :], image[i_k, j_r + t, i_c], mask=(j_r + t < 5))",
     "dst=acc[:, 0:4, :][:, 0:num_columns], "),
    ("acc += nisa.nc_matmul(weights[:, t, :], image, mask=(i_k + t < 9))", "moving=image[0:num_rows]")])
def test_a_factor_of_three_dimensions(statement, text, tmp_path):
    kernel = IMAGES.format(statement=statement)
    assert text in migrated(kernel)
    assert_same_values(kernel, tmp_path, numbers(16, 6, 8), numbers(16, 3, 32))


def test_a_sum_of_products_of_two_dtypes(tmp_path):
    """The tensor engine multiplies float32 with float32 only, nl.matmul converts."""
    statement = "narrow = nl.copy(right, dtype=nl.bfloat16); acc += nl.matmul(left_32, narrow, transpose_x=True)"
    kernel = KERNEL.format(part="[j_k, j_n]", statement=statement).replace("    acc =", "    left_32 = nl.copy("
                                                                           "left, dtype=nl.float32)\n    acc =")
    assert_same_values(kernel, tmp_path, numbers(16, 32), numbers(16, 24))
