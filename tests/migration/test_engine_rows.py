# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where rows of tiles begin: the numbers that the names of a function show."""

import ast

import pytest

from nki_mlir.machine import Machine
from nki_mlir.migration.engine_rows import UNKNOWN_ROW, divisor, integer, is_between, values_of
from nki_mlir.migration.facts import TensorFact
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

from .test_text import HEAD, assert_same_values, floats, migrated

TEXT = """
def kernel(x, rows):
    first, second = 32, rows * 16
    third = first * 4
    fourth = 5
    fourth = 6
    rows = 64
    (fifth, sixth), seventh = pair, 96
"""


def test_values__are_of_names_that_a_function_assigns_once() -> None:
    tree, = ast.parse(TEXT).body
    assert isinstance(tree, ast.FunctionDef)
    values = {name: ast.unparse(value) for name, value in values_of(tree).items()}
    assert values == {"first": "32", "second": "rows * 16", "third": "first * 4", "seventh": "96"}


@pytest.mark.parametrize(("text", "divides", "number"), [
    ("first", 32, 32), ("second", 16, None), ("third", 128, None), ("seventh", 96, 96), ("unknown", 1, None),
    ("first + seventh", 32, None), ("second - 24", 8, None), ("0", 0, 0), ("-first", 1, None),
    ("nl.tile_size.pmax", 128, 128), ("2 * nl.tile_size.pmax", 256, None), ("second * seventh", 16 * 96, None)])
def test_numbers_of_names(text: str, divides: int, number: int | None) -> None:
    tree, = ast.parse(TEXT).body
    assert isinstance(tree, ast.FunctionDef)
    node, values = ast.parse(text, mode="eval").body, values_of(tree)
    assert (divisor(node, values), integer(node, values)) == (divides, number)


@pytest.mark.parametrize(("view", "first", "count"), [
    ("t[nl.ds(0, 16), :]", 0, 16), ("t[nl.ds(32, 16), :]", 32, 16), ("t[nl.ds(33, 16)]", 33, 16),
    ("t[nl.ds(32, 64), 0:4]", 32, 64), ("t[nl.ds(64, 64)]", 64, 64), ("t[64:96, :]", 64, 32), ("t[5:6]", 5, 1),
    ("t[32:96]", 32, 64), ("t[0:128, 3]", 0, 128), ("t[0:100]", 0, 100), ("t[32:37][nl.ds(2, n)]", 34, 1),
    ("t[2:n]", 2, 1), ("t[nl.ds(32, n)]", 32, 1), ("t[33:40][:n]", 33, 1)])
def test_rows__that_no_engine_starts_at_are_between(view: str, first: int, count: int) -> None:
    illegal = not Machine.legal_start_partition(first, count)
    assert is_between(view, TensorFact("sbuf")) is is_between(view, TensorFact("psum")) is illegal
    assert not is_between(view, TensorFact("hbm"))


@pytest.mark.parametrize("view", ["t", "t[i:8]", "t[nl.ds(i, 16)]", "t[5]", "t[:, 5:6]", "f(t[5:6])"])
def test_rows__at_unknown_numbers_are_not_between(view: str) -> None:
    assert not is_between(view, TensorFact("sbuf"))


SELECTED = """def kernel(x):
    out, largest = [nl.ndarray(shape, dtype=x.dtype, buffer=nl.shared_hbm) for shape in (x.shape, (128, 1))]
    p, f = nl.mgrid[0:128, 0:8]
    tile = nl.load(x)
    chosen = nl.greater(tile, 0.5)
    result = nl.full((128, 8), 3.0, dtype=nl.float32)
    each = nl.full((128, 1), 5.0, dtype=nl.float32)
    nisa.select_reduce(dst=result, predicate=chosen, on_true=tile, on_false=-3.0, reduce_res=each,
                       reduce_cmd=nisa.reduce_cmd.reset_reduce, mask=p >= 87)
    nl.store(out, result)
    nl.store(largest, each)
    return out, largest
"""


def test_destinations__at_which_no_engine_starts_are_copied_there_and_back(tmp_path) -> None:
    text = migrated(SELECTED)
    assert text.count("nisa.dma_copy(dst=result[87:128], src=rows") == text.count("src=result[87:128])") == 1
    assert_same_values(SELECTED, tmp_path, floats(128, 8))


KEPT = """def kernel(x):
    out = nl.ndarray((32, 8), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:32, 0:8]
    tile = nl.load(x)
    kept = nl.zeros((32, 8), dtype=nl.bfloat16)
    kept[...] = nl.copy({view}, mask=p >= 3)
    nl.store(out, kept)
    return out
"""


@pytest.mark.parametrize("view, source", [("tile[:, ::2][:, 0:8]", "tile[:, ::2][:, 0:8][3:32]"),
                                          ("tile[p, f * 0]", "tile.ap([[tile.strides[0], 29], [0, 8]]")])
def test_copies__of_views_of_views_and_patterns_move_their_rows_at_once(view, source, tmp_path) -> None:
    assert f"nisa.dma_copy(dst=kept[3:32], src={source}" in migrated(KEPT.format(view=view))
    assert_same_values(KEPT.format(view=view), tmp_path, floats(32, 16))


STARTS = """def kernel(x):
    out = nl.ndarray((64, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x[0:64, 0:16])
    result = nl.zeros((64, 16), dtype=nl.float32)
    n = {size}
    for i in nl.affine_range(64 // n):
        {statement}
    nl.store(out[0:64, 0:16], result)
    return out
"""
STATEMENTS = ["other = nisa.activation(nl.exp, tile[nl.ds(i * n, n), 0:16])",
              "result[nl.ds(i * n, n), 0:16] = nisa.activation(nl.exp, tile[0:n, 0:16])"]


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize(("size", "is_shown"), [("32", True), ("x.shape[1] * 2", False)])
def test_rows__that_begin_where_the_text_does_not_show_are_reported(statement: str, size: str, is_shown: bool) -> None:
    report = MigrationReport("kernel.py")
    rewritten(HEAD + STARTS.format(statement=statement, size=size), report)
    assert any(entry.text == UNKNOWN_ROW for entry in report.entries) is not is_shown


def test_rows_that_no_engine_starts_at_are_loaded_there(tmp_path):
    kernel = """def kernel(x):
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(n)[:, None], nl.arange(d)[None, :]
    before = nl.zeros((n, d), dtype=x.dtype)
    before[p, f] = nl.load(x[p - 1, f], mask=p >= 1)
    nl.store(out, before)
    return out
"""
    assert "    nisa.dma_copy(dst=before[nl.ds(1, n - 1), :], src=x[0:n - 1, :])\n" in migrated(kernel)
    assert_same_values(kernel, tmp_path, floats(40, 8))


def test_patterns__whose_first_row_no_engine_starts_at_are_copied_there_and_back(tmp_path):
    kernel = """def kernel(x):
    out = nl.ndarray((2, 32, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:6, 0:4]
    tile = nl.load(x)
    for i in nl.affine_range(2):
        result = nl.full((32, 8), 3.0, dtype=nl.float32)
        result[9 + p, 7 - f] = nl.copy(tile[9 + p, f], mask=f >= 2 + i * 2)
        nl.store(out[i], result)
    return out
"""
    text = migrated(kernel)
    assert "dst=result[9:15], src=rows" in text and "src=result[9:15])" in text
    assert_same_values(kernel, tmp_path, floats(32, 8))


BACKWARDS = """def kernel(x):
    out = nl.ndarray((15, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:15, 0:16]
    t = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.sbuf)
    t[...] = nl.load(x)
    part = t[0:20, :]
    kept = nl.full((15, 16), 1, nl.float32)
    STATEMENT
    nl.store(out, kept)
    return out
"""


@pytest.mark.parametrize(("statement", "texts"), [
    ("kept[...] = nl.copy(t[p, 15 - f], mask=p >= 14)", """    rows = nl.ndarray((1, 16), dtype=t.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=t[14:15])
    nisa.dma_copy(dst=kept[14:15], src=nl.copy(rows.ap([[16, 1], [-1, 16]], offset=15)))
"""),
    ("kept[...] = nl.exp(part[p, 15 - f], mask=p >= 14)", """\
    rows = nl.ndarray((1, 16), dtype=part.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=part[14:15])
    nisa.dma_copy(dst=kept[14:15], src=nl.exp(rows.ap([[rows.strides[0], 1], [-rows.strides[1], 16]], \
offset=15 * rows.strides[1])))
"""),
    ("kept[0:3] = nl.copy(t[nl.arange(3)[:, None] + 14, 15 - nl.arange(16)[None, :]])", """\
    rows = nl.ndarray((3, 16), dtype=t.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=t[14:17])
    nisa.tensor_copy(dst=kept[0:3], src=rows.ap([[16, 3], [-1, 16]], offset=15))
"""),
    ("kept[0:3] = nl.copy(t[nl.arange(3)[:, None] + 32 - 32, 15 - nl.arange(16)[None, :]])", """\
    nisa.tensor_copy(dst=kept[0:3], src=t.ap([[16, 3], [-1, 16]], offset=15))
"""),
])
def test_rows_of_a_pattern_that_steps_backwards_are_copied_first(statement, texts, tmp_path) -> None:
    kernel = BACKWARDS.replace("STATEMENT", statement)
    _, _, new = migrated(kernel).partition("kept = nl.full((15, 16), 1, dtype=nl.float32, buffer=nl.sbuf)\n")
    assert new == texts + "    nl.store(out, kept)\n    return out\n"
    assert_same_values(kernel, tmp_path, floats(32, 16))
