# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python that the vendor's parser refuses: one statement for each rule, and what the parser reads."""

import ast
from dataclasses import dataclass

import numpy as np
import pytest

import nki_mlir
from nki_mlir.compat import install
from nki_mlir.language.current.refused_python import RefusedPython
from nki_mlir.language.python_subset import DECORATOR, RULES, refused

install()

import nki  # noqa: E402
import nki.language as nl  # noqa: E402

BREAKING = {
    "def f(): pass": "an inner function",
    "f = lambda: 1": "a lambda",
    "raise ValueError('x')": "'raise'",
    "[k for k in y]": "a comprehension",
    "sum(k for k in y)": "a generator expression",
    "f'{x:.2f}'": "a format in an f-string",
    "{k: 1 for k in y}": "a comprehension of a dictionary",
    "{k for k in y}": "a comprehension of a set",
    "{1, 2}": "a set",
    "{1: 2}": "a dictionary whose keys are not string literals",
    "(n := 1)": ":=",
    "yield 1": "'yield'",
    "g(*y)": "an unpacked argument",
    "g(**y)": "an unpacked argument",
    "a, *b = y": "an unpacked sequence",
    "x @ y": "@",
    "x is y": "'is' between values other than None",
    "class C: pass": "a class within a function",
    "del x": "'del'",
    "async def f(): pass": "'async' and 'await'",
    "match x:\n        case _: pass": "'match'",
    "try: pass\n    except E: pass": "'try'",
    "import math": "an import within a function",
    "global x": "'global' and 'nonlocal'",
    "for k in y: pass\n    else: pass": "'else' of a loop",
    "with open(x): pass": "'with' of values other than nl.no_reorder()",
}
READ = ["x is None", "x is not None", "f'{x!r} {y}'", "{'a': 1}", "[1, 2] if x else 2",
        "for k in nl.affine_range(2): x += k", "while x: break", "with nl.no_reorder(): pass", "a, (b, c) = y",
        "a = b = y", "assert x, 'text'", "t: int = 2", "x if y else None", "0 < x < y", "x not in (1, 2)"]


def function(statement, signature="x, y"):
    tree = ast.parse(f"def kernel({signature}):\n    {statement}\n").body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree


@pytest.mark.parametrize("statement", BREAKING)
def test_rule(statement):
    broken = list(refused(function(statement), True))
    assert [(rule.construct, node.lineno) for rule, node in broken] == [(BREAKING[statement], 2)]
    assert broken[0][0].instead


def test_every_rule_has_a_statement():
    assert {rule.construct for rule in RULES} == set(BREAKING.values())


@pytest.mark.parametrize("statement", READ)
def test_what_the_parser_reads(statement):
    assert list(refused(function(statement), True)) == []


def test_bodies_of_loops_at_run_time_may_be_inner_functions():
    text = "def body(i): pass\n    nl.fori_loop(0, 4, body)\n    nl.while_loop(lambda r: r, body, x)"
    assert list(refused(function(text), True)) == []


def test_signatures():
    assert [str(rule) for rule, _ in refused(function("pass", "x, *y"), False)] == [
        "the parser of nki 0.2 to 0.6 refuses a parameter *args"]
    assert [rule.instead for rule, _ in refused(function("pass", "x, *, y=1"), True)] == ["remove the *"]
    assert list(refused(function("pass", "x, *, y=1"), False)) == []        # of functions that a kernel calls
    decorated = ast.parse("@nki.jit(debug=True)\n@functools.cache\ndef f(): pass").body[0]
    assert [(rule, node.lineno) for rule, node in refused(decorated, True)] == [(DECORATOR, 2)]


class Sizes(nl.NKIObject):
    count: int = 2

    def of(self):
        return [k for k in range(self.count)]


def doubled(tile):
    pick = lambda a: a
    return nl.add(pick(tile), tile)


@nki.jit
def with_refused_python(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if x.shape[0] > 128:
        raise ValueError("rows")
    tile = nl.load(x)
    for _ in Sizes().of():
        tile = doubled(tile)
    nl.store(out, tile)
    return out


def of_lines(report):
    first = Sizes.of.__code__.co_firstlineno
    return {(f.location.line - first, f.severity, f.message, f.fix) for f in report.of("python")}


def test_check_reports_the_kernel_and_what_it_calls():
    start = "the parser of nki 0.2 to 0.6 refuses "
    assert of_lines(nki_mlir.check(with_refused_python, np.ones((4, 4), np.float32))) == {
        (1, "warning", f"{start}a comprehension", "append to a list in a loop"),
        (5, "warning", f"{start}a lambda", "define a function of the module"),
        (13, "warning", f"{start}'raise'", "write assert False, with the text")}


class Step(nl.NKIObject):
    def apply(self, tile):
        return nl.multiply(tile, f"{self.factor:d}" and self.factor)


@dataclass
class Scaled(Step):
    factor: int = 2

    @property
    def rows(self):
        return 4


@nki.jit
def with_refused_methods(x, steps):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:steps[0].rows])
    for step in steps:
        tile = step.apply(tile)
    nl.store(out, tile)
    return out


def test_check_reports_methods_and_properties_of_arguments():
    report = nki_mlir.check(with_refused_methods, np.ones((4, 4), np.float32), (Scaled(3), Scaled()))
    first = Step.apply.__code__.co_firstlineno
    start = "the parser of nki 0.2 to 0.6 refuses "
    assert [(f.location.line - first, f.message) for f in report.of("python")] == [
        (1, f"{start}a format in an f-string"), (8, f"{start}this decorator")]


def test_strict_warns_once_a_line_and_values_stay(monkeypatch):
    x = np.ones((4, 4), np.float32)
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")
    with pytest.warns(RefusedPython) as caught:
        result = with_refused_python.run((x,), {}, "eager")
    assert np.array_equal(result, 4 * x)
    texts = sorted(str(w.message) for w in caught if w.category is RefusedPython)
    assert texts == ["the parser of nki 0.2 to 0.6 refuses 'raise'; write assert False, with the text",
                     "the parser of nki 0.2 to 0.6 refuses a comprehension; append to a list in a loop",
                     "the parser of nki 0.2 to 0.6 refuses a lambda; define a function of the module"]
