# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statements and functions that few kernels have: each is rewritten, or a line of the report says what is left."""

import ast
import contextlib

import numpy as np
import pytest

from nki_mlir.migration.files import MigrationError
from nki_mlir.migration.files import migrated as migrated_files
from nki_mlir.migration.modules import rewritten
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
    assert_same_values(PRODUCT, tmp_path, floats(80, 96), floats(80, 24))


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


def test_transpose_of_the_last_columns_is_left():
    report = MigrationReport("kernel.py")
    rewritten(HEAD + TRANSPOSED.format(bound=">= 10"), report)
    assert "nisa.nc_transpose under a mask that leaves out its first elements" in [e.text for e in report.entries if e.left]
