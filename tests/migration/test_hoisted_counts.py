# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hoisted counts, nesting of texts and functions for dtypes: what the texts compute, before and after."""

import ast
import contextlib
import itertools
import random
import types
from pathlib import Path

import libcst as cst
import pytest

from nki_mlir.input_limits import InputTooLarge
from nki_mlir.migration import added_functions, nesting
from nki_mlir.migration.hoisted_counts import with_hoisted_counts

COUNTS = tuple(f"n{k}" for k in range(6))


# -- counts ------------------------------------------------------------------------------------------------------------
class Body:
    """The statements of a random function: loops, branches, counts and their uses."""

    def __init__(self, seed):
        self.rng, self.fresh, self.variables = random.Random(seed), iter(COUNTS), 0
        self.lines = self.block(0, ["rows"], [])

    def block(self, depth, names, counts):
        lines, counts = [], [*counts]
        for _ in range(self.rng.randint(1, 4)):
            kind = self.rng.random()
            if kind < 0.4 and (count := next(self.fresh, None)):
                terms = self.rng.sample(names, min(len(names), self.rng.randint(1, 2)))
                value = self.rng.choice(["min(8, {0})", "max(0, {0} - 2)", "min({0}, 4 - {1})", "{0} * 2", "abs({0})",
                                         "min(8, {0})"]).format(terms[0], terms[-1])
                if self.rng.random() < 0.3:
                    lines.append(f"# the size of {count}")
                lines.append(f"{count} = {value}")
                counts.append(count)
            elif kind < 0.6 and depth < 3:
                self.variables += 1
                variable = f"i{self.variables}"
                lines.append(f"for {variable} in range({self.rng.randint(1, 3)}):")
                lines += ["    " + line for line in self.block(depth + 1, [*names, variable], counts)]
            elif kind < 0.75 and depth < 3:
                lines.append(f"if {self.rng.choice(names)} > {self.rng.randint(0, 2)}:")
                lines += ["    " + line for line in self.block(depth + 1, names, counts)]
                if self.rng.random() < 0.5:
                    lines.append(f"elif {self.rng.choice(names)} > 1:")
                    lines += ["    " + line for line in self.block(depth + 1, names, counts)]
                if self.rng.random() < 0.5:
                    lines.append("else:")
                    lines += ["    " + line for line in self.block(depth + 1, names, counts)]
            elif kind < 0.8:
                lines.append("rows = rows - 1")
            else:
                lines.append(f"use({', '.join([*names, *counts])})")
        return [*lines, f"use({', '.join([*names, *counts])})"]


def hoisted(text, counts=frozenset(COUNTS)):
    return cst.Module(with_hoisted_counts(cst.parse_module(text).body, counts)).code


def uses(text, rows):
    record = []
    exec(text, {"use": lambda *values: record.append(values), "rows": rows})
    return record


def test_hoisted_counts__have_the_values_that_uses_had():
    moved = merged = 0
    for seed in range(150):
        text = "\n".join(["use(0)", *Body(seed).lines]) + "\n"
        new = hoisted(text)
        assert [uses(new, rows) for rows in (0, 3, 9)] == [uses(text, rows) for rows in (0, 3, 9)], f"{text}\n{new}"
        assert sorted(line.strip() for line in new.splitlines() if "#" in line) == sorted(
            line.strip() for line in text.splitlines() if "#" in line)
        moved += new != text
        merged += sum(line.strip()[:1] == "n" for line in text.splitlines()) - sum(
            line.strip()[:1] == "n" for line in new.splitlines())
    assert moved > 30 and merged > 5


@pytest.mark.parametrize("before, after", [
    # out of all loops whose variables it does not read
    ("for i in range(2):\n    for j in range(3):\n        n0 = min(8, rows)\n        use(n0)\n",
     "n0 = min(8, rows)\nfor i in range(2):\n    for j in range(3):\n        use(n0)\n"),
    ("for i in range(2):\n    for j in range(3):\n        n0 = min(8, rows - i)\n        use(n0)\n",
     "for i in range(2):\n    n0 = min(8, rows - i)\n    for j in range(3):\n        use(n0)\n"),
    # with what it reads, if that moves as well
    ("for i in range(2):\n    n0 = min(8, rows)\n    n1 = max(n0, 2)\n    use(n1)\n",
     "n0 = min(8, rows)\nn1 = max(n0, 2)\nfor i in range(2):\n    use(n1)\n"),
    # a loop of nothing else keeps a statement; comments stay in the loop
    ("for i in range(2):\n    n0 = min(8, rows)\nuse(n0)\n", "n0 = min(8, rows)\nfor i in range(2):\n    pass\nuse(n0)\n"),
    ("use(0)\n# all\nfor i in range(2):\n    # rows\n    n0 = min(8, rows)\n    use(n0)\n",
     "use(0)\n# all\nn0 = min(8, rows)\nfor i in range(2):\n    # rows\n    use(n0)\n"),
    ("use(0)\n# all\nfor i in range(2):\n    # rows\n    n0 = min(8, rows)\n",
     "use(0)\n# all\n# rows\nn0 = min(8, rows)\nfor i in range(2):\n    pass\n"),
    # equal counts of one block become one, unless what they read changes between
    ("n0 = min(8, rows)\nuse(n0)\nn1 = min(8, rows)\nuse(n1)\nn2 = min(8, rows)\nuse(n2)\n",
     "n0 = min(8, rows)\nuse(n0)\nuse(n0)\nuse(n0)\n"),
    ("n0 = min(8, rows)\nrows = 2\nn1 = min(8, rows)\nuse(n0, n1)\n", ""),
    # not what calls another function, is assigned twice, or reads what its loop assigns
    ("for i in range(2):\n    n0 = size(rows)\n    use(n0)\n", ""),
    ("for i in range(2):\n    n0 = min(8, rows)\n    n0 = 3\n    use(n0)\n", ""),
    ("for i in range(2):\n    n0 = min(8, rows)\n    rows = rows - 1\n    use(n0)\n", ""),
    ("for i in range(2):\n    if i:\n        n0 = min(8, rows)\n        use(n0)\n", ""),
    ("while rows:\n    n0 = min(8, rows)\n    use(n0)\n", ""), ("for i in a: n0 = min(8, rows)\n", "")])
def test_examples_of_counts(before, after):
    assert hoisted(before) == (after or before)
    assert hoisted(before, frozenset()) == before


# -- nesting -----------------------------------------------------------------------------------------------------------
def syntax_nodes(text):
    return sum(1 for _ in ast.walk(ast.parse(text)))


SOURCES = sorted((Path(nesting.__file__).parent).glob("*.py"))[:20]


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.stem)
def test_syntax_trees_have_at_least_as_many_nodes_as_a_scan_says(file):
    text = file.read_text()
    assert syntax_nodes(text) // 20 <= nesting.least_nodes(text) <= syntax_nodes(text)


@pytest.mark.parametrize("text, nodes", [("", 0), ("a, b, c, d", 3), ("a;b;c", 2), ("'a, b, c'  # d, e", 0),
                                         ('"""a,\nb,\n"""', 0), ("a\nb\nc\nd", 2), ("a b c d e f g h", 2),
                                         ("'''it\\'s, a'''", 0), ("'a\\', b', c", 1), ("f(1,\n  2)", 1), ("f'{a}{b}'", 4), ("x = rF'{a}{{b}}'", 2),
                                         ("'{a}'", 0), ("self'{a}'", 0), ("f\"{a:{b}}\", 1", 5), ("Rf'{a}'", 2)])
def test_examples_of_scans(text, nodes):
    assert nesting.least_nodes(text) == nodes


def test_depths_of_texts():
    assert nesting.deepest(ast.parse("")) == (0, 1) and nesting.deepest(ast.parse("a\n\nb.c.d\n"))[1] == 3
    depths = [nesting.deepest(ast.parse("x = " + "(" * k + "1" + "+1)" * k))[0] for k in range(5)]
    assert [b - a for a, b in itertools.pairwise(depths)] == [depths[1] - depths[0]] + [1] * 3
    nesting.check_syntax("x = 1\n", "k.py")


@pytest.mark.parametrize("text, line", [
    ("a = 1\nb = " + "+".join(["1"] * 20_000) + "\n", 2), ("b = 1\n\n\nc = x" + ".y" * 20_000 + "\n", 4),
    ("b = 1\nc = x" + ".y" * 3_001 + "\n", 2), ("a = 1\nb = " + "(" * 300 + ")" * 300 + "\n", 2),
    ("".join(" " * k + "if x:\n" for k in range(120)) + " " * 120 + "pass\n", 101),
    ("y = 1\nif x == 0:\n    pass\n" + "".join(f"elif x == {k}:\n    y = f(1, 2, 3)\n" for k in range(4_000)), 2)])
def test_texts_that_nest_too_deeply__are_refused_at_their_line(text, line):
    with contextlib.suppress(InputTooLarge), pytest.raises(nesting.NestsTooDeeply, match="nests more deeply") as caught:
        nesting.check_syntax(text, "k.py")
    assert caught.value.line == line


@pytest.mark.parametrize("text, message", [("a b\n", "invalid syntax"), ("x = 1" + "0" * 5000 + "\n", "integer"),
                                           ("x\0\n", "null bytes")])
def test_wrong_texts__are_syntax_errors(text, message):
    with pytest.raises(SyntaxError, match=message):
        nesting.check_syntax(text, "k.py")


def test_texts_with_too_many_nodes__are_refused(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_INPUT_NODES", "100")
    nesting.check_syntax("a\n" * 20, "k.py")
    for text in ("a\n" * 80, "a\n" * 5_000, "(" + "a," * 500 + ")"):
        with pytest.raises(InputTooLarge, match=r"the syntax tree of the file|the file"):
            nesting.check_syntax(text, "k.py")


# -- functions for dtypes ----------------------------------------------------------------------------------------------
class NumpyInteger(int):
    pass


def dtype_functions(text):
    names = {name: name for name in ("bool_", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32",
                                     "bfloat16")}
    space = {"nl": types.SimpleNamespace(**names), "lang": types.SimpleNamespace(**names)}
    exec("\n".join(line for line in text.splitlines() if "import" not in line), space)
    return space


def test_dtypes_of_numbers_and_tiles():
    text = added_functions.with_added_functions("import nki.language as nl\nx = 0\nf = lambda: (quotient_dtype(x), "
                                              "number_dtype(x, 1))\n")
    space = dtype_functions(text)
    for dtype in ("bool_", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "bfloat16"):
        tile, is_float = types.SimpleNamespace(dtype=dtype), "float" in dtype
        for number in (3, NumpyInteger(2), True, 0.5):
            is_integer = isinstance(number, int)
            assert space["quotient_dtype"](tile, number) == (dtype if is_integer and is_float else "float32")
            expected = "float32" if not is_integer or dtype == "uint32" else dtype if is_float else "int32"
            assert space["number_dtype"](dtype, number) == expected
        assert space["quotient_dtype"](tile) == (dtype if is_float else "float32")


def test_functions_for_dtypes__are_behind_the_imports_once():
    text = ('"""A module."""\nimport nki.language as lang\nfrom nki import (\n    jit,\n)\n\nf = 1\n'
            "def g(t):\n    return number_dtype(t.dtype, 1)\n")
    new = added_functions.with_added_functions(text)
    assert new.index("    jit,\n)\n\n\ndef number_dtype(") < new.index("f = 1") and "quotient_dtype" not in new
    assert "nl." not in new.replace("lang.", "") and added_functions.with_added_functions(new) == new
    assert added_functions.with_added_functions("x = my_number_dtype(1)\n") == "x = my_number_dtype(1)\n"
    both = added_functions.with_added_functions("import nki.language as nl\nquotient_dtype(a)\nnumber_dtype(b, 1)\n")
    assert both.index("def quotient_dtype") < both.index("def number_dtype") < both.index("\nquotient_dtype(a)")
    assert added_functions.with_added_functions("quotient_dtype(a)\n").startswith("\n\ndef quotient_dtype(")
