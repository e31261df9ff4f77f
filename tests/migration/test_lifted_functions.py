# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inner functions and lambdas of kernels become functions of the file, which compute the same, or stay where they might not."""

import ast

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.lifted_functions import with_lifted_functions
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport
from tests.migration.test_migration import loaded

# The body of a function of (x, y=3), and the first lines of the functions that move.
MOVE = [
    ("def double(a):; return 2 * a; return double(x)", ["def double(a):"]),
    ('def double(a):; """Return twice\n\n        the number."""; return 2 * a; return double(x)', ["def double(a):"]),
    ("def total(a):; return a + x * y; return total(1) + total(a=2)", ["def total(x, y, a):"]),
    ("k = 5; def shifted(a, by=1):; return a + by + k; k = 7; return shifted(x, by=k)", ["def shifted(k, a, by=1):"]),
    ("def one(a):; return a + y; def two(a):; return one(a) * x; return two(4)",
     ["def one(y, a):", "def two(x, y, a):"]),
    ("def even(n):; return n == 0 or odd(n - 1); def odd(n):; return n > 0 and even(n - 1); return even(x)",
     ["def even(n):", "def odd(n):"]),
    ("def outer(a):; def inner(b):; return b + a + y; return inner(x); return outer(2)",
     ["def inner(y, a, b):", "def outer(x, y, a):"]),
    ("r = 0; for i in range(3):; def add(a):; return a + i * x; r += add(1); return r", ["def add(x, i, a):"]),
    ("if x > y:; k = 1; else:; k = 2; def add(a):; return a + k; return add(3)", ["def add(k, a):"]),
    ("def add(a, /, *rest):; return a + x + len(rest); return add(3, *[1, 2])", ["def add(x, a, /, *rest):"]),
    ("def double(a):; return 2 * a; return sum(map(double, range(x)))", ["def double(a):"]),
    ("k = lambda a: a + x  # more; return k(1)", ["def k(x, a):"]),
    ("def used(a):; return a + x; return used(1)", ["def f_used(x, a):"]),
    ("def max(a):; return a + x; return max(1)", ["def f_max(x, a):"]),
    ("def picks(a):; return [a + i + x for i in range(3)]; return picks(1)", ["def picks(x, a):"]),
    ("values = []; def add(a):; values.append(a + x); add(1); add(2); return values", ["def add(x, values, a):"]),
]
STAY = [
    "def add(a):; return a + x; return sum(map(add, range(3)))",                    # a value that reads x
    "def used(a):; return 2 * a; return sum(map(used, range(x)))",                  # a value that needs a new name
    "r = 0; def add(a):; nonlocal r; r += a; add(x); return r",
    "def pairs():; yield x; yield y; return list(pairs())",
    "def add(a, by=x):; return a + by; return add(1)",
    "def add(a):; return a + (k if x > 100 else 0); r = add(1); k = 2; return r",   # assigned after the call
    "def add(a):; return a + (k if y > 100 else 0); if x > 100:; k = 2; return add(1)",
    "def add(a):; return a + (k if y > 100 else 0); for k in range(0):; pass; return add(1)",
    "def add(a):; return a + 1; add = add if x else abs; return add(3)",
    "import math; def root(a):; return math.sqrt(a + x); return root(1)",
    "class A:; value = 2; def add(a):; return a + A.value; return add(x)",
    "def add(a):; return a + x; return [add(x) for x in range(3)]",
    "def add(a):; return a + x; def sub(x):; return add(1) + x; return sub(50)",
    "import functools; @functools.lru_cache; def add(a):; return a + 1; return add(x)",
    'def words():; return """a; b""" + str(x); return words()'.replace("a; b", "a\n  b"),
]
ENDS = ("return", "pass", "yield y", "r += ", "k = 1", "k = 2", "value")
HEAD = "def used(a):\n    return 0\n\n\n# Comment\ndef f(x, y=3):\n"


def source(body):
    """The file: a line that ends with a colon opens a block, and ``ENDS`` begin the last statements of blocks."""
    lines, depth = [], 1
    for line in body.split("; "):
        lines.append("    " * depth + line)
        if line.endswith(":"):
            depth += 1
        elif depth > 1 and line.startswith(ENDS):
            depth -= 1
    return HEAD + "\n".join(lines) + "\n"


def results(text):
    scope = {}
    exec(compile(text, "file", "exec"), scope)
    return [scope["f"](x) for x in (0, 1, 4, 5)]


@pytest.mark.parametrize(("body", "heads"), MOVE)
def test_functions_move_and_compute_the_same(body, heads):
    text = source(body)
    new, moved = with_lifted_functions(text, {"f"})
    assert {name for _, name in moved} and results(new) == results(text)
    functions = [n for n in ast.parse(new).body if isinstance(n, ast.FunctionDef) and n.name not in ("f", "used")]
    assert sorted(f"def {f.name}({ast.unparse(f.args)}):" for f in functions) == sorted(heads)
    assert "\n# Comment\ndef f(x, y=3):" in new
    assert with_lifted_functions(new, {"f"}) == (new, set())


@pytest.mark.parametrize("head", ("def double(a):", "double = lambda a: 2 * a"))
def test_functions_move_with_the_comments_above_them(head):
    body = "" if "lambda" in head else "        return 2 * a\n"
    text = f"def f(x, y=3):\n    k = x\n\n    # Twice\n    # or more\n    {head}\n{body}    # The result\n    return double(k)\n"
    new, _ = with_lifted_functions(text, {"f"})
    assert results(new) == results(text)
    assert new.lstrip().startswith("# Twice\n# or more\ndef double(a):\n    return 2 * a\n")
    assert new.endswith("def f(x, y=3):\n    k = x\n    # The result\n    return double(k)\n")


@pytest.mark.parametrize("body", STAY)
def test_functions_that_might_compute_something_else_stay(body):
    text = source(body)
    results(text)
    assert with_lifted_functions(text, {"f"}) == (text, set())


def test_functions_of_others_stay():
    text = source("def double(a):; return 2 * a; return double(x)")
    assert with_lifted_functions(text, {"used"}) == (text, set())


KERNEL = '''import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, g, eps=1e-5):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:cols]
    gain = nl.load(g)

    # Rows of x
    def load_rows(i):
        return nl.load(x[i * 128 + i_p, i_f], mask=i * 128 + i_p < rows)

    def normalized(tile):
        mean = nl.mean(nl.square(tile), axis=1, keepdims=True)
        return nl.multiply(tile, nl.rsqrt(mean + eps)) * gain.broadcast_to(tile.shape)

    for i in nl.affine_range((rows + 127) // 128):
        nl.store(out[i * 128 + i_p, i_f], normalized(load_rows(i)), mask=i * 128 + i_p < rows)
    return out
'''
NEW = '''# Rows of x
def load_rows(x, rows, i):
    num_rows = min(128, rows - i * 128)
    return nl.load(x[nl.ds(i * 128, num_rows), :])
'''


def test_kernel(tmp_path):
    report = MigrationReport("kernel.py")
    text = rewritten(KERNEL, report)
    assert NEW in text and "def normalized(eps, gain, tile):" in text
    assert {(e.line, e.text) for e in report.entries if "inner function" in e.text} == {
        (line, f"the inner function {name} becomes a function of the file, which gets what it reads as arguments")
        for line, name in ((13, "load_rows"), (16, "normalized"))}
    install()
    values = []
    x, g = np.random.default_rng(0).standard_normal((2, 200, 64)).astype(np.float32)[0], np.ones((1, 64), np.float32)
    for name, lines in (("inner", KERNEL), ("lifted", text)):
        (tmp_path / f"{name}.py").write_text(lines)
        values += [loaded(tmp_path / f"{name}.py", name).kernel.run((x, g), {}, on)
                   for on in ("eager", "interpreter", "jit", "isa")]
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5)
    for value in values:
        np.testing.assert_allclose(value, expected, rtol=2e-6)


def test_inner_function_that_stays__is_reported():
    report = MigrationReport("kernel.py")
    rewritten(KERNEL.replace("normalized(load_rows(i))", "normalized((lambda f: f(i))(load_rows))"), report)
    assert [e.line for e in report.entries if e.text.startswith("an inner function stays, which the parser")] == [13]


OPERATORS = '''import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, y):
    def rotate(lo, hi, c, s):
        return lo * c - hi * s, hi * c + lo * s

    def scaled(tile, by):
        return tile * by

    weight = lambda tile, by: tile - by
    out = nl.ndarray((3, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(y)
    first, second = rotate(a, b, 2.0, b)
    nl.store(out[0], first)
    first, second = rotate(a, second, b, 0.5)
    nl.store(out[1], scaled(by=scaled(2.0, 3.0), tile=second + first))
    nl.store(out[2], weight(scaled(1.0, first), b))
    return out
'''


@pytest.mark.parametrize("text", [OPERATORS.replace("2.0, b)", "b, b)").replace("b, 0.5)", "b, a)").replace(
    "weight(scaled(1.0, first), b)", "weight(first, b)").replace("scaled(2.0, 3.0)", "6.0")])
def test_calls_show_that_parameters_are_tiles(text, tmp_path):
    """Operators alone do not show it."""
    report = MigrationReport("kernel.py")
    new = rewritten(text, report)
    assert not [e for e in report.entries if e.left] and "lo * c" not in new and "tile * by" not in new
    install()
    x, y = np.random.default_rng(0).standard_normal((2, 16, 8)).astype(np.float32)
    values = []
    for name, lines in (("operators", text), ("operators_lifted", new)):
        (tmp_path / f"{name}.py").write_text(lines)
        values += [loaded(tmp_path / f"{name}.py", name).kernel.run((x, y), {}, on)
                   for on in ("eager", "interpreter", "jit", "isa")]
    for value in values:
        np.testing.assert_array_equal(value, values[0])


def test_a_parameter_that_may_be_a_tile_or_a_number_is_left():
    report = MigrationReport("kernel.py")
    rewritten(OPERATORS, report)
    assert [e.line for e in report.entries if e.left]


BLOCKS = '''import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    def total(parts, n):
        acc = nl.zeros((nl.par_dim(32), 8), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(n):
            acc += nl.exp(parts[k])
        return acc

    n = x.shape[0] // 32
    out = nl.ndarray((32, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((n, nl.par_dim(32), 8), dtype=x.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(n):
        tiles[k] = nl.load(x[nl.ds(k * 32, 32), :])
    nl.store(out, total(tiles, n))
    return out
'''


def test_calls_show_block_dimensions_of_parameters():
    report = MigrationReport("kernel.py")
    assert "nl.exp(parts[:, k])" in rewritten(BLOCKS, report) and report.is_complete
    # the notes of the first attempt, before the calls had shown the block dimensions, are gone
    assert not [e for e in report.entries if "does not show at which row" in e.text]


def test_entries_of_an_abandoned_attempt_go():
    report = MigrationReport("kernel.py")
    with pytest.raises(LookupError, match="begin anew"), report.attempt(), report.attempt((LookupError,)):
        report.changed(1, "of the first attempt")
        report.changed(3, "of both")
        with report.attempt(), report.attempt((LookupError,)):
            report.changed(2, "of a function that was rewritten in between")
            report.changed(3, "of both")
        raise LookupError("begin anew")
    report.changed(4, "of the second attempt")
    assert sorted(e.line for e in report.entries) == [2, 3, 4]


def test_block_dimensions_in_some_calls_are_left():
    report = MigrationReport("kernel.py")
    rewritten(BLOCKS.replace("nl.store(out, total(tiles, n))", "first = total(nl.load(x), 1); nl.store(out, total(tiles, n))"),
              report)
    assert [e.text for e in report.entries if e.left] == [
        "tensors of total that have block dimensions in some calls: give all the same dimensions"]
