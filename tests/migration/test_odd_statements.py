# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statements and functions that few kernels have: each is rewritten, or a line of the report says what is left."""

import ast
import contextlib

import numpy as np
import pytest

from nki_mlir.migration.files import MigrationError
from nki_mlir.migration.files import migrated as migrated_files
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.operation_text import LATER_ROWS
from nki_mlir.migration.report import MigrationReport

from .test_text import HEAD, assert_same_values, floats, migrated

KERNEL = """def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
BODY    nl.store(out, t)
    return out
"""
MATCH = """    match x.shape[0]:
        case 16 | 32 if x.shape[1] > 4:
            t = t * 2
        case _:
            t = nl.exp(t) + 1
"""
TRY = """    try:
        t = t * 2
    except ValueError:
        t = t * 3
    else:
        t = t * 5
    finally:
        t = t + 1
"""
ELSE = """    for i in range(2):
        t = t * 2
    else:
        t = t + 1
"""
PRODUCT = """def kernel(a, b):
    k, m = a.shape
    _, n = b.shape
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    i_k, i_m = nl.mgrid[0:64, 0:64]
    for j in nl.affine_range((m + 63) // 64):
        acc = nl.zeros((nl.par_dim(64), n), dtype=nl.float32, buffer=nl.psum)
        for s in nl.affine_range((k + 63) // 64):
            inside = (s * 64 + i_k < k) & (j * 64 + i_m < m)
            left = nl.load(a[s * 64 + i_k, j * 64 + i_m], mask=inside)
            i_r, i_n = nl.mgrid[0:64, 0:n]
            right = nl.load(b[s * 64 + i_r, i_n], mask=s * 64 + i_r < k)
            acc[...] += nisa.nc_matmul(left[i_k, i_m], right, mask=s * 64 + i_k < k)
        i_m2, i_n = nl.mgrid[0:64, 0:n]
        nl.store(out[j * 64 + i_m2, i_n], nl.copy(acc), mask=j * 64 + i_m2 < m)
    return out
"""


@pytest.mark.parametrize("body", [MATCH, TRY, ELSE], ids=["match", "try", "else"])
def test_all_parts_of_a_statement_are_rewritten(body, tmp_path):
    assert_same_values(KERNEL.replace("BODY", body), tmp_path, floats(16, 8))


def test_a_mask_of_a_product_may_select_rows_that_are_added(tmp_path):
    """Their sums are exact: BLAS may add other numbers of rows in another order."""
    assert_same_values(PRODUCT, tmp_path, np.rint(floats(80, 96) * 8), np.rint(floats(80, 24) * 8))


def test_a_mask_cuts_both_values_of_a_conditional_expression(tmp_path):
    """The rows of the last iteration leave the tensor without it."""
    rows = "i * 128 + nl.arange(128)[:, None]"
    body = f"""    n, d = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((n + 127) // 128):
        t = nl.load(x[i * 128:(i + 1) * 128] if n % 128 == 0 else x[{rows}, nl.arange(d)[None, :]], mask={rows} < n)
        u = t.reshape((128, 1, d)).reshape((128, d))
        nl.store(out[{rows}, nl.arange(d)[None, :]], u, mask={rows} < n)
    return out
"""
    for count in (200, 256):
        assert_same_values("def kernel(x):\n" + body, tmp_path, floats(count, 32))


def test_a_reshape_of_a_tile_keeps_the_rows_that_a_mask_selects(tmp_path):
    assert_same_values("""def kernel(x):
    n, d = x.shape
    out = nl.ndarray((n, 2, d // 2), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:d]
    j_p, j, j_f = nl.mgrid[0:128, 0:2, 0:d // 2]
    for i in nl.affine_range((n + 127) // 128):
        t = nl.load(x[i * 128 + i_p, i_f], mask=i * 128 + i_p < n).reshape((128, 2, d // 2))
        nl.store(out[i * 128 + j_p, j, j_f], t, mask=i * 128 + j_p < n)
    return out
""", tmp_path, floats(200, 32))


def test_an_index_that_a_condition_selects(tmp_path):
    assert_same_values("""def kernel(x):
    n, d = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:8, 0:d]
    for i in nl.affine_range(n // 8):
        nl.store(out[i * 8 + p, f], nl.load(x[(i if d > 16 else n // 8 - 1 - i) * 8 + p, f]))
    return out
""", tmp_path, floats(32, 16))


def test_a_function_on_one_line(tmp_path):
    line = ("def kernel(x): out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm); nl.store(out, nl.load(x) * 2); "
            "return out\n")
    assert_same_values(line, tmp_path, floats(16, 8))


@pytest.mark.parametrize(("kernel", "left"), [
    (KERNEL.replace("BODY", "    t = +t\n"), "+ before a tile"),
    ("async " + KERNEL.replace("BODY", ""), "kernel is asynchronous: write a plain function"),
    (KERNEL.replace("BODY", "    match x.shape:\n        case [n, m]:\n            t = t * n\n"),
     "an operand that may or may not be a tile: the text does not show it"),
    ("from other import inside\n" + KERNEL.replace("BODY", "    t = nl.load(x, mask=inside(nl.arange(16)[:, None]))\n"),
     "an index vector or a mask that inside gets, a function that the text does not show")])
def test_what_is_left(kernel, left):
    report = MigrationReport("kernel.py")
    *imports, body = kernel.rpartition("import inside\n") if "import" in kernel else ("", kernel)
    rewritten("".join(imports) + HEAD + body, report)
    assert left in str(report)


def test_an_annotation_of_a_number_goes():
    text = HEAD.replace("@nki.jit", "from neuronxcc.nki.typing import scalar\n\n@nki.jit") + KERNEL.replace(
        "(x):", "(x: nki.tensor, n: scalar) -> nki.tensor:", 1).replace("BODY", "    t = t * 2\n")
    new = rewritten(text, MigrationReport("kernel.py"))
    assert "def kernel(x, n):" in new and "scalar" not in new


def test_a_sum_of_very_many_terms_is_an_error(tmp_path):
    file = tmp_path / "long.py"
    file.write_text(HEAD + KERNEL.replace("BODY", "    t = t" + " + t" * 900 + "\n"))
    with pytest.raises(MigrationError, match="nests too deeply to be rewritten") as caught:
        migrated_files(file, "2.32")
    assert (caught.value.at.file, caught.value.at.line) == (str(file), HEAD.count("\n") + 4)


@pytest.mark.parametrize(("text", "line"), [
    ("x = 1\ny = " + "-" * 5000 + "1\n", 2),
    ("x = [\n" + "(" * 250 + "1" + ")" * 250 + "]\n", 2),
    ("if x:\n    pass\n" + "elif x:\n    y = 1 + 2\n" * 4000 + "z = 1 + 2 + 3 + 4\n", 1)])
def test_a_text_that_nests_too_deeply_for_python_has_the_line(tmp_path, text, line):
    with contextlib.suppress(SyntaxError, MemoryError, RecursionError):
        ast.parse(text)
        pytest.skip("this version of Python reads it")
    file = tmp_path / "deep.py"
    file.write_text(text)
    with pytest.raises(MigrationError, match="nests more deeply than Python reads") as caught:
        migrated_files(file, "2.32")
    assert (caught.value.at.file, caught.value.at.line) == (str(file), line)
    assert "fix: assign its parts to variables, or write functions for them" in str(caught.value)


ATOMIC = """def kernel(x, numbers):
    out = nl.ndarray((20, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((20, 16), dtype=x.dtype))
    chosen = nl.load(numbers[0:32, 0:1])
    nl.atomic_rmw(out[chosen, nl.arange(16)[None, :]], value=nl.load(x[0:32, 0:16]), op=np.add{mask})
    return out
"""


@pytest.mark.parametrize("mask", ["", ", mask=nl.arange(32)[:, None] >= 5", ", mask=nl.arange(16)[None, :] < 7"])
def test_equal_rows_are_updated_one_after_the_other(mask, tmp_path):
    text = migrated(ATOMIC.format(mask=mask))
    assert "        updated = out.ap(" in text and "vector_offset=chosen[nl.ds(row, 1)]" in text
    numbers = np.random.default_rng(1).integers(0, 20, (32, 1)).astype(np.int32)
    assert_same_values(ATOMIC.format(mask=mask), tmp_path, floats(32, 16), numbers)


def test_rows_by_numbers_of_a_tensor_of_unknown_shape(tmp_path):
    kernel = ATOMIC.format(mask="").replace("numbers[0:32, 0:1]", "numbers")
    assert "vector_offset=chosen[nl.ds(row, 1)]" in migrated(kernel)
    numbers = np.random.default_rng(1).integers(0, 20, (32, 1)).astype(np.int32)
    assert_same_values(kernel, tmp_path, floats(32, 16), numbers)


def test_tiles_do_not_hide_functions_of_python(tmp_path):
    kernel = """def kernel(x):
    out = nl.ndarray((32, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:16]
    tile = nl.load(x[p, f])
    kept = nl.copy(tile)
    kept[...] = nl.abs(tile, mask=p >= f)
    peak = nl.full((32, 1), 2.0, dtype=nl.float32)
    peak[...] = nl.max(tile, axis=1, keepdims=True, mask=p < f)
    nl.store(out, kept)
    for i in nl.sequential_range(2):
        nl.store(out[p, f], nl.multiply(kept, peak), mask=p >= 3 - i * 2)
    return out
"""
    text = migrated(kernel)
    assert "    abs_tile = nl.ndarray(" in text and "    largest = nl.ndarray(" in text
    assert_same_values(kernel, tmp_path, floats(32, 16))


TRANSPOSED = """def kernel(x):
    out = nl.ndarray((16, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.zeros((16, 32), dtype=nl.float32)
    for i in nl.sequential_range(2):
        kept[...] = nisa.nc_transpose(nl.load(x[0:32, 0:16]), mask=nl.arange(16)[None, :] {bound} - i)
    nl.store(out, kept)
    return out
"""


def test_transpose_writes_the_rows_of_the_columns_that_a_mask_selects(tmp_path):
    assert_same_values(TRANSPOSED.format(bound="< 10"), tmp_path, floats(32, 16))


def test_transpose_of_the_last_columns__into_a_tile_is_left():
    report = MigrationReport("kernel.py")
    rewritten(HEAD + TRANSPOSED.format(bound=">= 10"), report)
    assert LATER_ROWS in [e.text for e in report.entries if e.left]


DIAGONAL_TRANSPOSES = """def kernel(x):
    out = nl.ndarray((16, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:16]
    kept = nl.full((16, 32), 7.0, dtype=x.dtype)
    for i in nl.sequential_range(2):
        kept[...] = {call}{mask})
    nl.store(out, kept)
    return out
"""


@pytest.mark.parametrize("call, mask", [
    ("nl.transpose(nl.load(x), ", "mask=f <= p - i"), ("nisa.nc_transpose(nl.load(x), ", "mask=(p < 9) | (f > 12)"),
    ("nl.load_transpose2d(x[p, f], ", "mask=(f <= p) & (p < 20 + i)")])
def test_transposes_write_the_elements_of_a_mask_that_is_no_box(call, mask, tmp_path):
    kernel = DIAGONAL_TRANSPOSES.format(call=call, mask=mask)
    assert "    nisa.tensor_copy_predicated(dst=kept" in migrated(kernel)
    assert_same_values(kernel, tmp_path, floats(32, 16))


def test_copy_under_a_mask_that_is_no_box_needs_no_other_tile(tmp_path):
    kernel = """def kernel(x):
    out = nl.ndarray((32, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:16]
    tile = nl.load(x[p, f])
    low, narrow = nl.zeros((32, 16), dtype=x.dtype), nl.zeros((32, 16), dtype=nl.bfloat16)
    low[p, f] = nl.copy(tile, mask=f <= p)
    narrow[p, f] = nl.copy(tile, mask=f <= p)
    nl.store(out, low * narrow)
    return out
"""
    text = migrated(kernel)
    assert "    nisa.tensor_copy_predicated(dst=low, src=tile, predicate=is_selected)\n" in text
    assert "    nisa.tensor_copy_predicated(dst=narrow, src=copied, predicate=is_selected)\n" in text
    assert_same_values(kernel, tmp_path, floats(32, 16))


CUT_TRANSPOSES = """def kernel(x):
    out, other = [nl.ndarray((16, 32), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    nl.store(out, nl.zeros((16, 32), dtype=x.dtype))
    nl.store(other, nl.zeros((16, 32), dtype=x.dtype))
    columns, rows = nl.arange(16)[None, :], nl.arange(32)[:, None]
    {statement}
    assert t.shape == (16, 32)
    p, f = nl.arange(16)[:, None], nl.arange(32)[None, :]
    nl.store(out[p, f], t[p, f], mask=(p {columns}) & (f {rows}))
    nl.store(other[p, f], t.reshape((16, 32))[p, f], mask=(p {columns}) & (f {rows}))
    return out, other
"""


@pytest.mark.parametrize("columns, rows", [("< 10", "< 20"), (">= 5", ">= 7")])
@pytest.mark.parametrize("name", ["nl.transpose(nl.load({}), ", "nisa.nc_transpose(nl.load({}), ", "nl.load_transpose2d({}, ",
                                  "nisa.dma_transpose(nl.load({}), "])
def test_masked_transposes_keep_the_shape_that_the_text_reads(name, columns, rows, tmp_path):
    statement = f"t = {name.format('x[0:32, 0:16]')}mask=(columns {columns}) & (rows {rows}))"
    assert_same_values(CUT_TRANSPOSES.format(statement=statement, columns=columns, rows=rows), tmp_path, floats(32, 16))


CUT_REDUCTION = """def kernel(x):
    out = nl.ndarray((32, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((32, 1), dtype=x.dtype))
    p, f = nl.mgrid[0:32, 0:1]
    total = nl.sum(nl.load(x[0:32, 0:16]), axis=[1], mask=nl.arange(32)[:, None] < 20).reshape((32, 1))
    nl.store(out[p, f], total[p, f], mask=p < 20)
    return out
"""
CUT_SELECTION = """def kernel(x):
    out = nl.ndarray((32, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((32, 16), dtype=x.dtype))
    p, f = nl.mgrid[0:32, 0:16]
    chosen = nisa.affine_select(pred=p >= 2 * f, on_true_tile=nl.load(x[p, f]), on_false_value=-3.0, mask=f < 11)
    assert chosen.shape == (32, 16)
    nl.store(out[p, f], chosen[p, f], mask=f < 11)
    return out
"""
CUT_SUMS = """def kernel(x):
    out = nl.ndarray((32, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:16]
    nl.store(out, nl.zeros((32, 16), dtype=x.dtype))
    rows = nl.copy(nisa.iota(nl.arange(32)[:, None], dtype=nl.int32))
    value = nl.load(x[p, f], mask=p < 20)
    nl.atomic_rmw(out[rows, f], nl.exp(value), op=np.add)
    return out
"""
SECOND_NAME = """def kernel(x):
    out = nl.ndarray((32, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((32, 16), dtype=x.dtype))
    p, f = nl.mgrid[0:32, 0:16]
    value = nl.exp(nl.load(x[p, f]), mask=p < 20)
    same = value
    nl.store(out[p, f], same[nl.arange(32)[:, None], nl.arange(16)[None, :]], mask=p < 20)
    return out
"""
CUT_NUMBERS = """def kernel(x):
    out = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((32, 16), dtype=x.dtype))
    p, f = nl.mgrid[0:32, 0:16]
    numbers = nisa.iota(3 * p - f + 2, dtype=nl.int32, mask=f >= 11)
    nl.store(out[p, f], numbers[p, f], mask=f >= 11)
    return out
"""
LAST_ROWS = """def kernel(x):
    out = nl.ndarray((32, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:16]
    result = nl.full((32, 1), 7.0, dtype=nl.float32)
    result[...] = nl.min(nl.load(x[p, f]), axis=1, keepdims=True, mask=(p == f + 9) & (p >= 5))
    nl.store(out, result)
    return out
"""
STATISTICS = """def kernel(x):
    out = nl.ndarray((32, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        rows = i * 20 + nl.arange(20)[:, None]
        tile = nl.load(x[rows, nl.arange(16)[None, :]], mask=rows < 32)
        parts = nl.ndarray((20, 2, 6), dtype=nl.float32)
        for j in nl.affine_range(2):
            parts[:, j, :] = nisa.bn_stats(tile[:, nl.ds(j * 8, 8)], dtype=nl.float32, mask=rows < 32)
        nl.store(out[rows, nl.arange(2)[None, :]], nisa.bn_aggr(parts, mask=rows < 32), mask=rows < 32)
    return out
"""


@pytest.mark.parametrize("kernel", [CUT_REDUCTION, CUT_SELECTION, SECOND_NAME, CUT_NUMBERS, LAST_ROWS, STATISTICS])
def test_later_statements_read_the_tile_that_a_mask_cuts(kernel, tmp_path):
    assert_same_values(kernel, tmp_path, floats(32, 16))


def test_atomic_sums__of_a_cut_value_update_its_rows():
    assert "for row in range(20):" in migrated(CUT_SUMS)


LARGEST = """def kernel(x):
    out = nl.ndarray((48, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    rest = nl.ndarray((48, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(32)[:, None], nl.arange(16)[None, :]
    for i in nl.affine_range(2):
        tile = nl.load({tile})
        best = nisa.max8(src=tile, mask=i * 30 + p < 48)
        numbers = nisa.nc_find_index8(data=tile, vals=best)
        nl.store(out[i * 30 + p, nl.arange(8)[None, :]], numbers, mask=i * 30 + p < 48)
        other = nisa.nc_match_replace8(data=tile, vals=best, imm=-1.0)
        nl.store(rest[i * 30 + p, f], other, mask=i * 30 + p < 48)
    return out, rest
"""


@pytest.mark.parametrize("tile", ["x", "x[0:32, 0:16]"])
def test_searches_read_the_rows_of_the_values_that_a_mask_cuts(tile, tmp_path):
    assert_same_values(LARGEST.format(tile=tile), tmp_path, floats(32, 16))


ONE_COLUMN = """def kernel(x):
    out = nl.ndarray((40, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((40, 4), dtype=x.dtype))
    p, f = nl.arange(40)[:, None], nl.arange(1)[None, :]
    for i in nl.sequential_range(3):
        nl.store(out[0:40, nl.ds(i, 1)], nl.load(x[0:40, 3:4]), mask=(p >= 38) & (f == 0 + i * -1))
    return out
"""


def test_stores_by_rows__start_at_the_first_column(tmp_path):
    assert_same_values(ONE_COLUMN, tmp_path, floats(40, 16))


@pytest.mark.parametrize("call", [
    "nisa.activation_reduce(np.square, t, reduce_op=np.add, reduce_res=total)",
    "nisa.activation_reduce(op=np.square, data=t, reduce_op=np.add, reduce_res=total)",
    "_ = nisa.activation_reduce(np.square, t, reduce_op=np.add, reduce_res=total)"])
def test_a_statement_ignores_the_result_of_an_instruction(call):
    """The first argument is not taken for a destination, and no line names the tile alone."""
    text = migrated(KERNEL.replace("BODY", "    total = nl.ndarray((16, 1), dtype=nl.float32)\n"
                                   f"    {call}\n    t = t * total\n"))
    assert "nisa.activation_reduce(dst=square, op=nl.square, data=t, reduce_op=nl.add, reduce_res=total)" in text
    assert "    square\n" not in text
