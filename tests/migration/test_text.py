# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the new text of single idioms is, and that it computes the same values."""

import ast

import libcst as cst
import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.hoisted_counts import with_hoisted_counts
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.names import parsed
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.spare_imports import without_spare_imports
from nki_mlir.migration.view_parts import part_of
from tests.migration.test_migration import loaded

HEAD = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np


@nki.jit
"""


def new_text(kernel):
    report = MigrationReport("kernel.py")
    text = rewritten(HEAD + kernel, report)
    assert not [e.text for e in report.entries if e.left]
    return text


def migrated(kernel):
    return new_text(kernel).partition("@nki.jit\n")[2]


def assert_same_values(kernel, folder, *arguments, grid=()):
    install()
    values = []
    for name, source in (("text_old", HEAD + kernel), ("text_new", new_text(kernel))):
        (folder / f"{name}.py").write_text(source)
        function = loaded(folder / f"{name}.py", name).kernel
        if grid and name == "text_old":
            function = function[grid]
        keywords = {"grid": grid} if grid and name == "text_new" else {}
        values.append(function.run(tuple(a.copy() for a in arguments), keywords, "eager"))
    for one, wanted in zip(*(v if isinstance(v, tuple) else (v,) for v in values), strict=True):
        np.testing.assert_array_equal(one, wanted)


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


CARRIED = """def kernel(x):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:128, 0:16]
    for i in nl.affine_range((rows + 127) // 128):
        carry = nl.zeros((128, 1), dtype=nl.float32)
        for j in nl.sequential_range((cols + 15) // 16):
            mask = (i * 128 + ip < rows) & (j * 16 + jf < cols)
            data = nl.load(x[i * 128 + ip, j * 16 + jf], mask=mask)
            total = nisa.tensor_scalar(data, np.add, carry, mask=mask)
            nl.store(out[i * 128 + ip, j * 16 + jf], total, mask=mask)
            carry[:, :] = nl.copy(total[:, 15])
    return out
"""


def test_tile_that_a_subscript_leaves_is_not_cut(tmp_path):
    text = migrated(CARRIED)
    assert """        num_rows = min(128, rows - i * 128)
        for j in range((cols + 15) // 16):
            num_columns = min(16, cols - j * 16)
""" in text
    assert "total = nl.ndarray((num_rows, 16), dtype=" in text
    assert "nisa.tensor_scalar(dst=total[:, 0:num_columns]" in text and "src=total[:, 15:16]" in text
    assert_same_values(CARRIED, tmp_path, floats(150, 40))


ON_GRID = """def kernel(x, training=True):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if training:
        sums = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    else:
        sums = None
    batch = nl.program_id(0)
    tile = nl.load(x[nl.ds(batch * 32, 32), :])
    nl.store(out[nl.ds(batch * 32, 32), :], nl.exp(tile))
    if training:
        nl.store(sums[nl.ds(batch * 32, 32), :], nl.sum(tile, axis=1))
    if training:
        return out, sums
    return out
"""


def test_results_under_conditions_are_outside_of_the_loop_over_programs(tmp_path):
    text = migrated(ON_GRID)
    assert "        sums = None\n    for batch in range(grid[0]):\n        tile = " in text
    assert text.endswith("    if training:\n        return out, sums\n    return out\n")
    assert_same_values(ON_GRID, tmp_path, floats(128, 8), grid=(4,))


BLOCKS = """def kernel(x, table, numbers):
    n, d = x.shape
    out = nl.ndarray((n, 2 * d), dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.load(numbers)
    i_p, i_f = nl.mgrid[0:n, 0:d]
    which = nl.load(numbers[3, 0])
    picked = nl.load(table[which[0, 0], i_f])
    gathered = nl.load(table[rows[i_p, 0], i_f])
    product = nl.matmul(nl.copy(nl.transpose(x_sb := nl.load(x))), gathered[:, 0:d], transpose_x=True)
    nl.store(out[i_p, i_f], product)
    nl.store(out[i_p, d + i_f], nl.add(gathered, picked.broadcast_to((n, d))))
    return out
""".replace("x_sb := ", "")


def test_rows_by_tiles_of_numbers(tmp_path):
    text = migrated(BLOCKS)
    assert "which = nl.load(numbers[3:4, 0:1])" in text and "vector_offset=which" in text
    assert "vector_offset=rows[0:n, 0:1]" in text and "[d, n]" not in text.partition("vector")[0].partition("ap(")[0]
    assert "nl.matmul(nl.copy(nl.transpose(nl.load(x))), gathered" in text
    assert_same_values(BLOCKS, tmp_path, floats(16, 16), floats(32, 16), np.arange(16)[::-1, None].astype(np.int32))


COLUMN = """def kernel(x, w):
    c, h, k = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    column = nl.load(w)
    image = nl.load(x) * column[:, 0]
    nl.store(out, nl.maximum(image, column[:, 1]))
    return out
"""


def test_column_beside_a_tile_of_three_dimensions(tmp_path):
    assert ".expand_dim(2).broadcast(1, h).broadcast(2, k)" in migrated(COLUMN)
    assert_same_values(COLUMN, tmp_path, floats(16, 5, 7), floats(16, 2))


SCATTERED = """def kernel(x, numbers):
    n, d = x.shape
    out = nl.ndarray((n, n), dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.load(numbers)
    tile = nl.load(x)
    product = nl.matmul(tile, tile, transpose_x=True)
    nl.store(out[rows[nl.arange(n)[:, None], 0], nl.arange(n)[None, :]], value=product)
    return out
"""


def test_store_of_psum_by_row_numbers(tmp_path):
    assert "nl.copy(product)" in migrated(SCATTERED)
    assert_same_values(SCATTERED, tmp_path, floats(8, 8), np.arange(8)[::-1, None].astype(np.int32))


@pytest.mark.parametrize(("text", "items", "result"), [
    ("t", [":", ":"], "t"), ("t", ["0:n", ":"], "t[0:n]"), ("t[:, nl.ds(j * 6, 6)]", ["0:n", ":"],
                                                            "t[0:n, nl.ds(j * 6, 6)]"),
    ("t[:, 2, :]", [":", "0:n"], "t[:, 2, 0:n]"), ("t[:, k]", [":", "0:n"], "t[:, k][:, 0:n]"),
    ("t[0:4]", [":", "0:n"], "t[0:4, 0:n]"), ("t[0:4]", ["0:n"], "t[0:4][0:n]"),
    ("f(t)[:]", ["0:n"], "f(t)[:][0:n]"), ("t.ap([[1, 2]])", ["0:n"], "t.ap([[1, 2]])[0:n]"),
    ("t[:, 1:9:2]", ["0:n", ":"], "t[0:n, 1:9:2]")])
def test_part_of_a_view(text, items, result):
    assert part_of(text, items) == result


@pytest.mark.parametrize(("text", "integers", "result"), [
    ("t[:, m]", {"m"}, "t[:, m, 0:n]"), ("t[:, 2 * m + 1]", {"m"}, "t[:, 2 * m + 1, 0:n]"),
    ("t[:, m]", set(), "t[:, m][:, 0:n]"), ("t[:, m * k]", {"m"}, "t[:, m * k][:, 0:n]")])
def test_integers_of_a_view_take_no_part(text, integers, result):
    assert part_of(text, [":", "0:n"], integers) == result


@pytest.mark.parametrize(("before", "after"), [
    ("for j in y:\n    n = min(a, b)\n    f(n, j)", "n = min(a, b)\nfor j in y:\n    f(n, j)"),
    ("for j in y:\n    n = min(a, b - j)\n    f(n)", None),
    ("for j in y:\n    n = min(a, b)\n    f(n)\n    a = a + 1", None),
    ("for i in y:\n    for j in y:\n        n = min(a, b - i)\n        m = min(n, c - i)\n        f(n, m)",
     "for i in y:\n    n = min(a, b - i)\n    m = min(n, c - i)\n    for j in y:\n        f(n, m)"),
    ("c = 2\n# rows\nfor j in y:\n    # count\n    n = min(a, b)\n    f(n)",
     "c = 2\n# rows\nn = min(a, b)\nfor j in y:\n    # count\n    f(n)"),
    ("for j in y:\n    n = min(a, b)\n    f(n)\nfor j in y:\n    m = min(a, b)\n    f(m)",
     "n = min(a, b)\nfor j in y:\n    f(n)\nfor j in y:\n    f(n)"),
    ("n = min(a, b)\nf(n)\nb = 2\nm = min(a, b)\nf(m)", None),
    ("if a:\n    for j in y:\n        n = min(a, b)\n        f(n)", "if a:\n    n = min(a, b)\n    for j in y:\n"
     "        f(n)"),
    ("for j in y:\n    n = size(a)\n    f(n)", None),
    ("for j in y:\n    n = min(a, b)\n    f(n)\nn = 2", None)])
def test_counts_are_hoisted(before, after):
    statements = with_hoisted_counts(parsed(before), {"n", "m"})
    assert "".join(parsed_text(s) for s in statements) == (after or before) + "\n"


def parsed_text(statement):
    return cst.Module([statement]).code


def test_spare_imports():
    text = ("import nki.typing as nt\nfrom nki.typing import tensor, scalar\nimport nki\nfrom masks import rows, tail\n\n"
            "x: scalar = tail\n")
    assert without_spare_imports(text, ast.parse(""), {"rows", "tail"}, ()) == (
        "from nki.typing import scalar\nimport nki\nfrom masks import tail\n\nx: scalar = tail\n")


def test_imports_that_only_the_old_text_reads_are_removed():
    text = ("import math\nimport os\nfrom functools import lru_cache, partial, reduce\nfrom .math import ceil\n"
            "from tools import times\n\nx = reduce\n")
    assert without_spare_imports(text, ast.parse("math(partial, ceil, times, reduce)"), set(), ()) == (
        "import os\nfrom functools import lru_cache, reduce\nfrom .math import ceil\nfrom tools import times\n\n"
        "x = reduce\n")


@pytest.mark.parametrize(("before", "after"), [
    ("if cols % 2 != 0:\n        raise ValueError(f'{cols:d} columns')", "assert cols % 2 == 0, f'{cols} columns'"),
    ("if cols < 1 or cols > 512: raise ValueError", "assert cols >= 1 and cols <= 512, \"ValueError\""),
    ("if not cols:\n        raise ValueError('none')", "assert cols, 'none'"),
    ("if cols > 9 and rows > 900:\n        # too large\n        raise ValueError('x')",
     "# too large\n    assert not (cols > 9 and rows > 900), 'x'"),
    ("if cols is None:\n        raise ValueError('x')\n    elif cols > 99:\n        raise KeyError('y')",
     "if cols is None:\n        assert False, 'x'\n    elif cols > 99:\n        assert False, 'y'")])
def test_exceptions_become_assertions(before, after, tmp_path):
    kernel = f"""def kernel(x):
    rows, cols = x.shape
    {before}
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.exp(nl.load(x)))
    return out
"""
    assert f"    {after}\n    out = " in migrated(kernel)
    assert_same_values(kernel, tmp_path, floats(4, 8))


PAIRS = """def kernel(x, y):
    rows, cols = x.shape
    outs = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), nl.ndarray(y.shape, dtype=y.dtype,
                                                                                 buffer=nl.shared_hbm)]
    ip, jf = nl.arange(64)[:, None], nl.arange(cols)[None, :]
    for src, dst in ((x, outs[0]), (y, outs[1])):
        for i in nl.affine_range((rows + 63) // 64):
            tile = nl.load(src[i * 64 + ip, jf], mask=i * 64 + ip < rows)
            total = nl.zeros((64, 1), dtype=nl.float32)
            total[...] += nl.sum(tile, axis=1, mask=i * 64 + ip < rows)
            nl.store(dst[i * 64 + ip, jf], nl.multiply(tile, total, mask=i * 64 + ip < rows), mask=i * 64 + ip < rows)
    return outs[0], outs[1]
"""


def test_loop_over_pairs_of_tensors(tmp_path):
    text = migrated(PAIRS)
    assert "tile = nl.load(src[nl.ds(i * 64, num_rows)" in text
    assert "nisa.tensor_tensor(dst=total[0:num_rows], data1=total[0:num_rows], data2=" in text
    assert_same_values(PAIRS, tmp_path, floats(100, 8), floats(100, 8) + 1)


NAMED = """def kernel(x):
    rows, cols = x.shape
    out = nl.ndarray((rows, cols + 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    exp = nisa.activation_reduce(np.exp, tile, reduce_op=np.add,
                                 reduce_res=(total := nl.ndarray((nl.par_dim(rows), 1), dtype=nl.float32)))
    nl.store(out[:, 0:cols], exp)
    nl.store(out[:, cols:cols + 1], total)
    return out
"""


def test_assignment_within_an_expression(tmp_path):
    assert "    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)\n    exp = " in migrated(NAMED)
    assert_same_values(NAMED, tmp_path, floats(32, 8))


def test_index_vectors_of_what_may_be_no_tensor_are_left():
    report = MigrationReport("kernel.py")
    rewritten(HEAD + """def kernel(x, pick):
    i_p, i_f = nl.mgrid[0:128, 0:16]
    tensor = pick(x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(tensor[i_p, i_f], mask=i_p < 100))
    return out
""", report)
    assert [e.text for e in report.entries if e.left] == [
        "index vectors of a value that may or may not be a tensor: the text does not show it"]


BLOCKS_OF_PSUM = """def kernel(x):
    rows, cols = x.shape
    n, m = rows // 32, cols // 32
    out = nl.ndarray((cols, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    # a bank for each product
    bank = nl.ndarray((n, m, nl.par_dim(32), 32), dtype=nl.float32, buffer=nl.psum)
    kept = nl.ndarray((n, m, nl.par_dim(32), 32), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(n):
        for j in nl.affine_range(m):
            bank[i, j] = nisa.nc_transpose(nl.load(x[nl.ds(i * 32, 32), nl.ds(j * 32, 32)]))
            kept[i, j] = nisa.tensor_copy(bank[i, j, :, :])
    for i in nl.affine_range(n):
        for j in nl.affine_range(m):
            nl.store(out[nl.ds(j * 32, 32), nl.ds(i * 32, 32)], kept[i, j])
    return out
"""


def test_blocks_of_psum_are_tiles_of_the_loop(tmp_path):
    text = migrated(BLOCKS_OF_PSUM)
    assert """        for j in range(m):
            # a bank for each product
            bank = nl.ndarray((32, 32), dtype=x.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=bank, data=""" in text
    assert "nisa.tensor_copy(dst=kept[:, i, j], src=bank)" in text
    assert_same_values(BLOCKS_OF_PSUM, tmp_path, floats(64, 96))


@pytest.mark.parametrize(("before", "after", "shape"), [
    ("kept[i, j] = nisa.tensor_copy(bank[i, j, :, :])", "kept[i, j] = nisa.tensor_copy(bank[i, 0, :, :])", "32, m, 32"),
    ("for j in nl.affine_range(m):\n            bank", "for j, k in zip(range(m), range(m)):\n            bank",
     "32, m, 32"),
    ("kept[i, j] = nisa.tensor_copy(bank[i, j, :, :])", "kept[i, j] = nisa.tensor_copy(bank[0, j, :, :])",
     "32, n, m, 32"),
    ("bank[i, j, :, :])\n", "bank[i, j, :, :])\n    last = nl.copy(bank[0, 0])\n", "32, n, m, 32")])
def test_blocks_that_other_iterations_use_stay(before, after, shape):
    assert before in BLOCKS_OF_PSUM
    assert f"bank = nl.ndarray(({shape}), " in migrated(BLOCKS_OF_PSUM.replace(before, after))


def test_launch_of_another_name():
    report = MigrationReport("kernel.py")
    text = rewritten(HEAD.removesuffix("@nki.jit\n") + """
def scale(x, out):
    rows = nl.ds(nl.program_id(0) * 4, 4)
    nl.store(out[rows], nl.load(x[rows]))


def main(x, out, other):
    kernel = nki.trace(scale)
    nki.simulate_kernel(kernel[x.shape[0] // 4], x, out)
    other[3](x)
""", report)
    assert "    nki.simulate(kernel)(x, out, grid=(x.shape[0] // 4,))\n    other[3](x)\n" in text


MASKED_PRODUCT = """def kernel(x_t, w):
    k, m = x_t.shape
    _, n = w.shape
    out = nl.ndarray((m, n), dtype=x_t.dtype, buffer=nl.shared_hbm)
    x = nl.load(x_t)
    weights = nl.load(w)
    i_k, i_n = nl.mgrid[0:k, 0:32]
    i_m, j_n = nl.mgrid[0:m, 0:32]
    for j in nl.affine_range((n + 31) // 32):
        acc = nl.ndarray((nl.par_dim(m), 32), dtype=nl.float32, buffer=nl.psum)
        acc[i_m, j_n] = nisa.nc_matmul(x, weights[i_k, j * 32 + i_n], mask=(j * 32 + j_n < n) & (i_m < m - 1))
        product = nl.matmul(x, weights[i_k, j * 32 + i_n], transpose_x=True, mask=j * 32 + j_n < n)
        nl.store(out[i_m, j * 32 + j_n], product, mask=j * 32 + j_n < n)
        nl.store(out[i_m, j * 32 + j_n], nl.copy(acc), mask=(j * 32 + j_n < n) & (i_m < m - 1))
    return out
"""


def test_masks_of_products_are_of_rows_and_columns_of_the_result(tmp_path):
    text = migrated(MASKED_PRODUCT)
    assert ("nisa.nc_matmul(dst=acc[0:num_rows, 0:num_columns], stationary=x[:, 0:num_rows], "
            "moving=weights[0:k, nl.ds(j * 32, num_columns)], accumulate=False)") in text
    assert "nl.matmul(x, weights[0:k, nl.ds(j * 32, num_columns)], transpose_x=True)" in text
    assert_same_values(MASKED_PRODUCT, tmp_path, floats(48, 40), floats(48, 72))


PARTS_OF_A_SUM = """def kernel(x, y):
    out = nl.ndarray((32, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    i_k, i_m = nl.mgrid[0:16, 0:32]
    j_m, j_n = nl.mgrid[0:32, 0:24]
    left, right = nl.load(x), nl.load(y)
    acc = nl.zeros((32, 24), nl.float32, buffer=nl.psum)
    acc[j_m, j_n] += nisa.nc_matmul(left[i_k, i_m], right, mask=i_k < 10)
    nl.store(out, acc)
    return out
"""


def test_a_mask_of_the_rows_of_the_factors_shortens_the_sum(tmp_path):
    assert "nc_matmul(dst=acc, stationary=left[0:10, 0:32], moving=right[0:10])" in migrated(PARTS_OF_A_SUM)
    assert_same_values(PARTS_OF_A_SUM, tmp_path, floats(16, 32), floats(16, 24))


TRANSPOSED_IN_FLOAT32 = """def kernel(x):
    out = nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    half = nl.load(x, dtype=nl.bfloat16)
    bank = nl.ndarray((nl.par_dim(64), 32), dtype=nl.float32, buffer=nl.psum)
    bank[...] = nisa.nc_transpose(half)
    kept = nl.ndarray((nl.par_dim(64), 32), dtype=x.dtype, buffer=nl.sbuf)
    kept[...] = COPY
    nl.store(out, kept)
    return out
"""


@pytest.mark.parametrize(("read", "dtype", "write"), [
    ("nl.copy(bank)", "nl.bfloat16", "nisa.nc_transpose(dst=bank, data=half)"),
    ("nl.multiply(bank, 3.0)", "nl.float32", "nisa.tensor_copy(dst=bank, src=transposed)")])
def test_transposes_do_not_convert(read, dtype, write, tmp_path):
    kernel = TRANSPOSED_IN_FLOAT32.replace("COPY", read)
    text = migrated(kernel)
    assert f"bank = nl.ndarray((64, 32), dtype={dtype}, buffer=nl.psum)" in text and write in text
    assert_same_values(kernel, tmp_path, floats(32, 64))


WINDOWS = """def kernel(x):
    rows, h, w = x.shape
    out = nl.ndarray((rows, h, w), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_y, i_dy, i_x, i_dx = nl.mgrid[0:rows, 0:h, 0:3, 0:w, 0:2]
    tile = nl.load(x)
    best = nl.max(tile[i_p, i_y + i_dy, i_x + i_dx], axis=[2, 4], mask=(i_y + i_dy < h) & (i_x + i_dx < w))
    nl.store(out, best)
    return out
"""


def test_windows_that_a_mask_restricts_are_of_a_padded_tile(tmp_path):
    text = migrated(WINDOWS)
    assert "padded = nl.full((rows, h + 2, w + 1), -math.inf, dtype=x.dtype, buffer=nl.sbuf)" in text
    assert "nisa.tensor_copy(dst=padded[:, 0:h, 0:w], src=tile)" in text
    assert_same_values(WINDOWS, tmp_path, floats(16, 6, 7))
    (folder := tmp_path / "sums").mkdir()               # bytecode of a file of the same size would be used again
    assert_same_values(WINDOWS.replace("nl.max", "nl.sum"), folder, floats(16, 6, 7))


def test_windows_with_another_bound_stay():
    report = MigrationReport("kernel.py")
    rewritten(HEAD + WINDOWS.replace("i_y + i_dy < h)", "i_y + i_dy < h - 1)"), report)
    assert [e.text for e in report.entries if e.left] == [
        "a mask on an index of several axes, which may be out of bounds without the mask"]


BLOCKS_IN_A_FUNCTION = """def kernel(x):
    n, cols = x.shape
    out = nl.ndarray((64, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((n // 64, nl.par_dim(64), cols), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(n // 64):
        tiles[i] = nl.load(x[nl.ds(i * 64, 64), :])
    nl.store(out, total(tiles, nl.relu))
    return out


def total(tiles, act):
    acc = nl.zeros((nl.par_dim(tiles.shape[1]), tiles.shape[2]), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.sequential_range(tiles.shape[0]):
        acc[...] = act(nl.add(acc, tiles[i]), dtype=nl.float32)
    return acc
"""


def test_sizes_of_block_dimensions(tmp_path):
    text = migrated(BLOCKS_IN_A_FUNCTION)
    assert "acc = nl.zeros((tiles.shape[0], tiles.shape[2]), dtype=nl.float32, buffer=nl.sbuf)" in text
    assert "for i in range(tiles.shape[1]):" in text
    assert "nisa.tensor_copy(dst=acc, src=act(nl.add(acc, tiles[:, i]), dtype=nl.float32))" in text
    assert_same_values(BLOCKS_IN_A_FUNCTION, tmp_path, floats(192, 20))


COLUMN_UNDER_A_MASK = """def kernel(x, column):
    n, width = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    z = nl.load(column[0:64, :])
    i_p, i_f = nl.mgrid[0:64, 0:32]
    for c in nl.affine_range((width + 31) // 32):
        tile = nl.load(x[i_p, c * 32 + i_f], mask=c * 32 + i_f < width)
        nl.store(out[i_p, c * 32 + i_f], nl.subtract(tile, z, mask=c * 32 + i_f < width), mask=c * 32 + i_f < width)
    return out
"""


def test_column_of_unknown_width_is_broadcast_before_a_mask_cuts_it(tmp_path):
    text = migrated(COLUMN_UNDER_A_MASK)
    assert "nl.subtract(tile, nl.broadcast_to(z, (64, 32))[:, 0:num_columns])" in text
    assert_same_values(COLUMN_UNDER_A_MASK, tmp_path, floats(64, 72), floats(64, 1))
    assert_same_values(COLUMN_UNDER_A_MASK, tmp_path, floats(64, 72), floats(64, 32))


CACHE_OF_A_HELPER = """def kernel(x, cache, ids):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.load(ids)
    nl.store(out, nl.add(nl.load(x), pages(table=cache, rows=rows)))
    return out


def pages(table, rows):
    flat = table.reshape((table.shape[0], 24))
    i_p, i_f = nl.mgrid[0:rows.shape[0], 0:24]
    return nl.load(flat[rows[i_p, 0], i_f])
"""


def test_tensor_that_only_a_helper_reads(tmp_path):
    assert "vector_offset=rows[:, 0:1], indirect_dim=0" in migrated(CACHE_OF_A_HELPER)
    ids = np.random.default_rng(0).integers(0, 20, (16, 1)).astype(np.int32)
    assert_same_values(CACHE_OF_A_HELPER, tmp_path, floats(16, 24), floats(20, 4, 6), ids)


COLUMN_OF_PLANES = """def kernel(x, b):
    n, h, w = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((nl.par_dim(n), h, w), dtype=nl.float32)
    acc[...] = nl.load(x)
    column = nl.load(b.reshape((n, 1)))
    acc += column
    nl.store(out, acc)
    return out
"""


def test_column_added_to_planes_is_broadcast(tmp_path):
    text = migrated(COLUMN_OF_PLANES)
    assert "data2=column.expand_dim(2).broadcast(1, h).broadcast(2, w)" in text
    assert_same_values(COLUMN_OF_PLANES, tmp_path, floats(16, 3, 4), floats(16))


AXIS_OF_INDICES = """def kernel(x, cosine):
    n, columns = x.shape
    size = cosine.shape[1]
    heads = columns // size
    out = nl.ndarray((n, heads, size), dtype=x.dtype, buffer=nl.shared_hbm)
    i_n, i_h, i_d = nl.arange(n)[:, None, None], nl.arange(heads)[None, :, None], nl.arange(size)[None, None, :]
    tile, factors = nl.load(x), nl.load(cosine)
    nl.store(out, tile[i_n, i_h * size + i_d] * factors[i_n, i_d])
    return out
"""


def test_axis_that_no_dimension_has_is_one_of_one_element(tmp_path):
    assert "factors[0:n, 0:size].expand_dim(1).broadcast(1, heads)" in migrated(AXIS_OF_INDICES)
    assert_same_values(AXIS_OF_INDICES, tmp_path, floats(16, 24), floats(16, 8))


COLUMN_OF_UNKNOWN_WIDTH = """def kernel(x, labels):
    n, size = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.ds(0, 16)
    label = nl.load(labels[rows, :])
    nl.store(out[rows, :], nl.equal(nl.load(x[rows, :]), label.broadcast_to((16, size)), dtype=nl.float32))
    return out
"""


def test_broadcast_of_a_tile_of_unknown_width_stays(tmp_path):
    assert "nl.broadcast_to(label, (16, size))" in migrated(COLUMN_OF_UNKNOWN_WIDTH)
    x = np.round(floats(16, 8))
    assert_same_values(COLUMN_OF_UNKNOWN_WIDTH, tmp_path, x, x[:, 2:3].copy())


@pytest.mark.parametrize(("number", "member"), [
    ("dge_mode=0", "none"), ("dge_mode=1", "swdge"), ("dge_mode=3", "unknown"), ("oob_mode=1", "skip")])
def test_numbers_of_enumerations_are_those_of_beta(number, member):
    parameter = number.partition("=")[0]
    text = migrated(f"""def kernel(x):
    out = nl.ndarray((16, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x, {number})
    return out
""")
    assert f"nisa.dma_copy(dst=out, src=x, {parameter}=nisa.{parameter}.{member})" in text


GATHERED = """def kernel(x):
    out = nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    rows = nl.copy(nisa.iota(15 - nl.arange(16)[:, None], dtype=nl.int32))
    tile = nl.zeros((16, 8), dtype=nl.float32)
    nisa.dma_copy(dst=tile, src=x[rows, nl.arange(8)[None, :]], dge_mode=nisa.dge_mode.{mode})
    nisa.dma_copy(dst=out, src=tile, dge_mode=nisa.dge_mode.swdge)
    return out
"""


@pytest.mark.parametrize("mode", ["none", "hwdge", "swdge"])
def test_modes_that_the_current_generation_refuses_are_left_out(mode, tmp_path):
    assert (f"dge_mode={mode}" in migrated(GATHERED.format(mode=mode)).replace("nisa.dge_mode.", "")) == (mode == "swdge")
    assert_same_values(GATHERED.format(mode=mode), tmp_path, floats(16, 8))


MEANS = """def kernel(x):
    rows, cols = x.shape
    out = nl.ndarray((rows, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    kept = nl.zeros((rows, 1), dtype=nl.float32)
    kept[:, :] = nisa.tensor_reduce(np.mean, tile, axis=(1,))
    nl.store(out[:, 0:1], nisa.tensor_reduce(np.mean, tile, axis=[1], keepdims=True, dtype=nl.float32))
    nl.store(out[:, 1:2], kept)
    return out
"""


@pytest.mark.filterwarnings("ignore")
def test_means_become_nl_mean_because_tensor_reduce_has_none(tmp_path):
    assert "nl.mean(tile, axis=1, dtype=nl.float32, keepdims=True)" in migrated(MEANS)
    assert_same_values(MEANS, tmp_path, floats(32, 16))
