# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that a mask restricts, where the text reads their shape or stores them without the mask."""

import numpy as np
import pytest

from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.operation_text import LATER_ROWS
from nki_mlir.migration.report import MigrationReport

from .test_text import HEAD, assert_same_values, floats, migrated

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


STATISTICS = """def kernel(x):
    out = nl.ndarray((40, 6), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((40, 6), dtype=nl.float32))
    stats = nisa.bn_stats(nl.load(x[0:40, 0:16]), mask=nl.arange(40)[:, None] < 28)
    nl.store(out[...], stats)
    return out
"""


def test_store_of_a_tile_that_a_number_of_rows_cuts():
    assert "nl.store(out[0:28], stats)" in migrated(STATISTICS)


SOME = """def kernel(x):
    out = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:64, 0:32]
    tile = nl.load(x[0:64, 0:32])
    result = nl.full((64, 1), 7.0, dtype=nl.float32)
    result[...] = {reduction}, mask={mask})
    nl.store(out, result)
    return out
"""
REDUCTIONS = ["nl.max(tile, axis=1, keepdims=True", "nisa.tensor_reduce(np.add, tile, axis=(1,)",
              "nl.mean(tile, axis=1, keepdims=True", "nl.min(tile, axis=[1], keepdims=True"]


@pytest.mark.share(3)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("mask", ["i_f >= i_p", "i_f < i_p - 3", "i_f == i_p", "(i_f > i_p - 40) & (i_f < i_p)"])
def test_rows_in_which_a_mask_selects_nothing_keep_their_values(reduction, mask, tmp_path):
    kernel = SOME.format(reduction=reduction, mask=mask)
    assert "has_some = nl.max(is_selected" in migrated(kernel)
    if "mean" not in reduction:             # whose quotient is rounded twice
        assert_same_values(kernel, tmp_path, floats(64, 32))


@pytest.mark.parametrize("mask", ["i_f <= i_p", "i_f >= i_p - 32", "i_f + 3 > i_p - 30"])
def test_mask_that_selects_an_element_in_each_row_needs_no_other_tile(mask, tmp_path):
    kernel = SOME.format(reduction=REDUCTIONS[0], mask=mask)
    assert "has_some" not in migrated(kernel)
    assert_same_values(kernel, tmp_path, floats(64, 32))


LATER = """def kernel(x):
    out = nl.ndarray((40, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:40, 0:16]
    tile = nl.load(x[i_p, i_f])
    {statements}
    nl.store(out[i_p, i_f], result, mask=i_p >= {first})
    return out
"""


@pytest.mark.parametrize("first", ["0", "13", "num"])
def test_new_tile_under_a_mask_that_leaves_out_its_first_rows_has_all_rows(first, tmp_path):
    statements = f"num = 7\n    result = nl.exp(tile, mask=i_p >= {first})"
    assert "result = nl.exp(tile" in migrated(LATER.format(statements=statements, first=first))
    kernel = LATER.format(statements=statements, first=first).replace("    tile =", "    nl.store(out, nl.zeros((40, 16), dtype=nl.float32))\n    tile =")
    assert_same_values(kernel, tmp_path, floats(40, 16))


def test_rows_of_a_tile_from_which_a_mask_begins(tmp_path):
    statements = "result = nl.full((40, 16), 3.0, dtype=nl.float32)\n    result[...] = nl.exp(tile, mask=i_p >= 13)"
    assert_same_values(LATER.format(statements=statements, first="0"), tmp_path, floats(40, 16))


def test_rows_of_a_tile_from_a_row_that_is_no_number_are_left():
    statements = ("result = nl.full((40, 16), 3.0, dtype=nl.float32)\n"
                  "    result[...] = nl.exp(tile, mask=i_p >= x.shape[0] // 3)")
    report = MigrationReport("kernel.py")
    rewritten(HEAD + LATER.format(statements=statements, first="0"), report)
    assert [e.text for e in report.entries if e.left] == [LATER_ROWS]


def test_condition_leaves_the_dtype_of_a_verdict():
    kernel = LATER.format(statements="other = nl.logical_not(tile, mask=x.shape[0] > 3)\n    result = tile", first="0")
    assert "other = nl.ndarray((40, 16), dtype=nl.bool_, buffer=nl.sbuf)" in migrated(kernel)


EMPTY = """def kernel(x):
    out = nl.ndarray((2, 32, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:8]
    tile = nl.load(x[p, f])
    for h in nl.affine_range(2):
        nl.store(out[h, p, f], nl.zeros((32, 8), dtype=x.dtype))
        nl.store(out[h, p, f], tile, mask=(f < 7) & (f >= 5 + 2 * h))
    return out
"""


def test_stores__of_columns_that_may_be_none_have_a_condition(tmp_path):
    assert "        if num_columns > 0:\n            nl.store(out[h, :, nl.ds(start, num_columns)]" in migrated(EMPTY)
    assert_same_values(EMPTY, tmp_path, floats(32, 8))


PARTS = """def kernel(x):
    out = nl.ndarray((40, 20), dtype=nl.float32, buffer=nl.shared_hbm)
    sizes = nl.ndarray((40, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:40, 0:20]
    nl.store(out, nl.zeros((40, 20), dtype=nl.float32))
    result = nl.exp(nl.load(x[i_p, i_f]), mask={mask})
    nl.store(sizes, nl.full((40, 1), result.shape[0] * 100 + result.shape[1], dtype=nl.float32))
    nl.store(out[i_p, i_f], result, mask={mask})
    return out, sizes
"""


@pytest.mark.parametrize("mask", ["(i_f >= 13) & (i_p * 3 <= 80)", "(i_f >= 3) & (i_f < 9)",
                                  "(i_f >= 3) & (i_f < x.shape[1] - 4) & (i_p < x.shape[0] - 9)"])
def test_shape_of_a_tile_under_a_mask_that_leaves_out_first_columns(mask, tmp_path):
    assert_same_values(PARTS.format(mask=mask), tmp_path, floats(40, 20))


LARGEST = """def kernel(x):
    out = nl.ndarray((40, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:40, 0:16]
    tile = nl.load(x[i_p, i_f])
    nl.store(out, nl.zeros((40, 16), dtype=nl.float32))
    part = {part}, mask=i_p < 7)
    result = {result}
    nl.store(out[i_p, i_f], result, mask=i_p < 7)
    return out
"""
READS = [("nisa.max8(src=tile", "nisa.nc_match_replace8(data=tile, vals=part, imm=-4.0)"),
         ("nl.max(tile, axis=1, keepdims=True", "nisa.tensor_scalar(tile, np.subtract, part)"),
         ("nl.max(tile, axis=1, keepdims=True", "nisa.activation(nl.exp, tile, bias=part[:, 0:1])"),
         ("nl.exp(tile", "nl.where(tile > 0, part, tile)"),
         ("nl.exp(tile", "nl.where(part > 1.5, tile, 2.0)")]


@pytest.mark.parametrize("part, result", READS)
def test_tile_of_some_rows_beside_a_tile_of_all(part, result, tmp_path):
    assert_same_values(LARGEST.format(part=part, result=result), tmp_path, floats(40, 16))


DYNAMIC = """def kernel(x, at):
    out = nl.ndarray((8, 24), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:8, 0:24]
    j_p, j_f = nl.mgrid[0:8, 0:12]
    tile = nl.load(x[i_p, i_f])
    first = nl.load(at[0:1, 0:1])
    result = nl.full((8, 24), 3.0, dtype=nl.float32)
    {statement}, mask=j_p {mask})
    nl.store(out, result)
    return out
"""
COPIES = ["nisa.tensor_copy_dynamic_dst(src=tile[:, 0:12], dst=result[j_p, first[0, 0] + j_f]",
          "result[j_p, j_f] = nisa.tensor_copy_dynamic_src(tile[j_p, first[0, 0] + j_f]"]


@pytest.mark.parametrize("statement", COPIES)
def test_copies_at_the_run_time_of_rows_where_no_engine_starts_are_left(statement, tmp_path):
    report = MigrationReport("kernel.py")
    rewritten(HEAD + DYNAMIC.format(statement=statement, mask=">= 3"), report)
    assert [e.text for e in report.entries if e.left] == [LATER_ROWS]
    assert_same_values(DYNAMIC.format(statement=statement, mask="< 3"), tmp_path, floats(8, 24),
                       np.array([[5]], np.int32))


ONE = """def kernel(x):
    out = nl.ndarray((40, 20), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:40, 0:20]
    tile = nl.load(x[i_p, i_f])
    nl.store(out, nl.zeros((40, 20), dtype=nl.float32))
    result = nl.exp(tile, mask={mask})
    nl.store(out[...], tile + result)
    return out
"""


@pytest.mark.parametrize("mask", ["(i_p < 1) & (i_f < 19)", "(i_p < 30) & (i_f < 1)"])
def test_tile_of_which_a_mask_selects_one_row_or_column_is_not_repeated(mask):
    assert "broadcast" not in migrated(ONE.format(mask=mask))


COMPUTED = """def kernel(x):
    out = nl.ndarray((40, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:40, 0:16]
    nl.store(out, nl.zeros((40, 16), dtype=nl.float32))
    tile = nl.load(x[i_p, i_f], mask=(i_p < 30) & (i_f < 9))
    result = nl.full((40, 16), 2.0, dtype=nl.float32)
    {statements}
    nl.store(out[i_p, i_f], result, mask=(i_p < 30) & (i_f < 9))
    return out
"""


@pytest.mark.parametrize("statements", [
    "double = nl.add(tile, tile); root = nl.exp(double); assert root.shape == (40, 16); result[...] = nl.copy(root)",
    "part = nisa.tensor_partition_reduce(np.add, tile, mask=i_p < 14); assert part.shape == (1, 16); "
    "result[0:1, 0:9] = nl.copy(part[0:1, 0:9])",
    "tile = nl.load(x[i_p, i_f], mask=i_p < 30); result[...] = nl.exp(tile, mask=i_p >= 5)",
    "result = nisa.scalar_tensor_tensor(data=nl.load(x[i_p, i_f]), op0=np.multiply, operand0=2.0, op1=np.add, "
    "operand1=tile)",
    "result = nisa.scalar_tensor_tensor(data=tile, op0=np.multiply, operand0=2.0, op1=np.add, "
    "operand1=nl.load(x[i_p, i_f]))",
    "result[...] = nisa.scalar_tensor_tensor(data=nl.load(x[i_p, i_f]), op0=np.multiply, operand0=2.0, op1=np.add, "
    "operand1=tile, mask=(i_f < 5) | (i_f < 3))"],
    ids=["shape of a computed tile", "sum of some rows", "first rows of a cut tile", "cut columns of the last operand",
         "cut columns of the first operand", "cut columns under a mask that is no box"])
def test_tile_computed_from_a_part_of_another(statements, tmp_path):
    assert_same_values(COMPUTED.format(statements=statements), tmp_path, floats(40, 16))


def test_copy_at_the_run_time_of_a_tile_that_a_mask_has_cut(tmp_path):
    statement = "part = nl.copy(tile[:, 0:12], mask=j_p < 3)\n    "
    kernel = DYNAMIC.format(statement=statement + COPIES[0].replace("tile[:, 0:12]", "part"), mask="< 8").replace(
        ", mask=j_p < 8", "").replace("nl.store(out, result)", "nl.store(out[0:3], result[0:3])").replace(
        "(8, 24), dtype=nl.float32, buffer", "(3, 24), dtype=nl.float32, buffer")
    assert_same_values(kernel, tmp_path, floats(8, 24), np.array([[5]], np.int32))


def test_statements_of_one_line_follow_each_other(tmp_path):
    kernel = COMPUTED.format(statements="tile = nl.exp(x_again); result[5:30] = nl.exp(tile[5:30, :])").replace(
        "    result =", "    x_again = nl.load(x)\n    result =")
    assert_same_values(kernel, tmp_path, floats(40, 16))


COPIED = """def kernel(x):
    out = nl.ndarray((2, 32, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    f, p = nl.arange(24)[None, :], nl.arange(32)[:, None]
    for g in nl.affine_range(2):
        old = nl.full((32, 24), 3, nl.float32)
        tile = nl.load(x)
        {statements}
        nl.store(out[g], old)
    return out
"""


@pytest.mark.parametrize("mask", ["(f < 12) | (p < 5)", "(f < 12) & (g >= 1)", "(f < 12) | (g >= 1)", "f >= p",
                                  "p >= 4", "p < 40 - 40 * g"])
def test_copy_of_a_tile_that_a_mask_has_written_in_part(mask, tmp_path):
    assert_same_values(COPIED.format(statements=f"new = nl.exp(tile, mask={mask}); old[...] = new"), tmp_path,
                       floats(32, 24))


def test_copy_of_a_tile_that_was_completed(tmp_path):
    statements = "new = nl.exp(tile, mask=(f < 12) | (p < 5)); new[...] = tile; old[...] = new"
    assert_same_values(COPIED.format(statements=statements), tmp_path, floats(32, 24))


@pytest.mark.parametrize("statements", [
    "new = nl.exp(tile, mask=f >= 4)\n        if g == 1:\n            new = nl.exp(tile, mask=(f < 4) | (p < 5))"
    "\n        old[...] = new",
    "h = g; new = nl.exp(tile, mask=(f < 12) | (h >= 1)); h = 1; old[...] = new",
    "new = nl.exp(tile, mask=f >= p); fill(new); old[...] = new",
    "new = nl.exp(tile, mask=(f < 12) | (p < 5)) if x.shape[0] > 4 else tile; old[...] = new",
    "new = tile if x.shape[0] < 4 else nl.exp(tile, mask=(f < 12) & (g >= 1)); old[...] = new"])
def test_copy_under_a_mask_that_the_text_does_not_show_is_left(statements):
    report = MigrationReport("kernel.py")
    rewritten(HEAD.removesuffix("@nki.jit\n") + "def fill(tile):\n    tile[...] = 1.0\n\n\n@nki.jit\n" + COPIED.format(
        statements=statements), report)
    assert any("a tile that an operation wrote in part" in entry.text for entry in report.entries if entry.left)


def test_a_mask_of_rows_with_fewer_dimensions_than_the_result(tmp_path):
    """The result keeps the rows that the mask leaves out, since the text reads its shape."""
    text = """def kernel(x, numbers):
    out = nl.ndarray((16, 2, 16, 2), dtype=x.dtype, buffer=nl.shared_hbm)
    gathered = nisa.local_gather(nl.load(x[0:64, 0:6]), nl.load(numbers[0:64, 0:2]), 2,
                                 mask=nl.arange(64)[:, None] < 16)
    assert gathered.shape == (64, 2, 16, 2)
    nl.store(out, gathered[0:16])
    return out
"""
    numbers = np.zeros((64, 2), dtype=np.uint16)
    assert_same_values(text, tmp_path, floats(64, 6), numbers)


@pytest.mark.parametrize("statement", ["new[...] = base", "new[...] = nl.exp(base)", "new[...] = 3.0",
                                       "new[:, :] = nl.add(base, 1.0, mask=f < 15)"])
def test_a_tile_is_written_without_the_mask_that_cuts_it(statement, tmp_path):
    text = f"""def kernel(x, y):
    out = nl.ndarray((32, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:24]
    base = nl.load(y[0:32, 0:24])
    new = nl.load(x[p, f], mask=(p < 20) & (f < 10))
    {statement}
    nl.store(out[0:32, 0:24], base)
    nl.store(out[p, f], new, mask=f < 15)
    return out
"""
    assert_same_values(text, tmp_path, floats(32, 24), floats(32, 24) + 1)


def test_store_of_the_first_columns_of_a_tile_whose_shape_the_text_does_not_show(tmp_path):
    kernel = """def kernel(x, y):
    out = nl.ndarray((24, 40), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(24)[:, None], nl.arange(16)[None, :]
    left = nl.load(x)
    for i in nl.affine_range(3):
        right = nl.load(y[0:32, i * 16:(i + 1) * 16])
        product = nl.matmul(left, right, transpose_x=True)
        nl.store(out[p, i * 16 + f], product, mask=i * 16 + f < 40)
    return out
"""
    assert "], nl.copy(product[:, 0:num_columns]))\n" in migrated(kernel)
    assert_same_values(kernel, tmp_path, floats(32, 24), floats(32, 48))


def test_store_of_a_tile_with_the_rows_before_those_that_a_mask_selects(tmp_path):
    kernel = """def kernel(x):
    out = nl.ndarray((33, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:33, 0:1]
    tile, zeros = nl.load(x[0:33, 0:8]), nl.zeros((33, 1), dtype=x.dtype)
    largest = nisa.tensor_reduce(op=np.max, data=tile, axis=[1], mask=(p >= 2) & (2 * p <= 56), keepdims=True)
    nl.store(out[...], largest)
    nl.store(out[p, f], zeros[p, f], mask=p < 2)
    nl.store(out[p, f], zeros[p, f], mask=p > 28)
    return out
"""
    assert "    nl.store(out[0:tile_rows + 2], largest)\n" in migrated(kernel)
    assert_same_values(kernel, tmp_path, floats(33, 8))
