# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that select no elements in some iterations of a loop, or in none."""

import pytest

from nki_mlir.migration.selected_counts import may_be_none

from .test_text import assert_same_values, floats, migrated

KERNEL = """def kernel(x, y):
    out = nl.ndarray((32, 24), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:24]
    kept = nl.load(y[p, f])
    for i in nl.sequential_range(3):
        tile = nl.load(x[p, f])
        {statement}
        nl.store(out[p, f], kept)
    return out
"""


@pytest.mark.parametrize(("count", "expected"), [
    ("min(7, 1 + i * -1)", True), ("min(7, 3 - i)", False), ("3 - g", True), ("rows - i", False), ("0", True),
    ("7 - max(0, i * 4)", True), ("x[i]", False), ("1 // i", False), ("i * 0 + (i * 100 + k) * 0", False), ("[i][0] - 1", False),
    ("7 - j", True), ("j - 1", True), ("j + 1", False), ("min(rows - i, 3 - i * 64)", True), ("min(rows, 9 - i)", False),
    ("5 - s", False)])
def test_counts_that_may_be_less_than_1(count, expected):
    assert may_be_none(count, {"i": "0", "j": "0", "k": "0"}, {"i": "3", "j": "n", "k": "1000000", "s": "9"}, {"g"}) == expected


def test_tile_keeps_all_elements():
    load = "part = nl.load(x[p, f], mask=p < 2 - i)"
    text = migrated(KERNEL.format(statement=f"{load}; kept[p, f] = nl.exp(part, mask=p < 2 - i)"))
    assert """        if num_rows > 0:
            part = nl.ndarray((32, 24), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=part[0:num_rows, :], src=x[0:num_rows, 0:24])
""" in text


@pytest.mark.share(3)
@pytest.mark.parametrize("mask", ["p < 2 - i", "f < 10 - 5 * i", "f >= 8 * i + 10", "(p >= 7) & (p < 5)", "f < 0",
                                  "(f >= 12) & (f < 20 - 6 * i)", "(p < 2 - i) & (p <= f)"])
@pytest.mark.parametrize("statement", [
    "kept[p, f] = nl.exp(tile, mask={mask})", "part = nl.exp(tile, mask={mask}); kept[p, f] = nl.copy(part, mask={mask})",
    "kept[:, 0:1] = nl.sum(tile, axis=[1], mask={mask})", "kept[p, f] = nl.load(x[p, f], mask={mask})",
    "kept[p, f] = nisa.tensor_tensor(tile, tile, np.add, mask={mask})", "nl.store(out[p, f], tile, mask={mask})"])
def test_values(statement, mask, tmp_path):
    assert_same_values(KERNEL.format(statement=statement.format(mask=mask)), tmp_path, floats(32, 24), floats(32, 24))
