# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks of tiles that another mask has cut: an operation touches the elements that both select."""

import pytest

from .test_text import assert_same_values, floats, migrated

KERNEL = """def kernel(x, valid=45):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f, two = nl.arange(32)[:, None], nl.arange(x.shape[1])[None, :], nl.arange(2)[None, :]
    for i in nl.affine_range((x.shape[0] + 31) // 32):
        rows = i * 32 + p < x.shape[0]
        tile = nl.load(x[i * 32 + p, f], mask=rows)
        nl.store(out[i * 32 + p, f], nl.exp(tile), mask=rows)
        {statement}
    return out
"""


@pytest.mark.share(2)
@pytest.mark.parametrize("mask", ["i * 32 + p < 3", "i * 32 + p < valid", "p < 5", "(i * 32 + p < 40) & (i * 32 + p < x.shape[0])",
                                  "i * 32 + p < 64"])
@pytest.mark.parametrize("statement", [
    "tile[p, f] = nl.multiply(tile[p, f], 2.0, mask={mask}); nl.store(out[i * 32 + p, f], tile, mask=rows)",
    "few = nl.multiply(tile[p, two], 2.0, mask={mask}); nl.store(out[i * 32 + p, two], few, mask={mask})",
    "few = nl.copy(tile, mask={mask}); nl.store(out[i * 32 + p, f], few, mask=({mask}) & rows)",
    "kept = nl.copy(tile); kept[p, two] = nisa.tensor_scalar(tile[p, two], np.add, 1.0, mask={mask}); "
    "nl.store(out[i * 32 + p, f], kept, mask=rows)"])
def test_values(statement, mask, tmp_path):
    if mask == "i * 32 + p < 64" and "mask=rows" not in statement:
        pytest.skip("stores rows that nothing has loaded")
    assert_same_values(KERNEL.format(statement=statement.format(mask=mask)), tmp_path, floats(50, 6))


def test_names_the_rows_that_both_masks_select():
    text = migrated(KERNEL.format(statement="tile[p, f] = nl.multiply(tile[p, f], 2.0, mask=i * 32 + p < 3)"))
    assert """        fewer_rows = min(num_rows, 3 - i * 32)
        if fewer_rows > 0:
            nisa.tensor_scalar(dst=tile[0:fewer_rows, :], data=tile[0:fewer_rows, :], op0=nl.multiply, operand0=2.0)
""" in text


@pytest.mark.parametrize("mask, expected", [
    ("rows", "nl.device_print('tile', tile)"),
    ("(i * 32 + p < 3)", "if fewer_rows > 0:\n            nl.device_print('tile', tile[0:fewer_rows])"),
    ("rows & (f >= 2)", "nl.device_print('tile', tile[:, nl.ds(2, x.shape[1] - 2)])"),
    ("(i < 1)", "if (i < 1):\n            nl.device_print('tile', tile)"),
    ("(p >= f)", "on_false_value=0.0, cmp_op=nl.greater_equal)\n        nl.device_print('tile', selected)")])
def test_prints_what_masks_select(mask, expected):
    assert expected in migrated(KERNEL.format(statement=f"nl.device_print('tile', tile, mask={mask})"))
