# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A result that replaces the tile of its name is written into this tile, if no other name can have it."""

import pytest

from .test_text import assert_same_values, floats, migrated

WINDOW = """def kernel(x, window=12):
    n, m = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.arange(32)[:, None], nl.arange(m)[None, :]
    for t in nl.affine_range(n // 32):
        tile = nl.load(x[t * 32 + ip, jf])
        seen = nisa.affine_select(pred=(jf <= t * 32 + ip), on_true_tile=tile, on_false_value=-3.0)
        # and the window
        seen = nisa.affine_select(pred=(jf >= t * 32 + ip - window), on_true_tile=seen, on_false_value=-3.0)
        STATEMENT
        nl.store(out[t * 32 + ip, jf], seen)
    return out
"""


def test_the_second_selection_is_in_place(tmp_path):
    kernel = WINDOW.replace("STATEMENT", "seen = nisa.activation(op=nl.exp, data=seen)")
    assert_same_values(kernel, tmp_path, floats(64, 64))
    new = migrated(kernel)
    assert "seen_2" not in new and new.count("seen = nl.ndarray(") == 1
    assert """        # and the window
        nisa.affine_select(dst=seen, pattern=[[1, m]], channel_multiplier=-1, on_true_tile=seen, on_false_value=-3.0, \
cmp_op=nl.greater_equal, offset=window - t * 32)
        nisa.activation(dst=seen, op=nl.exp, data=seen)
""" in new


@pytest.mark.parametrize("before, after", [
    ("# and the window", "first = seen"),                           # another name of the old tile
    ("# and the window", "first = [seen]"),
    ("# and the window", "if t == 0:\n            first = seen"),
    ("on_true_tile=seen,", "on_true_tile=seen, dtype=nl.float16,"),
    ("seen = nisa.affine_select(pred=(jf <= t * 32 + ip), on_true_tile=tile, on_false_value=-3.0)", "seen = tile")])
def test_a_tile_that_is_read_later_stays(before, after, tmp_path):
    kernel = WINDOW.replace(before, after).replace("        STATEMENT\n", "")
    assert_same_values(kernel, tmp_path, floats(64, 64))
    new = migrated(kernel)
    assert "seen_2 = nl.ndarray(" in new and "seen = seen_2" in new


def test_a_transpose_is_not_in_place(tmp_path):
    kernel = """def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    transposed = nisa.nc_transpose(nl.load(x), engine=nisa.vector_engine)
    transposed = nisa.nc_transpose(transposed, engine=nisa.vector_engine)
    nl.store(out, transposed)
    return out
"""
    assert_same_values(kernel, tmp_path, floats(32, 32))
    assert "transposed_2" in migrated(kernel)
