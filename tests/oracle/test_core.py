# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The oracle's memory, subscripts and conversions against numbers worked out by hand; it imports nothing of the product."""

import ast
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from . import beta, run
from .dtypes import DTYPES, convert, promote
from .program import OutOfBounds

HERE = Path(__file__).parent
X = np.arange(4 * 8 * 6, dtype=np.float32).reshape(4, 8, 6)


def modules_of(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


@pytest.mark.parametrize("file", [f for f in HERE.rglob("*.py") if not f.name.startswith("test_")],
                         ids=lambda f: str(f.relative_to(HERE)))
def test_oracle_imports_nothing_of_the_product(file):
    allowed = {"numpy", "ml_dtypes", *__import__("sys").stdlib_module_names}
    assert {m.split(".")[0] for m in modules_of(file)} <= allowed
    up = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.ImportFrom)
          and n.level > len(file.relative_to(HERE).parts)]
    assert not up


def outcome(body, *arrays, **options):
    """Of a kernel of that body, whose arrays are x, y, ..."""
    head = f"def kernel({', '.join('xyzw'[:len(arrays)])}):\n"
    text = head + "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    return run(text, arrays, generation=beta, names=beta.NAMES, **options)


def returned(body, *arrays, **options):
    return outcome(f"{body}\nout = nl.ndarray(r.shape, r.dtype, buffer=nl.shared_hbm)\nnl.store(out, r)\nreturn out",
                   *arrays, **options).results


@pytest.mark.parametrize("subscript, expected", [
    ("ix, iy, iz", X),
    ("ix, iy, 2 * iz + 1", None),
    ("nl.ds(1, 2), 3:5", X[1:3, 3:5]),
    (":, 0", X[:, 0]),
    ("..., 5", X[:, :, 5]),
    ("::2, ::3, ::-1", X[::2, ::3, ::-1]),
    ("2", X[2]),
])
def test_subscripts(subscript, expected):
    body = "ix, iy, iz = nl.mgrid[0:4, 0:8, 0:6]\nr = nl.load(x[%s])"
    if expected is None:
        with pytest.raises(OutOfBounds, match="index 7 leaves dimension 2"):
            returned(body % subscript, X)
    else:
        np.testing.assert_array_equal(returned(body % subscript, X), expected)


def test_ranks_on_chip():
    """Beta 4.2: a dimension stays where the rank would be below two."""
    def shape(subscript, size="(4, 8)"):
        got = outcome(f"return nl.zeros({size}, nl.float32)[{subscript}]").results
        return got.shape
    assert [shape(":, 0"), shape("0, 0:3"), shape("0, 3"), shape("2")] == [(4, 1), (1, 3), (1, 1), (1, 8)]
    blocks = "(3, nl.par_dim(4), 8)"
    assert [shape("1", blocks), shape("1, :, 2", blocks), shape("1, 2, :", blocks)] == [(4, 8), (4, 1), (1, 8)]


def test_views_of_views_share_memory():
    got = returned("t = nl.zeros((4, 6), nl.float32)\nv = t[:, ::2]\nv[:, 1:] = 5\nr = t")
    np.testing.assert_array_equal(got, np.tile(np.float32([0, 0, 5, 0, 5, 0]), (4, 1)))


def test_other_elements_of_the_same_bytes():
    got = returned("t = nl.load(x)\nr = nl.copy(t.view(nl.uint8)[:, 1::2])", np.int16([[256, 513], [-1, 0]]))
    np.testing.assert_array_equal(got, np.uint8([[1, 2], [255, 0]]))


def test_masks_leave_elements_out():
    body = """i, j = nl.mgrid[0:2, 0:6]
r = nl.zeros((2, 6), nl.float32)
r[...] = nl.load(x[i, j], mask=(j < 4) and not j == 1)"""
    np.testing.assert_array_equal(returned(body, X[0, :2, :4].copy()),
                                  np.float32([[0, 0, 2, 3, 0, 0], [6, 0, 8, 9, 0, 0]]))


def test_findings():
    """Reads of what nothing wrote, elements left out, iterations and programs that meet."""
    text = "out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)\n%s\nreturn out"
    unwritten = outcome(text % "t = nl.ndarray((4, 8), nl.float32)\nt[:, 1:] = 1\nnl.store(out, t)")
    assert [(f.kind, f.index, f.line) for f in unwritten.findings] == [("unwritten", (0, 0), 5)]
    missing = outcome(text % "nl.store(out[:, 0:7], nl.load(x[:, 0:7]))", X[:, :, 0].copy())
    assert [(f.kind, f.index) for f in missing.findings] == [("missing", (0, 7))]
    overlap = outcome(text % "for k in nl.affine_range(3):\n        nl.store(out[:, 2*k:2*k+3], x[:, 0:3])",
                      X[:, :, 0].copy())
    assert [(f.kind, f.index) for f in overlap.findings if f.kind != "missing"] == [("collision", (0, 2))]
    programs = outcome(text % "nl.store(out, nl.load(x))", X[:, :, 0].copy(), grid=(2,))
    assert {f.kind for f in programs.findings} == {"collision"}
    assert "programs 0 and 1" in programs.findings[0].text
    fine = outcome(text % "for k in nl.affine_range(4):\n        nl.store(out[:, 2*k:2*k+2], nl.load(x[:, 2*k:2*k+2]))",
                   X[:, :, 0].copy())
    assert fine.findings == []


def test_accumulation_may_come_in_any_order():
    body = "r = nl.zeros((4, 6), nl.float32)\nfor k in nl.affine_range(8):\n        r[...] += nl.load(x[:, k])"
    got = outcome(body.replace("        ", "    ") + "\nreturn r", X, shuffle=3)
    np.testing.assert_array_equal(got.results, X.sum(axis=1))
    assert got.findings == []


def test_programs_that_meet():
    text = """out = nl.ndarray((3, 1, 2), nl.float32, buffer=nl.shared_hbm)
g = nl.program_id(0)
nl.store(out[g], nl.all_reduce(nl.load(x[g:g+1]), np.add, program_axes=(0,)))
return out"""
    got = outcome("import numpy as np\n" + text, np.float32([[1, 2], [10, 20], [100, 200]]), grid=(3,))
    np.testing.assert_array_equal(got.results, np.tile(np.float32([111, 222]), (3, 1, 1)))


@pytest.mark.parametrize("dtype, value, expected", [
    ("int8", 200.0, 127), ("int8", -2.5, -2), ("uint8", -3.0, 0), ("int32", np.nan, 0), ("int32", 3e9, 2**31 - 1),
    ("uint32", np.inf, 2**32 - 1), ("int16", 0.5, 0), ("int16", 1.5, 2), ("bfloat16", 1 + 2.0 ** -8, 1.0),
    ("bfloat16", 1 + 3 * 2.0 ** -8, 1 + 2.0 ** -6), ("float16", 65520.0, np.inf), ("tfloat32", 1 + 2.0 ** -11, 1.0),
    ("tfloat32", 1 + 3 * 2.0 ** -11, 1 + 2.0 ** -9), ("float8_e4m3", 240.0, 240.0), ("float8_e4m3", 250.0, np.inf),
])
def test_conversion(dtype, value, expected):
    assert float(convert(np.float32(value), DTYPES[dtype])) == expected


@pytest.mark.parametrize("pair, expected", [
    ("int16 int32", "int32"), ("uint8 uint16", "uint16"), ("uint16 int32", "int32"), ("int8 uint8", "int16"),
    ("int8 uint16", "int32"), ("int32 uint32", "float32"), ("float32 bfloat16", "float32"),
    ("float16 bfloat16", "float32"), ("float8_e4m3 float16", "float16"), ("float8_e4m3 float8_e5m2", "bfloat16"),
    ("bfloat16 int32", "bfloat16"), ("tfloat32 float32", "float32"), ("float8_e4m3 bfloat16", "bfloat16")])
def test_promotion(pair, expected):
    """Beta 3.5."""
    a, b = (DTYPES[n] for n in pair.split())
    assert promote(a, b).name == promote(b, a).name == expected


@pytest.mark.parametrize("between, expected", [("", 1 + 2.0 ** -9), ("nl.copy(t)", 1.0)])
def test_declared_destination_is_rounded_to_once(between, expected):
    """``declared[...] = op`` rounds to its type alone, unless the result has been looked at before (beta 5.4)."""
    x, y = np.full((1, 1), 1, ml_dtypes.bfloat16), np.full((1, 1), 2.0 ** -9, ml_dtypes.bfloat16)
    got = returned(f"r = nl.zeros((1, 1), nl.float32)\nt = nl.add(nl.load(x), nl.load(y))\n{between}\nr[...] = t", x, y)
    assert float(got[0, 0]) == expected
