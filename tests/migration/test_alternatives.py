# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks of which one of two comparisons holds, and masks that are negated."""

import pytest

from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

from .test_text import HEAD, assert_same_values, floats, migrated

KERNEL = """def kernel(x, y):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:rows, 0:cols]
    tile = nl.load(x)
    kept = nl.load(y)
    {statement}
    nl.store(out, kept)
    {after}
    return out
"""
SELECTED = KERNEL.format(statement="kept[p, f] = nl.multiply(tile, 0.5, mask=(f < 2) | (f >= cols - 2))", after="")
STORED = KERNEL.format(statement="", after="nl.store(out[p, f], nl.exp(tile), mask=(p < 8) | (f >= cols - 5))")


def test_tile_of_0_and_1_begins_with_0():
    text = migrated(SELECTED)
    assert "    nisa.memset(dst=is_selected, value=0)\n" in text
    assert text.count("on_false_value=1") == 2 and "cmp_op=nl.greater_equal, offset=-2)" in text


def test_store_becomes_two():
    text = migrated(STORED)
    assert "    stored = nl.exp(tile)\n    nl.store(out[0:num_rows, :], stored[0:num_rows])\n" in text
    assert "start = max(0, cols - 5)" in text


@pytest.mark.parametrize("statement", [
    "kept[p, f] = nl.multiply(tile, 0.5, mask=(f < 2) | (f >= cols - 2))",
    "kept[p, f] = nisa.activation(op=nl.exp, data=tile, mask=(p > f) | (f - p > 9))",
    "kept[p, f] = nl.copy(tile, mask=~(p - f < 3))",
    "kept[p, f] = nl.copy(tile, mask=~(f < 4))",
    "for i in range(3): kept[p, f] = nl.multiply(tile, i, mask=(i < 2) | (p < f))",
    "for i in range(3): kept[p, f] = nl.multiply(tile, i, mask=(f < 5) | (i == 1))",
    "kept[p, f] = nl.load(x[p, f], mask=(p > 3) | (f < 5))",
    "kept[p, f] = nl.copy(tile, mask=(nl.arange(1)[None, :] >= 0) | (f < 5))",
    "kept[p, f] = nl.copy(tile, mask=(nl.arange(1)[:, None] < 0) | (f < 5))",
    "kept[p, f] = nl.copy(tile, mask=(p > 3) | (nl.arange(1)[None, :] > cols))"])
def test_values_of_operations(statement, tmp_path):
    assert_same_values(KERNEL.format(statement=statement, after=""), tmp_path, floats(32, 24), floats(32, 24))


@pytest.mark.parametrize("mask", ["(p < 8) | (f >= cols - 5)", "(p > f + 9) | (f < 2)", "~(p < 20)",
                                  "(nl.arange(1)[None, :] >= 0) | (f < 5)", "(p < 8) | (nl.arange(1)[:, None] < 0)",
                                  "(rows < 9) | (f < 5)", "(f < 5) | (cols >= 9)"])
def test_values_of_stores(mask, tmp_path):
    after = f"nl.store(out[p, f], nl.exp(tile), mask={mask})"
    assert_same_values(KERNEL.format(statement="", after=after), tmp_path, floats(32, 24), floats(32, 24))


@pytest.mark.parametrize("mask", ["~((p < 8) & (f < 2))", "(p < 8) | (f < 2) & (f < 1)"])
def test_masks_that_the_beta_generation_refuses_are_left(mask):
    report = MigrationReport("kernel.py")
    rewritten(HEAD + KERNEL.format(statement=f"kept[p, f] = nl.copy(tile, mask={mask})", after=""), report)
    assert [e.text for e in report.entries if e.left] == ["a mask that consists of other values than comparisons"]


EMPTY_PARTS = {
    "(f < 0) | (f < 1)": "    nl.store(out[:, 0:1], kept[:, 0:1])\n",
    "(p < -2) | (f > 20)": "    nl.store(out[:, 21:24], kept[:, 21:24])\n",
    "(f >= 24) | (p < 8)": "    nl.store(out[0:8, :], kept[0:8])\n",
    "(f < 0) | (p < -2)": "",
}


@pytest.mark.parametrize("mask", EMPTY_PARTS)
def test_stores_of_no_element_are_left_out(mask, tmp_path):
    kernel = f"""def kernel(x, y):
    out = nl.ndarray((32, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:24]
    kept = nl.load(y)
    nl.store(out, nl.load(x))
    nl.store(out[p, f], kept, mask={mask})
    return out
"""
    assert migrated(kernel).partition("    nl.store(out, nl.load(x))\n")[2] == EMPTY_PARTS[mask] + "    return out\n"
    assert_same_values(kernel, tmp_path, floats(32, 24), floats(32, 24)[::-1])


def test_values_of_a_store_whose_part_may_be_empty(tmp_path):
    kernel = KERNEL.format(statement="", after="nl.store(out[p, f], tile, mask=(p < 8) | (f >= cols + rows - 32))")
    for shape in ((32, 24), (16, 24), (12, 20)):
        assert_same_values(kernel, tmp_path, floats(*shape), floats(*shape)[::-1])


def test_a_store_under_a_mask_of_the_last_columns_reads_these_of_a_tile_of_unknown_size(tmp_path):
    kernel = """def kernel(x, y):
    out = nl.ndarray((32, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:24]
    nl.store(out, nl.load(x))
    nl.store(out[p, f], nl.load(y), mask=f > 20)
    return out
"""
    assert "    nl.store(out[:, 21:24], nl.load(y)[:, 21:24])\n" in migrated(kernel)
    assert_same_values(kernel, tmp_path, floats(32, 24), floats(32, 24)[::-1])
