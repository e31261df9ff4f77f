# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads and stores whose index steps backwards."""

import pytest

from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

from .test_text import HEAD, assert_same_values, floats, migrated

FLIP = """def kernel(x):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:rows, 0:cols]
    tile = nl.load(x[p, cols - 1 - f])
    nl.store(out[p, f], tile)
    return out
"""
STORED = FLIP.replace("x[p, cols - 1 - f]", "x[p, f]").replace("out[p, f], tile", "out[p, cols - 1 - f], nl.exp(tile)")
TILES = """def kernel(x):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:16]
    for i in nl.affine_range((rows + 127) // 128):
        for j in nl.affine_range((cols + 15) // 16):
            ok = (i * 128 + p < rows) & (j * 16 + f < cols)
            tile = nl.load(x[i * 128 + p, cols - 1 - j * 16 - f], mask=ok)
            kept = nl.zeros((128, 16), dtype=x.dtype)
            kept[p, f] = nl.load(x[i * 128 + p, cols - 1 - j * 16 - f], mask=ok)
            nl.store(out[i * 128 + p, j * 16 + f], nl.add(tile, kept, mask=ok), mask=ok)
    return out
"""
CUBE = """def kernel(x):
    b, rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i0 = nl.arange(rows)[:, None, None]
    i1 = nl.arange(b)[None, :, None]
    i2 = nl.arange(cols // 2)[None, None, :]
    tile = nl.load(x[b - 1 - i1, i0, cols - 1 - 2 * i2])
    nl.store(out[i1, i0, cols - 1 - 2 * i2], tile)
    nl.store(out[i1, i0, cols - 2 - 2 * i2], nl.exp(tile))
    return out
"""


def test_load_forwards_and_copy_backwards():
    text = migrated(FLIP)
    assert "    loaded = nl.load(x)\n    tile = nl.copy(loaded.ap([[cols, rows], [-1, cols]], offset=cols - 1))\n" in text


def test_store_forwards_a_reversed_copy():
    assert "    stored = nl.exp(tile)\n    nl.store(out, nl.copy(stored.ap(" in migrated(STORED)


def test_rows_that_data_choose_are_not_reversed():
    kernel = FLIP.replace("def kernel(x):", "def kernel(x, rows_of):").replace(
        "    tile = nl.load(x[p, cols - 1 - f])", "    numbers = nl.load(rows_of)\n"
        "    tile = nl.load(x[numbers[p, 0], cols - 1 - f])")
    report = MigrationReport("kernel.py")
    assert "    tile = nl.load(x[numbers[p, 0], cols - 1 - f])\n" in rewritten(HEAD + kernel, report)
    assert [entry.text for entry in report.entries if entry.left] == ["an index that steps backwards"]


@pytest.mark.parametrize("kernel, shape", [(FLIP, (64, 24)), (STORED, (64, 24)), (TILES, (200, 40)), (CUBE, (3, 32, 8))],
                         ids=["load", "store", "tiles", "cube"])
def test_values(kernel, shape, tmp_path):
    assert_same_values(kernel, tmp_path, floats(*shape))


@pytest.mark.parametrize("statement", ["nisa.dma_copy(dst=out[p, f], src=x[p, cols - 1 - f])",
                                       "tile = nl.load_transpose2d(x[p, cols - 1 - f])"])
def test_other_forms_are_left(statement):
    report = MigrationReport("kernel.py")
    rewritten(HEAD + FLIP.replace("tile = nl.load(x[p, cols - 1 - f])", statement), report)
    assert "an index that steps backwards" in [e.text for e in report.entries if e.left]


ROWS = """def kernel(x):
    rows, cols = x.shape
    out = nl.ndarray((40, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((40, 24), dtype=x.dtype))
    p, f = nl.mgrid[0:32, 0:24]
    tile = nl.load(x[p, f])
    nl.store(out[{row}, f], {value}{mask})
    return out
"""


def test_rows_are_stored_backwards_one_after_the_other():
    text = migrated(ROWS.format(row="31 - p", value="nl.exp(tile)", mask=", mask=p >= 5"))
    assert """    stored = nl.exp(tile)
    for row in range(5, 32):
        nl.store(out[nl.ds(31 - row, 1), :], stored[nl.ds(row, 1)])
""" in text


@pytest.mark.share(3)
@pytest.mark.parametrize("row", ["31 - p", "39 - p", "rows - p - 1"])
@pytest.mark.parametrize("value", ["tile", "nl.exp(tile)", "2.5"])
@pytest.mark.parametrize("mask", ["", ", mask=p >= 5", ", mask=(p < 20) & (f >= 3)", ", mask=f < 7", ", mask=p >= f"])
def test_values_of_rows_that_are_stored_backwards(row, value, mask, tmp_path):
    assert_same_values(ROWS.format(row=row, value=value, mask=mask), tmp_path, floats(32, 24))


LOADED_ROWS = """def kernel(x):
    rows, cols = x.shape
    out = nl.ndarray((40, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((40, 24), dtype=x.dtype))
    p, f = nl.mgrid[0:32, 0:24]
    tile = nl.zeros((64, 24), dtype=nl.float32)
    {target} = {value}
    nl.store(out[p, f], {stored}{mask})
    return out
"""


def test_rows_are_loaded_backwards_one_after_the_other():
    text = migrated(LOADED_ROWS.format(target="read", value="nl.load(x[rows - 1 - p, f])", stored="read", mask=""))
    assert """    for row in range(32):
        nisa.dma_copy(dst=read[nl.ds(row, 1)], src=x[nl.ds(rows - 1 - row, 1), 0:24])
""" in text


@pytest.mark.parametrize("mask", ["", ", mask=(p < 20) & (f < 3)"])
@pytest.mark.parametrize("target, value, stored", [
    ("read", "nl.load(x[rows - 1 - p, f]{mask})", "read"), ("tile[p, f]", "nl.load(x[31 - p, f]{mask})", "tile[p, f]"),
    ("tile[p + 16, f]", "nl.load(x[31 - p, f]{mask})", "tile[p + 16, f]"),
    ("read", "nl.exp(nl.load(x[39 - p, f], dtype=nl.bfloat16){mask})", "read")])
def test_values_of_rows_that_are_loaded_backwards(target, value, stored, mask, tmp_path):
    text = LOADED_ROWS.format(target=target, value=value.format(mask=mask), stored=stored, mask=mask)
    assert_same_values(text, tmp_path, floats(40, 24))


@pytest.mark.parametrize("target, value, stored, mask", [
    ("read", "nl.load(x[31 - p, f], mask=p >= 5)", "nl.exp(read)", ", mask=p >= 5"),
    ("read", "nl.load(x[31 - p, f], mask=(p >= 5) & (f >= 3))", "read", ", mask=(p >= 5) & (f >= 3)"),
    ("tile[p, f]", "nl.load(x[31 - p, f], mask=p >= 5)", "tile[p, f]", ""),
    ("read", "nl.load(x[39 - p, 23 - f])", "read", ""), ("tile[p, f]", "nl.load(x[31 - p, 23 - f])", "tile[p, f]", ""),
    ("read", "nl.load(x[31 - p, cols - 1 - f], mask=(p < 20) & (f < 9))", "read", ", mask=(p < 20) & (f < 9)"),
    ("read", "nl.load(x[p, f + 3 - nl.arange(1)[None, :]], mask=f < 9)", "read", ", mask=f < 9"),
    ("read", "nl.load(x[p + nl.arange(1)[None, :], f + nl.arange(1)[:, None]])", "read", "")])
def test_values_of_other_loads_backwards(target, value, stored, mask, tmp_path):
    text = LOADED_ROWS.format(target=target, value=value, stored=stored, mask=mask)
    assert_same_values(text, tmp_path, floats(40, 24))


@pytest.mark.parametrize("subscript", ["31 - p, 23 - f", "31 - p, (23 - f) // 1", "p, 23 - f", "31 - p, f"])
@pytest.mark.parametrize("mask", ["", ", mask=f >= 23", ", mask=f >= 20", ", mask=p >= 31"])
def test_values_of_stores_backwards(subscript, mask, tmp_path):
    text = ROWS.format(row="p", value="nl.exp(tile)", mask=mask).replace("out[p, f]", f"out[{subscript}]")
    report = MigrationReport("kernel.py")
    rewritten(HEAD + text, report)
    if report.is_complete:
        assert_same_values(text, tmp_path, floats(32, 24))
    assert report.is_complete or (subscript.startswith("31 - p, ") and subscript != "31 - p, f")


@pytest.mark.parametrize("subscript, shape", [
    ("x[nl.arange(3)[None, :, None] + p, 9 - nl.arange(3)[None, :, None], f]", (34, 12, 8)),
    ("x[5 + p, 3 - nl.arange(3)[None, :, None] + nl.arange(3)[None, :, None] * 0 + f, 7 - f]", (40, 12, 8)),
    ("x[2 - nl.arange(3)[None, :, None], 3 + nl.arange(3)[None, :, None], p * 8 + f]", (3, 12, 256)),
    ("x[31 - p, nl.arange(3)[None, :, None] + p, f]", (32, 40, 8)),
    ("x[p, nl.arange(3)[None, :, None] - p + 31, 7 - f]", (32, 40, 8))])
def test_axes_that_move_several_dimensions(subscript, shape, tmp_path):
    """The first of these dimensions decides whether an axis steps backwards."""
    assert_same_values(f"""def kernel(x):
    out = nl.ndarray((32, 3, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(32)[:, None, None], nl.arange(8)[None, None, :]
    nl.store(out, nl.load({subscript}))
    return out
""", tmp_path, floats(*shape))


@pytest.mark.parametrize("mask", ["p >= f", "p < rows - 20"])
def test_rows_under_other_masks_are_left(mask):
    report = MigrationReport("kernel.py")
    rewritten(HEAD + LOADED_ROWS.format(target="read", value=f"nl.load(x[31 - p, f], mask={mask})", stored="read",
                                        mask=f", mask={mask}"), report)
    assert [e.text for e in report.entries if e.left]


@pytest.mark.parametrize("rows", ["1 + nl.arange(11)[:, None]", "nl.arange(32)[:, None]"])
def test_a_reversed_part_may_begin_at_any_row(rows, tmp_path):
    text = f"""def kernel(x):
    out = nl.ndarray((32, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    result = nl.full((32, 8), 2.0, dtype=nl.float32)
    tile = nl.load(x)
    result[{rows}, 7 - nl.arange(8)[None, :]] = nl.exp(tile[{rows}, nl.arange(8)[None, :]])
    nl.store(out, result)
    return out
"""
    assert ("dma_copy(dst=result[1:12]" in migrated(text)) == rows.startswith("1")
    assert_same_values(text, tmp_path, floats(32, 8))
