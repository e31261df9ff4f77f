# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a file's text says of names: grids, other names of kernels, classes of tiles, comments within statements."""

import ast

import libcst as cst
import pytest

from nki_mlir.migration.inner_comments import inner_comments
from nki_mlir.migration.kernel_aliases import kernel_aliases
from nki_mlir.migration.launch_grids import GridAxes, grid_kind
from nki_mlir.migration.names import Names
from nki_mlir.migration.tile_classes import calls_language, is_tile_class, why_left

IMPORTS = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\nimport neuronxcc.nki.isa as nisa\n"
NAMES = Names(IMPORTS)


@pytest.mark.parametrize("text, plain", [
    ("k[nl.nc(2)](x)", "k[2](x)"), ("k[nl.nc(2) * 3](x)", "k[6](x)"), ("k[3 * nl.nc(n)](x)", "k[3 * n](x)"),
    ("k[nl.spmd_dim(nl.nc(2), 4), 5](x)", "k[8, 5](x)"), ("k[nl.spmd_dim(a + 1, nl.nc(2))](x)", "k[(a + 1) * 2](x)"),
    ("k[nl.nc(2) + 1](x)", "k[2 + 1](x)"), ("k[2 * 3](x)", "k[2 * 3](x)"), ("k[f(2) * 3](x)", "k[f(2) * 3](x)"),
    ("k[nl.nc(2, 3)](x)", "k[nl.nc(2, 3)](x)"), ("k[nl.spmd_dim(2)](x)", "k[nl.spmd_dim(2)](x)"),
    ("k[nl.spmd_dim(nl.nc(2) * 3, 4)](x)", "k[24](x)"), ("k[f(2), nl.ds(2, 3)](x)", "k[f(2), nl.ds(2, 3)](x)"),
    ("k[nl.nc(2) * nl.nc(1)](x)", "k[2](x)")])
def test_axes_of_grids_are_numbers(text, plain):
    assert cst.parse_module(text).visit(GridAxes(NAMES)).code == plain


@pytest.mark.parametrize("text, grid, kind", [
    ("", "(2, 3)", "sizes"), ("", "tuple(x)", "sizes"), ("", "2 * n + 1", "size"), ("", "n", ""), ("", "a.b", ""), ("", "len(x)", "size"),
    ("g = (1, 2)", "g", "sizes"), ("g = 4", "g", "size"), ("g = 4\ng = (1,)", "g", ""), ("g = 4\ng = 5", "g", "size"),
    ("g = 4\nfor g in range(3): pass", "g", ""), ("g = 4\ndef f(g): pass", "g", ""),
    ("g = 4\ndef f(h): pass", "g", "size"), ("def f(g): pass", "g", ""),
    ("a = b = (1, 2)", "b", "sizes"), ("a = (1, 2)\nb = a", "b", "sizes"), ("a = b\nb = a", "a", ""), ("g, h = 1, 2", "g", ""),
    ("", "(1, 2) if c else (3,)", "sizes"), ("", "(1, 2) if c else 3", ""), ("", "1 if c else 3", "size"),
    ("g = (1, 2) if c else n", "g", ""), ("g: int = 4", "g", ""), ("g = 4\ng += 1", "g", ""),
    ("a0 = 1\na1 = a0\na2 = a1\na3 = a2\na4 = a3", "a4", "size"), ("a0 = 1\na1 = a0\na2 = a1\na3 = a2\na4 = a3\na5 = a4", "a5", "")])
def test_kinds_of_grids(text, grid, kind):
    assert grid_kind(ast.parse(grid, mode="eval").body, ast.parse(text)) == kind


WRAPPERS = {"nki.jit", "nki.trace", "nki.benchmark"}


@pytest.mark.parametrize("text, aliases", [
    ("k = nki.trace(f)", {"k": "f"}), ("k = f", {"k": "f"}), ("k = f\nj = g", {"k": "f", "j": "g"}), ("k = nki.benchmark(warmup=3)(f)", {"k": "f"}),
    ("k = nki.jit(f, mode='x')\nk2 = k", {"k": "f"}), ("k = other(f)", {}), ("k = nki.jit(other)", {}), ("k = nki.jit()", {}),
    ("k = f\nk = g", {}), ("k = f\nk = nki.jit(f)", {"k": "f"}), ("k = f\nk = 3", {}), ("k = f\nfor k in x: pass", {}),
    ("k = f\nk, j = x", {}), ("a = b = f", {"a": "f", "b": "f"}), ("f = nki.jit(f)", {}), ("k = f\ndef h(k): pass", {}),
    ("k = f\ndef h(*, k): pass", {}), ("k = f\ndef h(k, /): pass", {}), ("k = f\ndef h(*k): pass", {"k": "f"}),
    ("x.k = f", {}), ("k = lambda k: f", {}), ("k: int = f", {}), ("k = nki.jit(nki.jit(f))", {}), ("k = f[2]", {})])
def test_other_names_of_kernels(text, aliases):
    assert kernel_aliases(IMPORTS + text, NAMES, {"f", "g"}, WRAPPERS) == aliases


CLASSES = {
    "def m(self): return nl.load(self.x)": True, "def m(self): nisa.iota(1, 2)": True, "def m(self): return nl.mgrid[0:2]": True,
    "def m(self): return nl.static_cast(1, 2)": False, "def m(self): return nl.nc(2), nl.spmd_dim(1, 2)": False,
    "def m(self): return nisa.get_nc_version()": False, "def m(self): return other(self)": False, "def m(self): return nl.pmax": False,
    "def m(): return nl.load(x)": False, "@staticmethod\n    def m(x): return nl.load(x)": False,
    "@classmethod\n    def m(cls): return nl.load(x)": True, "@nki.jit\n    def m(self): return nl.load(self)": False,
    "@nki.jit(mode='x')\n    def m(self): return nl.load(self)": False, "@f.g\n    def m(self): return nl.load(self)": True,
    "x = nl.load(y)": False, "def m(self):\n        def inner(): return nl.load(x)\n        return inner": False,
    "def m(self): return [nl.load(x) for x in y]": True, "def m(self): return x[nl.ds(0, 2)]": True,
    "def m(self):\n        nl.store(x, y)\n        def inner(): pass": True,
    "def a(self): pass\n    def m(self): nl.store(x, y)": True, "def m(self): return mgrid[0:2]": False,
}


@pytest.mark.parametrize("body", CLASSES)
def test_classes_whose_methods_compute_on_tiles(body):
    node = cst.parse_module(f"class C:\n    {body}\n").body[0]
    assert is_tile_class(node, NAMES) is CLASSES[body]


def test_classes_that_extend_one_of_tiles():
    for bases, says in [("T", True), ("A, T", True), ("A", False), ("x.T", False)]:
        node = cst.parse_module(f"class C({bases}):\n    pass\n").body[0]
        assert is_tile_class(node, NAMES, {"T"}) is says
    assert not is_tile_class(node, NAMES)
    assert why_left("C") == "the class C, whose methods call nl or nisa: make them functions, whose parameters are its attributes"


def test_only_the_function_itself_counts():
    function = cst.parse_module("def f():\n    def g():\n        nl.load(x)\n    h()\n    nl.store(x, y)\n").body[0]
    assert calls_language(function.body, NAMES)
    assert not calls_language(function.body.body[0].body, Names("")) and calls_language(function.body.body[0].body, NAMES)


def test_comments_within_a_statement():
    text = "x = [  # one\n    1,  # two\n    # three\n    f(2,  # four\n      3)]  # behind\n"
    assert [c.value for c in inner_comments(cst.parse_module(text).body[0])] == ["# one", "# two", "# three", "# four"]
    assert inner_comments(cst.parse_module("x = 1  # behind\n").body[0]) == []
    assert [c.value for c in inner_comments(cst.parse_module("a = (1 +  # p\n  2); b = (3 +  # q\n  4)\n").body[0])] == ["# p", "# q"]


def test_the_only_kernel_of_a_file_has_other_names():
    assert kernel_aliases("k = f", NAMES, {"f"}, WRAPPERS) == {"k": "f"}
