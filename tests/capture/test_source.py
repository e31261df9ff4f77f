# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finding a function's definition: never another one's."""

import ast
import functools
import importlib
import linecache
import sys

import numpy as np
import pytest

from nki_mlir.capture.source_text import definition


def decorated(*functions):
    return lambda function: functions[0] if functions else function


LAMBDAS = decorated(lambda a: a + 1,
                    lambda a: a + 2)


@decorated(
    lambda first: first,                # a lambda on the first line of a definition is not that definition
    lambda second: second)
def taken(first):
    return first


@decorated()
@functools.cache
def plain(x, *rest, key=1, **others):
    """A text
at column 0
    """
    if False:
        y = unknown_name                # noqa: F821
    try:
        import os.path as z
    except ValueError as e:
        z = e
    return [x for x in rest], z, key, others


class Holder:
    def method(self, x):
        def inner(y):
            return x + y
        return inner


def definition_of(function):
    definition_of_it = definition(function.__code__, globals())
    return definition_of_it and definition_of_it.function


def test_definition__of_functions_methods_and_closures():
    for function in (plain.__wrapped__, Holder.method, Holder().method(1), definition_of):
        node = definition_of(function)
        assert isinstance(node, ast.FunctionDef) and node.name == function.__name__
        assert node.lineno > 0 and node.body


def test_definition__keeps_lines_and_columns():
    inner = Holder().method(1)
    node = definition_of(inner)
    line = linecache.getline(__file__, node.lineno)
    assert line[node.col_offset:].startswith("def inner")


def test_definition__of_lambdas_is_none():
    assert definition_of(taken) is None and taken.__name__ == "<lambda>"
    assert definition_of(lambda: 1) is None
    assert definition_of(functools.partial(LAMBDAS).func) is None


def test_definition__is_a_copy():
    first = definition_of(definition_of)
    first.body = []
    assert definition_of(definition_of).body


@pytest.mark.parametrize("change", ["def f(a, b):\n    return a\n", "def f(a):\n    c = a\n    return c\n", "x = 1\n",
                                    "def f(a:\n", "def g(a):\n    d = a\n    return d\n"])
def test_definition__of_source_that_has_changed_is_none(tmp_path, change):
    file = tmp_path / "module.py"
    file.write_text("def f(a):\n    d = a\n    return d\n")
    scope = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    assert definition(scope["f"].__code__, scope) is not None
    file.write_text(change + "# longer\n")
    assert definition(scope["f"].__code__, scope) is None


KERNEL = """
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * FACTOR)
    return out
"""


def test_kernel__is_what_its_file_said_when_it_was_made(tmp_path, monkeypatch):
    """Not what the file says when the kernel is first called."""
    file, x = tmp_path / "edited_kernel.py", np.ones((4, 8), np.float32)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def edit(factor):
        file.write_text(KERNEL.replace("FACTOR", factor) + " " * len(factor))       # of another size each time
        return float(factor)
    first = edit("2")
    module = importlib.import_module("edited_kernel")
    old = module.kernel
    second = edit("35")
    assert np.array_equal(old(x), x * first)
    assert np.array_equal(importlib.reload(module).kernel(x), x * second)
    edit("467")
    assert np.array_equal(module.kernel(x[:2]), x[:2] * second) and np.array_equal(old(x[:2]), x[:2] * first)


def test_definition__without_source_is_none():
    scope = {}
    exec("def f(a):\n    return a\n", scope)
    assert definition(scope["f"].__code__, scope) is None
