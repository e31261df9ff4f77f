# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of the search for a function's source: statements on lines, definitions, what nodes bind, equal code."""

import ast
import linecache
import sys

import pytest

from nki_mlir.capture import source_text
from nki_mlir.capture.source_text import (
    _definitions,
    _forms,
    compiles_to,
    copied_tree,
    definition,
    statement_at,
    statements_below,
)

TEXT = '''import os

def f(a, *, b=1):
    x = (a +
         b)
    if x: y = x; z = y  # two on a line
    for i in range(3):
        x += i

    return x
'''


def code_of(text, name="f", file="<text>", flags=0):
    """The code of a function in a text."""
    pending = [compile(text, file, "exec", flags=flags, dont_inherit=True)]
    while pending:
        code = pending.pop()
        if code.co_name == name:
            return code
        pending += [c for c in code.co_consts if hasattr(c, "co_name")]
    raise KeyError(name)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.py"
    path.write_text(TEXT)
    return str(path)


@pytest.mark.parametrize("line, span", [
    (1, (0, 9)),                    # import os
    (2, (0, None)), (11, (0, None)),
    (3, (0, 17)),                   # def, to the end of its line
    (4, (4, 12)),                   # the first line of a statement
    (5, (9, 11)),                   # its last line, from the first letter
    (6, (17, 22)),                  # the last statement of the line
    (7, (4, 22)), (8, (8, 14)),
    (9, (0, 0)),                    # an empty line in a function
    (10, (4, 12))])
def test_columns_of_the_innermost_statement_on_a_line(file, line, span):
    assert statement_at(file, line) == span


def test_file_that_cannot_be_parsed_or_read__has_no_statements(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n    x = 1\n")
    assert statement_at(str(broken), 2) == statement_at(str(tmp_path / "none.py"), 1) == (0, None)


def test_statements_below_a_node_are_those_of_a_walk(file):
    for text in (TEXT, "class C:\n  def g(self):\n    try:\n      x = [1]\n    except E as e:\n      pass\n    else: y\n"
                       "    match v:\n      case 1:\n        z = (lambda: 1)()\n"):
        tree = ast.parse(text)
        below = [*statements_below(tree)]
        assert len(below) == len({*below}) and {*below} == {
            n for n in ast.walk(tree) if isinstance(n, ast.stmt)}
        assert below[0] is tree.body[0]


def test_definitions_by_first_line_and_name():
    tree = ast.parse("x = [1]\n@d\n@e(\n  1)\ndef f(): \n  class C:\n    def f(self): pass\n  def g(): pass\n"
                     "if x:\n  class D:\n    if y:\n      def h(self): pass\nasync def k(): pass\n")
    assert {key: value.inside for key, value in _definitions(tree, None)} == {
        (2, "f"): None, (7, "f"): "C", (8, "g"): None, (12, "h"): "D"}


def test_copied_tree_is_equal_and_shares_no_node():
    tree = ast.parse(TEXT)
    copy = copied_tree(tree)
    assert ast.dump(copy, include_attributes=True) == ast.dump(tree, include_attributes=True)
    contexts = (ast.expr_context,)
    shared = {id(n) for n in ast.walk(tree)} & {id(n) for n in ast.walk(copy) if not isinstance(n, contexts)}
    assert not shared
    load = next(n for n in ast.walk(tree) if isinstance(n, ast.Name)).ctx
    assert copied_tree(load) is load
    statements = tree.body[1].body
    assert copied_tree(statements) is not statements and len(copied_tree(statements)) == len(statements)


BINDINGS = ["import a.b", "import a as b", "from c import d as e", "from c import d", "(w := 1)", "def g(): pass",
            "class C: pass", "async def g(): pass", "for v in q: pass",
            "with q as v: pass", "try:\n    pass\n  except E as error:\n    pass",
            "match q:\n    case [1, *rest]: pass", "match q:\n    case {'k': 1, **rest}: pass",
            "match q:\n    case 1 as one: pass", "match q:\n    case {'k': 1}: pass\n    case [*_]: pass"]


@pytest.mark.parametrize("statement", BINDINGS)
def test_definition__is_found_whatever_binds_its_variables(tmp_path, statement):
    path = tmp_path / "binds.py"
    path.write_text(f"def f(a, b2=1, /, *, k=2):\n  {statement}\n  return a\n")
    assert definition(code_of(path.read_text(), file=str(path)), {}) is not None


@pytest.mark.parametrize("current", [
    "def f(a, b):\n  return c\n", "def f(b, a=1, *, k=2):\n  return a\n", "def f(a, /, *, j=2):\n  return a\n",
    "def f(a, *, k=2):\n  return b\n"])
def test_definition__with_other_parameters_or_variables_is_none(tmp_path, current):
    path = tmp_path / "changed.py"
    code = code_of("def f(a, *, k=2):\n  c = 1\n  return a\n", file=str(path))
    path.write_text(current)
    assert definition(code, {}) is None


def test_variables_of_test_runners_and_comprehensions_need_no_name(tmp_path):
    path = tmp_path / "runner.py"
    path.write_text("def f(a):\n  return a\n")
    code = code_of(path.read_text(), file=str(path))
    code = code.replace(co_varnames=("a", "@py_assert1", ".0"), co_nlocals=3)
    assert definition(code, {}) is not None
    assert definition(code.replace(co_varnames=("a", "b"), co_nlocals=2), {}) is None


@pytest.mark.parametrize("text, equal", [
    ("def f(a):\n  return a\n", True),
    ("class C:\n  x = [lambda: 1]\n  def f(a):\n    return a\n", False),        # on another line
    ("def f(a):\n  return b\n", False), ("def f(a, b):\n  return a\n", False), ("def g(a):\n  return a\n", False),
    ("def f(a):\n  return a\ndef g(:", False), ("def f(a):\n  return a\n\0", False), ("x = 1", False), ("", False)])
def test_text_that_compiles_to_a_functions_code(text, equal):
    assert compiles_to(text, code_of("def f(a):\n  return a\n")) is equal


def test_text_that_compiles_to_an_inner_functions_code():
    text = "def outer():\n  def inner():\n    def f(a):\n      return a\n    return f\n  return inner\n"
    assert compiles_to(text, code_of(text)) and not compiles_to(text.replace("return a", "return 1"), code_of(text))


def test_text_is_compiled_with_the_annotations_of_its_module_alone():
    text = "def f(a: int):\n  def g(b: unknown): return b\n  return g\n"
    future = __import__("__future__").annotations.compiler_flag
    assert source_text.FUTURES == future
    assert compiles_to(text, code_of(text)) and compiles_to(text, code_of(text, flags=future))
    assert code_of(text) != code_of(text, flags=future)


def test_forms_that_python_derives_from_a_text():
    text = "\n    def f():\n      pass\n  "
    assert [*_forms(text)] == [text, "\ndef f():\n  pass\n", text.strip(), "def f():\n  pass"]
    assert [*_forms("x = 1")] == ["x = 1"]


def test_text_is_remembered_from_when_a_kernel_was_created(tmp_path):
    path = tmp_path / "kept.py"

    def function_of(text):
        path.write_text(text)
        scope = {}
        exec(compile(text, str(path), "exec"), scope)
        return scope["f"]
    first = function_of("def f(a):\n  return a + 1\n")
    source_text.remember(first)
    second = function_of("def f(a):\n  return a + 22\n")
    source_text.remember(second)
    source_text.remember(None)
    assert source_text._earlier[str(path)] == ["def f(a):\n  return a + 1\n", "def f(a):\n  return a + 22\n"]
    path.write_text("def f(a):\n  return a + 333\n")
    linecache.checkcache(str(path))
    for function, constant in ((first, "1"), (second, "22")):
        assert ast.unparse(definition(function.__code__, {}).function.body) == f"return a + {constant}"


HELD = [("def f( #" + 12 * "x", True), ("def f( #" + 13 * "x", False), ("def g( #", False), (b"def f( #\xff", True),
        (None, False), (3, False)]


@pytest.mark.parametrize("number", range(len(HELD)))
def test_candidates_are_texts_that_callers_hold(number, monkeypatch):
    code = code_of("def f(a):\n  return a\n", file="<string>")
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", "of a command"])
    monkeypatch.setattr(source_text, "LONGEST", 20)

    def candidates(code, literal):
        return {text for text in source_text._candidates(code) if "#" in text or text == "of a command"}
    literal, is_examined = HELD[number]
    expected = {literal.decode(errors="replace") if isinstance(literal, bytes) else literal} if is_examined else set()
    assert candidates(code, literal) == {"of a command", *expected}
    assert candidates(code.replace(co_filename="<file>"), literal) == expected
    monkeypatch.setattr(sys, "orig_argv", ["python", "file.py", "-c"])
    assert candidates(code, literal) == expected
