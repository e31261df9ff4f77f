# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that a subscript attaches to an operand: the operation has them then."""

import pytest

from .test_text import assert_same_values, floats, migrated

KERNEL = """def kernel(x, y):
    out = nl.ndarray((32, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:24]
    tile = nl.load(x)
    kept = nl.load(y)
    for i in nl.sequential_range(3):
        {statement}
    nl.store(out, kept)
    return out
"""


def test_mask_of_an_operand_becomes_slices():
    text = migrated(KERNEL.format(statement="kept[p, f] = nl.exp(tile[f >= 4])"))
    assert "    nisa.activation(dst=kept[0:32, 4:24], op=nl.exp, data=tile[:, 4:24])\n" in text


@pytest.mark.parametrize("statement", [
    "kept[p, f] = nl.exp(tile[f >= 4])",
    "kept[p, f] = nl.copy(tile[(f < 4) & (i < 2)])",
    "kept[p, f] = tile[p < f] + 1",
    "kept[p, f] = 2.0 - tile[p + f < 20]",
    "kept[p, f] = -tile[p == f]",
    "kept[p, f] = nl.add(tile[f > 3], 1.5, mask=f < 9)",
    "kept[p, f] = nl.maximum(tile[p, f][f < 9], 0.5, mask=p < f)",
    "kept[:, 0:5] = nl.copy(tile[p, f][f + p < 20][:, 3:8])",
    "kept[:, 0:5] = nl.copy(tile[p, f][(f >= 5) & (p < 9)][:, nl.ds(3, 5)])",
    "kept[:, 0:3] = nl.copy(tile[p, f][f > 9][:, 8:14:2])",
    "kept[:, 0:1] = nl.sum(tile[f > p], axis=[1])",
    "kept[:, 0:1] = nl.sum(tile[f > 4], axis=[1])",
    "kept[p, f] = nisa.tensor_scalar(tile[f >= 20], np.add, 2.0)",
    "kept[p, f] = nl.load(x[p, f][p < f])",
])
def test_values(statement, tmp_path):
    assert_same_values(KERNEL.format(statement=statement), tmp_path, floats(32, 24), floats(32, 24))


@pytest.mark.parametrize("mask", ["f < 4", "f >= 20", "p < 7", "(f < 4) & (p < 9)"])
def test_reduction_of_a_tile_whose_shape_only_the_mask_shows(mask, tmp_path):
    statement = f"kept[:, 0:1] = nl.sum(tile, axis=[1], mask={mask})"
    assert_same_values(KERNEL.format(statement=statement), tmp_path, floats(32, 24), floats(32, 24))
