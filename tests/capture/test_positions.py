# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The place of each instruction of code that is compiled here, on every version of Python."""

import ast
import dis
import linecache
import sys
import traceback

import numpy as np
import pytest

from nki_mlir.capture.locations import _sizes, compiled, user_location
from nki_mlir.capture.source_text import statement_at

TEXT = """\
def f(here, x):
    a = here() + [here(1), here(
        2)][0]
    with here(3), here(4) as m:
        x[here(6)] = -here(5)
    for i in here.loop(7):
        a += x[0] + here(8) if a else here(9)
    try:
        return [here(k) for k in range(12, 14)], (lambda: here(14))(), x.real, here.loop(
            0), here.method(15)
    finally:
        here(a=16); here(a=17)
"""
NEXT = "for i in here.loop(7):" if sys.version_info < (3, 13) else "here.loop(7)"
EXPECTED = ["here()", "here(1)", "here(", "here(3)", "here(4)", "here(5)", "here(6)", NEXT, "here(9)", NEXT, "here(9)",
            NEXT, "here(k)", "here(k)", "here(14)", "here.method(15)", "here(a=16)", "here(a=17)"]


class Recorder(int):
    """Remembers the places of those who call it."""

    places = []

    def __call__(self, *arguments, a=None):
        self.places.append(user_location(2))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def method(self, number):
        self.places.append(user_location(2))

    def loop(self, number):
        for k in range(2):
            self.places.append(user_location(2))
            yield k
        self.places.append(user_location(2))


def pythons(text, file):
    return compile(text, file, "exec")


def ran(text, file, by=lambda text, file: compiled(ast.parse(text), file, 0)):
    scope = {}
    exec(by(text, str(file)), scope)
    return scope["f"]


@pytest.mark.parametrize("by", [lambda text, file: compiled(ast.parse(text), file, 0), pythons])
def test_places__are_those_of_expressions(by, tmp_path):
    file = tmp_path / "source.py"
    file.write_text(TEXT)
    Recorder.places = []
    ran(TEXT, file, by)(Recorder(0), np.zeros(1, int))
    texts = []
    for position, expected in zip(Recorder.places, EXPECTED):
        line = TEXT.split("\n")[position.line - 1]
        texts.append(line[position.column:] if expected[-1] in "(:" else line[position.column:position.end_column])
    assert texts == EXPECTED and len(Recorder.places) == len(EXPECTED)


SHAPES = [
    "def f(x):\n" + "\n" * 300 + "    y = " + "+".join(["x"] * 400) + "\n" + "\n" * 128 + "    return y / 0\n",
    "def f(x):\n    return max(x," + "\n" * 128 + "    x, *[x,\n" + "\n" * 127 + "  3]) / 0\n",
    "\n\n\ndef f(x):\n    while x:\n        x -= 1\n        if x % 2:\n            continue\n    else:\n        return x / 0\n",
    "def f(x):\n    try:\n        x[1]\n    except TypeError as e:\n        with open(__file__): pass\n",
    "@lambda g: g\n@(\n    lambda g: g)\ndef f(x):\n    return (lambda:\n        x / 0)()\n",
]


@pytest.mark.parametrize("text", SHAPES, ids=range(len(SHAPES)))
def test_compiled__has_the_lines_that_python_gives(text, tmp_path):
    file = tmp_path / "source.py"
    file.write_text(text)
    codes = [compiled(ast.parse(text), str(file), 0)], [pythons(text, str(file))]
    for code_of_capture, expected in zip(*codes):
        assert code_of_capture.co_firstlineno == expected.co_firstlineno
        assert _lines(code_of_capture) == _lines(expected)
        for nested, code in zip(codes, (code_of_capture, expected)):
            nested += [c for c in code.co_consts if hasattr(c, "co_code")]
    assert len(codes[0]) == len(codes[1]) > 1
    frames = []
    for function in (ran(text, file), ran(text, file, pythons)):
        with pytest.raises((ZeroDivisionError, NameError), match=r"division by zero|__file__") as caught:
            function(4)
        frames.append([(f.name, f.lineno) for f in traceback.extract_tb(caught.value.__traceback__)[1:]])
    assert frames[0] == frames[1]


def _lines(code):
    """The line of each instruction that does something."""
    of = {at: line for start, end, line in code.co_lines() for at in range(start, end, 2)}
    return [(i.opname, of[i.offset]) for i in dis.get_instructions(code) if i.opname not in ("NOP", "EXTENDED_ARG")]


def test_statement_at__the_innermost_one_on_the_line(tmp_path):
    file = tmp_path / "source.py"
    file.write_text("x = 1  # one\nif x: y = 2; zebra = 3   # three\nwith open(x,\n          y):\n    call(\n       1,\n    )\n")
    lines = linecache.getlines(str(file))
    cut = [lines[at - 1][slice(*statement_at(str(file), at))] for at in range(1, 8)]
    assert cut == ["x = 1", "zebra = 3", "with open(x,", "y):", "call(", "1,", ")"]
    assert statement_at(str(file), 99) == (0, None) and statement_at("<stdin>", 1) == (0, None)


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="columns are kept")
def test_places__where_the_file_is_another(tmp_path):
    """What remains is the line, and the statement on it."""
    file = tmp_path / "source.py"
    file.write_text("def f(here):\n    x = 1 + here()\n    if x: pass; x = here()\n    assert x\n")
    Recorder.places = []
    ran(file.read_text().replace("assert x", "assert x; x"), file, pythons)(Recorder(1))
    assert [p[1:] for p in Recorder.places] == [(2, 4, 18), (3, 16, 26)]


@pytest.mark.parametrize("size", [2, 252, 254, 256, 508, 510, 1000])
def test_entries_of_a_table_of_lines__are_bytes(size):
    assert sum(_sizes(size)) == size and all(0 < entry < 255 for entry in _sizes(size))
