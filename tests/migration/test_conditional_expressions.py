# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conditional expressions under masks: each value assigns the counts of elements that it reads."""

import pytest

from .test_text import assert_same_values, floats, migrated

ROWS = """def kernel(x):
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:d]
    for i in nl.affine_range((n + 127) // 128):
        nl.store(out[i * 128 + p, f], nl.zeros((128, d), x.dtype, buffer=nl.sbuf), mask=i * 128 + p < n)
    for i in nl.affine_range((n + 127) // 128):
        LINE
        nl.store(out[i * 128 + p, f], STORED)
    return out
"""
MASKED = "nl.load(x[i * 128 + p, f], mask=mask), mask=mask"


def loop_of(kernel: str) -> str:
    """Return the statements of the second loop of the new text."""
    return migrated(kernel).rpartition("// 128):\n")[2].removesuffix("    return out\n")


@pytest.mark.parametrize("shape", [(200, 32), (200, 16), (128, 16)], ids=repr)
def test_two_masks_of_the_same_elements_have_one_count(shape, tmp_path):
    kernel = ROWS.replace("LINE", "mask = (i * 128 + p < n) if d > 16 else ~(i * 128 + p >= n)").replace("STORED", MASKED)
    assert loop_of(kernel) == """        num_rows = min(128, n - i * 128)
        nl.store(out[nl.ds(i * 128, num_rows), :], nl.load(x[nl.ds(i * 128, num_rows), :]))
"""
    assert_same_values(kernel, tmp_path, floats(*shape))


@pytest.mark.parametrize("shape", [(200, 32), (200, 16), (128, 16)], ids=repr)
def test_a_mask_that_extends_the_other_one_has_its_own_count(shape, tmp_path):
    kernel = ROWS.replace("LINE", "mask = (i * 128 + p < n) if d > 16 else (i * 128 + p < n) & (p < 100)").replace(
        "STORED", MASKED)
    assert loop_of(kernel) == """        num_rows = min(128, n - i * 128)
        tile_rows_2 = min(num_rows, 100)
        tile_rows = min(128, n - i * 128) if d > 16 else tile_rows_2
        nl.store(out[nl.ds(i * 128, tile_rows), :], nl.load(x[nl.ds(i * 128, tile_rows), :]))
"""
    assert_same_values(kernel, tmp_path, floats(*shape))


@pytest.mark.parametrize("shape", [(200, 32), (200, 16), (128, 16)], ids=repr)
def test_two_tiles_under_one_mask_assign_its_count_in_both_branches(shape, tmp_path):
    load = "nl.load(x[i * 128 + p, f], mask=i * 128 + p < n)"
    kernel = ROWS.replace("LINE", f"t = {load} if d > 16 else nl.exp({load})").replace(
        "STORED", "t, mask=i * 128 + p < n")
    assert loop_of(kernel) == """        if d > 16:
            num_rows = min(128, n - i * 128)
            t = nl.load(x[nl.ds(i * 128, num_rows), :])
        else:
            num_rows = min(128, n - i * 128)
            t = nl.exp(nl.load(x[nl.ds(i * 128, num_rows), :]))
        tile_rows = min(128, n - i * 128)
        nl.store(out[nl.ds(i * 128, tile_rows), :], t[0:tile_rows])
"""
    assert_same_values(kernel, tmp_path, floats(*shape))
