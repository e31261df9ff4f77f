# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python that the vendor's parser refuses: comprehensions become loops, exceptions assertions, others are reported."""

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.files import migrated as migrated_files
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport
from tests.migration.test_migration import loaded

HEAD = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, flag=True):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
"""
TAIL = "    nl.store(out, total)\n    return out\n"
SUM = "total = nl.copy(tiles[0]); total = nl.add(total, tiles[1])"
LOOP = "the comprehension becomes a loop, because kernels have no comprehensions"
# The statements, and the lines of the new text that the comprehension becomes.
CASES = [
    (f"tiles = [nl.load(x) for k in range(2)]; {SUM}",
     ["tiles = []", "for k in range(2):", "    tiles.append(nl.load(x))"]),
    (f"# Two tiles; tiles = [nl.load(x) for k in range(2)]; {SUM}",
     ["# Two tiles", "tiles = []", "for k in range(2):", "    tiles.append(nl.load(x))"]),
    (f"tiles = tuple(nl.load(x) for k in range(2)); {SUM}",
     ["parts = []", "for k in range(2):", "    parts.append(nl.load(x))", "tiles = tuple(parts)"]),
    (f"tiles = [nl.load(x) for k in range(5) if k % 2 if k > 0]; {SUM}",
     ["for k in range(5):", "    if k % 2 and k > 0:", "        tiles.append(nl.load(x))"]),
    (f"sizes = [(a, b) for a in range(2) for b in range(3) if b > a]; tiles = [nl.load(x), nl.load(x)]; {SUM}",
     ["for a in range(2):", "    for b in range(3):", "        if b > a:", "            sizes.append((a, b))"]),
    (f"tiles = [[nl.load(x) for k in range(1)][0] for k in range(2)]; {SUM}",
     ["tiles = []", "for k in range(2):", "    parts = []", "    for k_2 in range(1):",
      "        parts.append(nl.load(x))", "    tiles.append(parts[0])"]),
    (f"k = 1; tiles = [nl.load(x) for k in range(2)]; {SUM}; total = nl.multiply(total, k + 1.0)",
     ["for k_2 in range(2):", "    tiles.append(nl.load(x))"]),
    ("n = 0 if flag else sum(k for k in range(3)); total = nl.multiply(nl.load(x), n + 1.0)",
     ["if flag:", "    n = 0", "else:", "    n = []", "    for k in range(3):", "        n.append(k)", "    n = sum(n)"]),
    (f"tiles = [nl.load(x) for k in range(2)] if flag else None; {SUM}",
     ["if flag:", "    tiles = []", "    for k in range(2):", "        tiles.append(nl.load(x))", "else:",
      "    tiles = None"]),
    (f"tiles = [nl.load(x)]; tiles = [t for t in tiles] + [nl.load(x)]; {SUM}",
     ["for t in tiles:", "    parts.append(t)", "tiles = parts + [nl.load(x)]"]),
    (f"tiles = [nl.load(x) for k in range(2)]; tiles = [nl.copy(t) for t in tiles]; {SUM}",
     ["for t in tiles:", "    parts.append(nl.copy(t))", "tiles = parts"]),
    (f"tiles = {{k: nl.load(x) for k in range(2)}}; {SUM}",
     ["tiles = {}", "for k in range(2):", "    tiles[k] = nl.load(x)"]),
    ("n = max({k + 1: 2 * k for k in range(3) if k != 1}.values()); total = nl.multiply(nl.load(x), n * 1.0)",
     ["parts = {}", "for k in range(3):", "    if k != 1:", "        parts[k + 1] = 2 * k", "n = max(parts.values())"]),
]
UNPACKED = [
    ("a, b = [nl.load(t) for t in (x, x)]; total = nl.add(a, b)", ["a = nl.load(x)", "b = nl.load(x)"]),
    ("a, b = (nl.exp(nl.load(x)) for _ in range(2)); total = nl.add(a, b)",
     ["a = nl.exp(nl.load(x))", "b = nl.exp(nl.load(x))"]),
    ("t = nl.load(x); a, b = (nl.multiply(t, k) for k in range(2)); total = nl.add(a, b)",
     ["a = nl.multiply(t, 0, dtype=number_dtype(x.dtype, 0))", "b = nl.multiply(t, 1, dtype=number_dtype(x.dtype, 1))"]),
]
# A name that a later element reads, numbers within terms, a condition, another number of names, elements that are computed.
IN_LOOPS = ["a = b = nl.load(x); a, b = [nl.add(t, a) for t in (b, b)]; total = nl.add(a, b)",
            "a, b = [nl.multiply(nl.load(x), k + 1.0) for k in range(2)]; total = nl.add(a, b)",
            "a, b = [nl.load(x) for k in range(4) if k % 2]; total = nl.add(a, b)",
            "a, *b = [nl.load(t) for t in (x, x)]; total = nl.add(a, b[0])",
            "a, b = [nl.add(t, t) for t in (nl.load(x), nl.exp(nl.load(x)))]; total = nl.add(a, b)"]
INLINE = [
    "n = sum(map(lambda a: sum(k for k in range(3)), [1])); total = nl.multiply(nl.load(x), n + 1.0)",
    "n = 0; while all(n < k for k in range(3)): n += 1; total = nl.multiply(nl.load(x), n + 1.0)".replace(": n", ":\n        n"),
    "n = 0; assert flag or all(k > 5 for k in range(3)); total = nl.multiply(nl.load(x), n + 1.0)",
]
STAY = [("total = (lambda t: nl.add(t, t))(nl.load(x))", "a lambda"),
        ("n = 1 if flag and (m := 2) else 0; total = nl.multiply(nl.load(x), n * 1.0)", ":="),
        ("n = 1; assert flag or {k: k for k in range(3)}; total = nl.multiply(nl.load(x), n * 1.0)",
         "a comprehension of a dictionary"),
        ("n = len({k for k in range(3)}); total = nl.multiply(nl.load(x), n * 1.0)", "a comprehension of a set"),
        ("n = max(*[1, 2]); total = nl.multiply(nl.load(x), n * 1.0)", "an unpacked argument")]


def body(statements):
    return "".join(f"    {statement}\n" for statement in statements.split("; "))


def migrated(statements):
    report = MigrationReport("kernel.py")
    text = rewritten(HEAD + body(statements) + TAIL, report)
    assert not [e.text for e in report.entries if e.left]
    return text, {e.text for e in report.entries}


def assert_equal_values(statements, text, folder):
    install()
    x = np.random.default_rng(3).standard_normal((8, 16)).astype(np.float32)
    values = []
    for name, source in (("subset_old", HEAD + body(statements) + TAIL), ("subset_new", text)):
        (folder / f"{name}.py").write_text(source)
        values.append(loaded(folder / f"{name}.py", name).kernel(x))
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize(("statements", "lines"), CASES)
def test_comprehension_becomes_a_loop(statements, lines, tmp_path):
    text, report = migrated(statements)
    assert "".join(f"    {line}\n" for line in lines) in text and LOOP in report
    assert_equal_values(statements, text, tmp_path)


@pytest.mark.parametrize(("statements", "lines"), UNPACKED)
def test_comprehension_of_a_few_names_becomes_assignments(statements, lines, tmp_path):
    text, report = migrated(statements)
    assert "".join(f"    {line}\n" for line in lines) in text
    assert "each name gets an assignment, because kernels have no comprehensions" in report and LOOP not in report
    assert_equal_values(statements, text, tmp_path)


@pytest.mark.parametrize("statements", IN_LOOPS)
def test_other_comprehensions_of_a_few_names_become_loops(statements, tmp_path):
    text, report = migrated(statements)
    assert ".append(" in text and LOOP in report
    assert_equal_values(statements, text, tmp_path)


@pytest.mark.parametrize("statements", INLINE)
def test_comprehension_that_may_not_be_evaluated__stays_where_it_is(statements, tmp_path):
    text, report = migrated(statements)
    assert " for k in range(3))" in text and LOOP not in report
    assert_equal_values(statements, text, tmp_path)


@pytest.mark.parametrize(("statements", "construct"), STAY)
def test_what_the_parser_refuses_is_reported(statements, construct, tmp_path):
    text, report = migrated(statements)
    assert any(r.startswith(f"{construct} stays, which the parser of nki 0.2 to 0.6 refuses: ") for r in report)
    assert_equal_values(statements, text, tmp_path)


HOST = """def divisor(n, limit):
    # the largest that fits
    return max(d for d in range(1, limit + 1) if n % d == 0)


def check(shape, *, rank=2):
    if len(shape) != rank:
        raise ValueError(f"expected {rank:d} dims")
    return shape


def plan(shape, size):
    rows, _ = check(shape)
    return {"rows": [(s, min(size, rows - s)) for s in range(0, rows, size)]}


class Halves:
    def __init__(self, n):
        self.starts = [k * n // 2 for k in range(2)]


def named(n):
    return [str(k) for k in range(n)]


"""
OF_HOST = ("total = nl.ndarray((8, 16), dtype=x.dtype); width = divisor(x.shape[1], 7); plain = Halves(16).starts[0]; "
           "for start, count in plan(x.shape, 3)[\"rows\"]: total[start:start + count, plain:] = "
           "nl.multiply(nl.load(x[start:start + count]), width * 1.0)").replace("]: total", "]:\n        total")
LOOPS_OF_HOST = ["""def divisor(n, limit):
    # the largest that fits
    parts = []
    for d in range(1, limit + 1):
        if n % d == 0:
            parts.append(d)
    return max(parts)
""", """def check(shape, *, rank=2):
    assert len(shape) == rank, f"expected {rank} dims"
    return shape
""", """    parts = []
    for s in range(0, rows, size):
        parts.append((s, min(size, rows - s)))
    return {"rows": parts}
""", """        self.starts = [k * n // 2 for k in range(2)]
""", """    return [str(k) for k in range(n)]
"""]


def test_functions_of_the_host_in_other_files(tmp_path):
    """With a directory they are rewritten, with only the kernel's file they stay, and nothing is left to a person."""
    kernel_file, other = tmp_path / "kernel.py", tmp_path / "splits.py"
    other.write_text("def starts(n):\n    return [4 * k for k in range(n)]\n")
    kernel_file.write_text("from splits import starts\n" + HEAD + "    for s in starts(2):\n"
                           "        nl.store(out[s:s + 4], nl.load(x[s:s + 4]))\n    return out\n")
    first, second = migrated_files(tmp_path, "2.32")
    assert "parts.append(4 * k)" in second.new and first.report.is_complete and second.report.is_complete
    one, = migrated_files(kernel_file, "2.32")
    assert one.report.is_complete and one.new == first.new and "starts of another file stays, of which the parser of nki " \
        "0.2 to 0.6 refuses a part: migrate the directory" in {e.text for e in one.report.entries}


def test_functions_of_the_host_that_kernels_call_are_rewritten(tmp_path, monkeypatch):
    """Those that no kernel calls stay as they are, and methods stay with a line in the report."""
    monkeypatch.setattr("tests.migration.test_python_subset.HEAD", HEAD.replace("@nki.jit", HOST + "@nki.jit"))
    text, report = migrated(OF_HOST)
    assert [lines for lines in LOOPS_OF_HOST if lines not in text] == [] and LOOP in report
    assert "a comprehension stays, which the parser of nki 0.2 to 0.6 refuses: append to a list in a loop" in report
    assert_equal_values(OF_HOST, text, tmp_path)
