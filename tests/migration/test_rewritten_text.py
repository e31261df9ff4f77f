# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Details of rewritten texts: comments of statements that go, shapes of tiles that an instruction needs."""

from pathlib import Path

import pytest

from nki_mlir.migration.files import migrated

HEADER = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, index):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
"""


def rewritten(folder: Path, body: str) -> list[str]:
    """Return the lines that the body of a kernel becomes."""
    file = folder / "kernel.py"
    file.write_text(HEADER + "".join(f"    {line}\n" for line in body.splitlines()) + "    return out\n")
    one, = migrated(file, "2.32")
    lines = one.new.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("    out = "))
    return [line.strip() for line in lines[start + 1:-1]]


def test_comments_of_removed_statements__stay_in_front_of_the_next(tmp_path):
    assert rewritten(tmp_path, """# rows
i_p = nl.arange(128)[:, None]
# columns
i_f = nl.arange(64)[None, :]
# all of it
t = nl.load(x[i_p, i_f])
nl.store(out[i_p, i_f], t)""") == [
        "# rows", "# columns", "# all of it", "t = nl.load(x[0:128, 0:64])", "nl.store(out, t)"]


@pytest.mark.parametrize(("count", "shape"), [("", "(128, 1, 16, 1)"), (", num_elem_per_idx=2", "(128, 1, 16, 2)")])
def test_local_gather__has_16_results_for_each_column_of_indices(count, shape, tmp_path):
    lines = rewritten(tmp_path, f"t = nl.load(x)\ni = nl.load(index[0:128, 0:1])\nr = nisa.local_gather(t, i{count})")
    assert f"r = nl.ndarray({shape}, dtype=x.dtype, buffer=nl.sbuf)" in lines


def masked(folder: Path, mask: str) -> tuple[list[str], str]:
    """Return the assignments before a load under a mask, and the subscripts of the store."""
    lines = rewritten(folder, f"""n, m = index.shape
i_p = nl.arange(128)[:, None]
i_f = nl.arange(64)[None, :]
t = nl.load(x[i_p, i_f], mask={mask})
nl.store(out[i_p, i_f], t, mask={mask})""")
    store = next(line for line in lines if line.startswith("nl.store(out["))
    return [line for line in lines[1:] if " = " in line and "nl." not in line], store[13:store.index("]")]


@pytest.mark.parametrize(("mask", "counts", "part"), [
    ("i_p < n", ["num_rows = min(128, n)"], "0:num_rows, :"),
    ("i_f <= n", ["num_columns = min(64, n + 1)"], ":, 0:num_columns"),
    ("n > i_f", ["num_columns = min(64, n)"], ":, 0:num_columns"),
    ("(i_p < n) & (i_f < m)", ["num_rows = min(128, n)", "num_columns = min(64, m)"], "0:num_rows, 0:num_columns"),
    ("(i_p < n) & (i_p < m)", ["num_rows = min(128, n)", "tile_rows = min(128, m)",
                               "tile_rows_2 = min(num_rows, tile_rows)"], "0:tile_rows_2, :"),
    ("(i_f < n) & (i_f < m)", ["num_columns = min(64, n)", "tile_columns = min(64, m)",
                               "tile_columns_2 = min(num_columns, tile_columns)"], ":, 0:tile_columns_2"),
    ("(i_p >= n) & (i_p < m)", ["start = max(0, n)", "num_rows = min(128, m)", "tile_rows = num_rows - start"],
     "nl.ds(start, tile_rows), :"),
    ("(i_f > n) & (i_f <= m)", ["start = max(0, n + 1)", "num_columns = min(64, m + 1)",
                                "tile_columns = num_columns - start"], ":, nl.ds(start, tile_columns)"),
    ("(i_f >= n) & (i_f >= m)", ["start = max(0, n)", "start_2 = max(0, m)", "start_3 = max(start, start_2)",
                                 "num_columns = 64 - start_3"], ":, nl.ds(start_3, num_columns)"),
])
def test_mask__becomes_counts_named_after_rows_and_columns(mask, counts, part, tmp_path):
    assert masked(tmp_path, mask) == (counts, part)


@pytest.mark.parametrize(("call", "is_tile"), [
    ("fs[1](nl.load(x))", True), ("{'a': nl.exp}['a'](nl.load(x))", True), ("f(nl.load(x))", True),
    ("fs[1](nl.load(x), 1)", False), ("fs[1](2)", False), ("fs[0](nl.load(x), nl.load(x))", False)])
def test_function_from_a_table__gives_a_tile_of_the_shape_of_its_one_tile(call, is_tile, tmp_path):
    """Arithmetic on what is known to be a tile becomes a call."""
    lines = rewritten(tmp_path, f"fs = [nl.exp, nl.tanh]\nf = nl.exp\nt = {call}\nu = t + t\nnl.store(out, u)")
    assert ("u = nl.add(t, t)" in lines) is is_tile
    assert ("u = t + t" in lines) is not is_tile


@pytest.mark.parametrize(("body", "lines"), [
    ("# a\n...\n# b\nt = nl.load(x)\nnl.store(out, t)", ["# a", "# b", "t = nl.load(x)", "nl.store(out, t)"]),
    ("# a\n...\n# b\n...\nt = nl.load(x)\nnl.store(out, t)", ["# a", "# b", "t = nl.load(x)", "nl.store(out, t)"]),
    ("t = nl.load(x)\n# a\n...\nnl.store(out, t)", ["t = nl.load(x)", "# a", "nl.store(out, t)"]),
    ("for k in range(2):\n    # a\n    ...\n    t = nl.load(x)\n    nl.store(out, t)",
     ["for k in range(2):", "# a", "t = nl.load(x)", "nl.store(out, t)"])])
def test_comments_of_statements_without_effect__stay_in_front_of_the_next(body, lines, tmp_path):
    assert rewritten(tmp_path, body) == lines


@pytest.mark.parametrize(("number", "dtype", "text"), [
    ("2.7", "bfloat16", "2.703125"), ("2.7", "int32", "3"), ("-2.5", "int8", "-2"), ("300", "uint8", "255"),
    ("True", "float32", "1.0"), ("0.5", "float32", "0.5"), ("1e39", "float32", 'float("inf")'),
    ("x.shape[0] / 3", "int32", "min(max(round(x.shape[0] / 3), -2147483648), 2147483647)")])
def test_static_cast_of_a_number__is_the_number_that_beta_computes(number, dtype, text, tmp_path):
    assert rewritten(tmp_path, f"scale = nl.static_cast({number}, nl.{dtype})\n"
                               "nl.store(out, nl.load(x) * scale)")[0] == f"scale = {text}"


def test_static_cast_of_an_unknown_number_to_a_narrow_float__is_left(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(f"{HEADER}    scale = nl.static_cast(x.shape[0] / 3, nl.bfloat16)\n"
                    "    nl.store(out, nl.load(x) * scale)\n    return out\n")
    one, = migrated(file, "2.32")
    assert [e.text for e in one.report.entries if e.left] == [
        "nl.static_cast of a number that is not a constant to bfloat16"]


def test_parentheses_around_an_argument__go(tmp_path):
    assert rewritten(tmp_path, """s = nl.load(x[(64 * 1):(64 * 1) + 64, ((0)):(64)])
nl.store(out[0:64], ((s)))""") == [
        "s = nl.load(x[nl.ds(64 * 1, 64), 0:64])", "nl.store(out[0:64], s)"]


@pytest.mark.parametrize("function, name", [
    ("nl.sum(t, axis=1)", "total"), ("nl.max(t, axis=1)", "largest"), ("nl.abs(t)", "tile"),
    ("nl.load(x[0:128, 0:64])", "tile"), ("nl.prod(t, axis=1)", "prod"), ("nl.prod(t, axis=1)", "tile")])
def test_tile_that_the_new_text_needs_twice__is_named_after_its_function(function, name, tmp_path):
    source = f"""t = nl.load(x[0:128, 0:64])
n = index.shape[0]
s = {function} / n
nl.store(out, s)"""
    lines = rewritten(tmp_path, source.replace("t = ", "tile = ").replace("(t", "(tile") if name == "prod" else source)
    assert lines[2].startswith(f"{name} = nl.") and lines[3].startswith(f"s = nl.multiply({name}, 1 / n, ")


def test_slice_of_a_list_of_tiles__is_a_list_of_tiles(tmp_path):
    lines = rewritten(tmp_path, """held = []
for i in range(3):
    held.append(nl.load(x[0:128, 0:64]))
s = held[:1][0]
for h in held[1:]:
    s = s + h
nl.store(out, s)""")
    assert lines[-4:] == ["s = held[:1][0]", "for h in held[1:]:", "s = nl.add(s, h)", "nl.store(out, s)"]


@pytest.mark.parametrize("call", ["sum(tiles)", "max(tiles)", "abs(tiles[0])", "sum([tiles[0], tiles[1]])"])
def test_functions_of_python_on_tiles__are_left(call, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(HEADER + f"""    tiles = [nl.load(x[0:128, 0:64]), nl.load(x[0:128, 64:128])]
    nl.store(out, {call})
    return out
""")
    one, = migrated(file, "2.32")
    name = call.partition("(")[0]
    assert [entry.text for entry in one.report.entries if entry.left] == [
        f"Python's {name} of tiles: call functions of nl on them, in a loop over a list"]


def test_sizes_from_a_class_method__are_numbers(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("from typing import NamedTuple\n" + HEADER.replace("@nki.jit", """class Sizes(NamedTuple):
    rows: int
    block: int = 32

    @classmethod
    def of(cls, x, block=32):
        return cls(x.shape[0], block)


@nki.jit""") + """    sizes = Sizes.of(x)
    for b in range(2):
        columns = nl.ds(b * sizes.block, sizes.block)
        nl.store(out[:, columns], nl.load(x[:, columns]))
    return out
""")
    one, = migrated(file, "2.32")
    assert "nl.store(out[:, columns], nl.load(x[:, columns]))" in one.new
    assert not [entry for entry in one.report.entries if entry.left]


@pytest.mark.parametrize(("above", "between", "expected"), [
    ([], [], []), (["", "# rows"], [], ["", "# rows"]), (["", "# rows"], [""], ["", "# rows"]), ([""], [""], [""]),
    (["# rows"], ["", "# all"], ["# rows", "", "# all"]), ([], [""], [""]), ([""], [], [""])])
def test_empty_lines__stay_where_statements_go(above, between, expected, tmp_path):
    lines = rewritten(tmp_path, "\n".join(["t = nl.load(x)", *above, "p, f = nl.mgrid[0:128, 0:64]", *between,
                                           "nl.store(out[p, f], t)"]))
    assert lines == ["t = nl.load(x)", *expected, "nl.store(out, t)"]


def test_comments_at_the_end_of_a_block_stay(tmp_path):
    lines = rewritten(tmp_path, "for i in nl.affine_range(2):\n    t = nl.load(x)\n    # rows\n"
                                "    p = nl.arange(128)[:, None]\nnl.store(out, t)")
    assert lines[1:3] == ["t = nl.load(x)", "# rows"]


def test_assignments_of_several_values__stay_where_none_changes(tmp_path):
    lines = rewritten(tmp_path, "a, b = nl.load(x), int(x.shape[0])\nc, d = nl.load(x), a + 1.0\n"
                                "nl.store(out[0:b], nl.add(a, nl.add(c, d)))")
    assert lines[:3] == ["a, b = nl.load(x), int(x.shape[0])", "c = nl.load(x)", "d = nl.add(a, 1.0, dtype=nl.float32)"]


def test_values_that_nothing_names__go(tmp_path):
    lines = rewritten(tmp_path, "(a, b), _ = nl.load(x).shape, None\nnl.store(out[0:a, 0:b], nl.load(x))")
    assert lines[0] == "a, b = nl.load(x).shape" and "_ = None" not in lines
