# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that a mask restricts, where the text reads their shape or stores them without the mask."""

from .test_text import assert_same_values, floats, migrated

MEANS = """def kernel(x):
    rows, cols = x.shape
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:64, 0:64]
    for i in nl.affine_range((rows + 63) // 64):
        ok = (i * 64 + ip < rows) & (jf < {stop})
        tile = nl.load(x[i * 64 + ip, jf], mask=ok)
        total = nl.sum(tile, axis=1, mask=ok, keepdims=True)
        mean = total * (1.0 / {columns})
        nl.store(out[i * 64 + ip, nl.arange(1)[None, :]], mean, mask=i * 64 + ip < rows)
    return out
"""


def test_shape_of_a_masked_tile_is_that_of_all_its_elements(tmp_path):
    kernel = MEANS.format(stop="cols", columns="tile.shape[1]")
    assert "tile = nl.ndarray((64, 64), dtype=" in migrated(kernel)
    assert_same_values(kernel, tmp_path, floats(100, 40))


def test_shape_of_a_tile_under_a_mask_with_numbers(tmp_path):
    assert_same_values(MEANS.format(stop="24", columns="tile.shape[1]"), tmp_path, floats(100, 64))


def test_shape_that_is_unpacked(tmp_path):
    kernel = MEANS.format(stop="cols", columns="width").replace("        mean =", "        _, width = tile.shape\n        mean =")
    assert_same_values(kernel, tmp_path, floats(100, 40))


def test_tile_whose_shape_nothing_reads_has_the_elements_of_the_mask():
    assert "(64, 64)" not in migrated(MEANS.format(stop="cols", columns="cols"))


STORED = """def kernel(x):
    rows, cols = x.shape
    out = nl.ndarray((2, 128, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:128, 0:cols]
    for i in nl.affine_range(2):
        nl.store(out[i, ...], nl.zeros((128, cols), dtype=x.dtype))
        tile = nl.load(x[i * 128 + ip, jf], mask=i * 128 + ip < rows)
        nl.store(out[i, ...], nl.copy(tile))
    return out
"""


def test_store_without_the_mask_writes_the_elements_of_the_mask():
    text = migrated(STORED)
    assert "nl.store(out[i, 0:num_rows, :], nl.copy(tile))" in text


def test_tile_of_all_rows_is_stored_whole(tmp_path):
    assert_same_values(STORED, tmp_path, floats(256, 16))


INNER = """def kernel(x: nt.mutable_tensor, y):
    def doubled(tile):
        return nl.multiply(tile, 2.0)
    for i in nl.affine_range(2):
        nl.store(x[i * 128:(i + 1) * 128], doubled(nl.load(y[i * 128:(i + 1) * 128])))
"""


def test_return_of_an_inner_function_is_no_return_of_the_kernel(tmp_path):
    assert migrated(INNER).rstrip().endswith("    return x")
    assert_same_values(INNER, tmp_path, floats(256, 8), floats(256, 8))


GRID = """def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    g = nl.program_id(0)
    def spare():
        return g + 1
    nl.store(out[nl.ds(g * 32, 32), :], nl.exp(nl.load(x[nl.ds(g * 32, 32), :])))
    return out
"""


def test_inner_function_that_returns_may_be_in_a_loop_over_programs(tmp_path):
    assert_same_values(GRID, tmp_path, floats(96, 8), grid=(3,))
