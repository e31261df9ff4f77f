# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index vectors and masks that a condition selects: the new text selects the numbers in which they differ."""

import pytest

from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

from .test_text import HEAD, assert_same_values, floats

COLUMNS = """def kernel(x):
    n, d = x.shape
    out = nl.ndarray((n, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:n, 0:8]
SELECT
    nl.store(out[p, f], nl.load(x[p, first]))
    return out
"""
ROWS = """def kernel(x):
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:d]
    for i in nl.affine_range((n + 127) // 128):
        nl.store(out[i * 128 + p, f], nl.zeros((128, d), x.dtype, buffer=nl.sbuf), mask=i * 128 + p < n)
    for i in nl.affine_range((n + 127) // 128):
SELECT
        nl.store(out[i * 128 + p, f], nl.load(x[i * 128 + p, f], mask=mask), mask=mask)
    return out
"""


def selecting(text: str, *lines: str) -> str:
    indent = "    " * (2 if "mask" in text else 1)
    return text.replace("SELECT", "\n".join(indent + line for line in lines))


def new_text(kernel: str) -> str:
    return rewritten(HEAD + kernel, MigrationReport("kernel.py"))


def left_in(kernel: str) -> list[str]:
    report = MigrationReport("kernel.py")
    rewritten(HEAD + kernel, report)
    return [entry.text for entry in report.entries if entry.left]


def test_a_conditional_expression_of_vectors_selects_start_and_step():
    assert new_text(selecting(COLUMNS, "first = 2 * f if d > 16 else f + 3")) .endswith("""shared_hbm)
    start = 0 if d > 16 else 3
    step = 2 if d > 16 else 1
    nl.store(out, nl.load(x[:, start:start + step * 7 + 1:step]))
    return out
""")


def test_branches_assign_start_and_step():
    text = selecting(COLUMNS, "if d > 16:", "    first = 2 * f", "else:", "    first = f + 3")
    assert """shared_hbm)
    if d > 16:
        start = 0
        step = 2
    else:
        start = 3
        step = 1
    nl.store(""" in new_text(text)


def test_a_mask_or_none_becomes_a_count():
    text = selecting(ROWS, "mask = (i * 128 + p < n) if n % 128 else None")
    assert "        num_rows = min(128, n - i * 128) if n % 128 else 128\n" in new_text(text)
    text = selecting(ROWS, "mask = None", "if n % 128:", "    mask = i * 128 + p < n")
    assert """        if n % 128:
            num_rows = min(128, n - i * 128)
        else:
            num_rows = 128
        nl.store(""" in new_text(text)


@pytest.mark.share(3)
@pytest.mark.parametrize("lines", [
    ["first = 2 * f if d > 16 else f"],
    ["first = f if d > 16 else 2 * f + 1"],
    ["first = (f if d > 24 else f + 1) if d > 16 else (f + 2 if n > 8 else 2 * f)"],
    ["first = f", "if d > 16:", "    first = first + 3"],
    ["if d > 24:", "    first = 3 * f", "elif d > 16:", "    first = 2 * f + 1", "else:", "    first = f + 2"],
    ["if d > 24:", "    first = 3 * f", "elif d > 16:", "    if n > 8:", "        first = f + 1", "    else:",
     "        first = f + 4", "else:", "    first = f + 2"],
    ["first = f", "if d > 16:", "    first = 2 * f", "if n > 8:", "    first = first + 1"],
    ["pair = (f, f + 1) if d > 16 else (f + 1, 2 * f)", "first = pair[1]"],
    ["for k in range(2):", "    first = k + f if d > 16 else 2 * f + k"],
    ["scale = 2 if d > 16 else 1", "first = scale * f if n > 8 else f + scale"],
], ids=repr)
@pytest.mark.parametrize("shape", [(16, 32), (8, 24), (16, 16)], ids=repr)
def test_values_of_selected_vectors(lines, shape, tmp_path):
    kernel = selecting(COLUMNS, *lines)
    assert left_in(kernel) == []
    assert_same_values(kernel, tmp_path, floats(*shape))


@pytest.mark.share(3)
@pytest.mark.parametrize("lines", [
    ["mask = (i * 128 + p < n) if n % 128 else None"],
    ["mask = None", "if n % 128:", "    mask = i * 128 + p < n"],
    ["mask = i * 128 + p < n", "if d > 16:", "    mask = (i * 128 + p < n) & (f < 16)"],
    ["mask = (i * 128 + p < n) & (f < 12) if d > 16 else (i * 128 + p < n)"],
    ["if n % 128:", "    mask = i * 128 + p < n", "else:", "    mask = (f < 7) & (f >= 2)"],
    ["mask = (i * 128 + p < n) & (i < 1) if d > 16 else (i * 128 + p < n)"],
    ["mask = (i * 128 + p < n) if d > 16 else ~(i * 128 + p >= n)"],
], ids=repr)
@pytest.mark.parametrize("shape", [(200, 32), (128, 16)], ids=repr)
def test_values_under_selected_masks(lines, shape, tmp_path):
    kernel = selecting(ROWS, *lines)
    assert left_in(kernel) == []
    assert_same_values(kernel, tmp_path, floats(*shape))


def test_values_of_a_predicate_of_selected_vectors(tmp_path):
    kernel = """def kernel(x):
    n, d = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:n, 0:d]
    last = p + 3 if d > 16 else 2 * p
    t = nl.load(x)
    nl.store(out, nisa.affine_select(pred=(last >= f), on_true_tile=t, on_false_value=-9.0))
    return out
"""
    assert left_in(kernel) == []
    for shape in ((16, 32), (16, 16)):
        assert_same_values(kernel, tmp_path, floats(*shape))


@pytest.mark.parametrize("lines", [
    ["first = f if d > 16 else 7 - f"],
    ["first = f", "for k in range(2):", "    first = first + 1"],
    ["first = f if d > 16 else p"],
], ids=repr)
def test_vectors_without_numbers_that_select_them_are_left(lines):
    assert any(text.startswith("index vectors or masks that a condition selects") for text in left_in(
        selecting(COLUMNS, *lines)))


@pytest.mark.parametrize("line", ["mask = (p > f) if d > 16 else (p < f)", "mask = (p < 4) if d > 16 else (p < 4) | (f < 3)"])
def test_masks_without_numbers_that_select_them_are_left(line):
    assert any(text.startswith("index vectors or masks that a condition selects") for text in left_in(
        selecting(ROWS, line)))
