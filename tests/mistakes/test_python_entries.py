# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entries of Python with values of any type: each is one error of the toolchain at the caller's line."""

import math
from pathlib import Path

import numpy as np
import pytest

import nki_mlir
from nki_mlir import customop, plugin
from nki_mlir.capture.tracebacks import is_defect
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.frameworks.stablehlo import LinkedProgram, run_linked
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.targets.neuron import assemble, disassemble

X = np.ones((4, 8), np.float32)
GRAPH = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
NESTED: list = []
NESTED.append(NESTED)
DEEP: list = []
for _ in range(50_000):
    DEEP = [DEEP]
VALUES = {
    "none": None, "text": "x", "empty": "", "bytes": b"\xff", "nan": math.nan, "huge": 10 ** 400, "negative": -1,
    "list": [1, 2], "nested": NESTED, "dict": {"a": 1}, "set": {1}, "object": object(), "class": int, "function": len,
    "path": Path(), "complex": 1j, "array": X, "no elements": np.zeros((0, 4)), "texts": np.array(["a"]),
    "objects": np.array([None]), "records": np.zeros(3, [("a", "f4")]), "slice": slice(None), "surrogate": "\udcff"}


@nki.jit
def scaled(x, s=2.0):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), s))
    return out


@beta.jit
def beta_scaled(x, s=2.0):
    out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
    beta_nl.store(out, beta_nl.load(x) * s)
    return out


def reference(x, s=2.0):
    return 2 * x


ENTRIES = {
    "tensor": scaled, "beta tensor": beta_scaled, "constant": lambda v: scaled(X, v), "grid": lambda v: scaled[v](X),
    "lower": scaled.lower, "level": lambda v: scaled.lower(X).as_text(v), "mode": lambda v: nki.jit(scaled, mode=v),
    "beta mode": lambda v: beta.jit(beta_scaled, mode=v), "target": lambda v: nki.jit(scaled, platform_target=v),
    "opt": nki_mlir.opt, "passes": lambda v: nki_mlir.opt("module {}", v),
    "opt to": lambda v: nki_mlir.opt("module {}", to=v), "opt target": lambda v: nki_mlir.opt("module {}", target=v),
    "space": lambda v: nki_mlir.tune(scaled, v, [X]),
    "arguments": lambda v: nki_mlir.tune(scaled, {"s": [2.0]}, v, reference, trials=1),
    "reference": lambda v: nki_mlir.tune(scaled, {"s": [2.0]}, [X], v, trials=1),
    "tolerance": lambda v: nki_mlir.tune(scaled, {"s": [2.0]}, [X], reference, v, trials=1),
    "trials": lambda v: nki_mlir.tune(scaled, {"s": [2.0]}, [X], reference, trials=v),
    "seed": lambda v: nki_mlir.tune(scaled, {"s": [2.0]}, [X], reference, trials=1, seed=v),
    "graph": lambda v: run_linked(v, []), "graph arguments": lambda v: run_linked(GRAPH, v),
    "graph argument": lambda v: run_linked(GRAPH, [v]), "graph on": lambda v: LinkedProgram(GRAPH, v)}
OF_PYTHON = {                       # what Python says of these values is enough
    ("reference", "class"), ("reference", "function"), ("arguments", "nested")}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("entry", ENTRIES)
def test_value_of_any_type__is_taken_or_one_error(entry, value):
    if (entry, value) in OF_PYTHON:
        return
    try:
        ENTRIES[entry](VALUES[value])
    except NkiMlirError as error:
        assert not is_defect(error)


def test_deep_arguments__are_refused():
    for call in (scaled, beta_scaled, scaled.lower, lambda v: scaled(X, v)):
        with pytest.raises(NkiMlirError, match="an argument contains itself, or is nested more than 100 deep"):
            call(DEEP)
        with pytest.raises(NkiMlirError, match="an argument contains itself"):
            call({"a": NESTED})


@pytest.mark.parametrize("call, text", [
    (lambda: nki_mlir.opt(3), "nki_mlir.opt takes a module or its text, got a value of type int"),
    (lambda: nki_mlir.opt(scaled), "a value of type Kernel: lower it for arguments first, kernel.lower(x).as_text('nki')"),
    (lambda: nki_mlir.opt("module {}", [3]), "nki_mlir.opt takes names of passes, got a value of type int"),
    (lambda: nki_mlir.opt("module {}", target=3), "nki_mlir.opt takes a target as text, got a value of type int"),
    (lambda: nki.jit(scaled, platform_target=[1]), "there is no target named 'a value of type list'"),
    (lambda: nki_mlir.tune(scaled, 3, [X]), "nki_mlir.tune takes a dict of values to search, got a value of type int"),
    (lambda: run_linked(3, []), "it is a value of type int, not text or bytes"),
    (lambda: run_linked(GRAPH, [[[1], [1, 2]]]), "argument 0 is no array")])
def test_error__names_what_the_entry_takes(call, text):
    with pytest.raises(NkiMlirError) as caught:
        call()
    assert text in str(caught.value)


class OddShapes(FrameworkKernel):
    """A binding that returns any value as the shape of a tensor."""

    shape: object = ()

    def map_framework_tensor(self, t):
        return self.shape, np.float32


def of_shape(shape):
    binding = OddShapes(scaled)
    binding.shape = shape
    return binding.dump_config(X)


@pytest.mark.parametrize("call, headline, fix", [
    (lambda: nki_mlir.opt(b"module {}"), "nki_mlir.opt takes a module or its text, got a value of type bytes",
     "pass kernel.lower(x).as_text('nki')"),
    (lambda: nki_mlir.opt("module {}", to=3), "nki_mlir.opt takes a level as text, got a value of type int",
     "pass to='linalg'"),
    (lambda: assemble(None), "assemble takes text, got a value of type NoneType", "pass the text of a kernel's streams"),
    (lambda: assemble(b"a"), "assemble takes text, got a value of type bytes", "pass the text of a kernel's streams"),
    (lambda: disassemble(None), "disassemble takes bytes, got a value of type NoneType",
     "pass the bytes of a kernel's streams"),
    (lambda: disassemble("a"), "disassemble takes bytes, got a value of type str", "pass the bytes of a kernel's streams"),
    (lambda: plugin.load(None), "module None of plugin None cannot be loaded: the name of a module is a text, got NoneType",
     "fix or uninstall the plugin; NKI_MLIR_PLUGINS=off ignores installed plugins"),
    (lambda: customop.load_library(None), "None is not a library of custom operators: it is not the path of a file",
     "build it with custom_op.load"),
    (lambda: customop.load_library("a\0"), r"'a\x00' is not a library of custom operators: it is not the path of a file",
     "build it with custom_op.load"),
    (lambda: customop.load("a", 3, 3), "compute_srcs is 3",
     "give a list of at least one file name: compute_srcs=['kernel.cpp']"),
    (lambda: customop.load(None, ["a"], ["a"]), "'None' cannot be the name of a library", "use letters, digits, '-' and '_'"),
    (lambda: scaled.lower(X).profile().write("a\0b"), r"a profile cannot be written into 'a\x00b': it is not a path",
     "name a directory that can be written to; it is created if it does not exist"),
    (lambda: of_shape("text"), "a tensor of shape 'text': it is a text",
     "give a tuple of extents that are integers of 0 or more, for example (128, 512)"),
    (lambda: of_shape((-1, 4)), "a tensor of shape (-1, 4): an extent is -1",
     "give a tuple of extents that are integers of 0 or more, for example (128, 512)"),
    (lambda: of_shape(None), "a tensor of shape None: 'NoneType' object is not iterable",
     "give a tuple of extents that are integers of 0 or more, for example (128, 512)")])
def test_error__says_the_fix(call, headline, fix):
    with pytest.raises(NkiMlirError) as caught:
        call()
    assert caught.value.headline == headline and caught.value.advice[1] == fix


def test_shape_of_a_binding__is_not_allocated():
    with pytest.raises(NkiMlirError, match="a tensor of shape"):
        of_shape((4, 10 ** 30))


@pytest.mark.parametrize("jit", [nki.jit, beta.jit], ids=["current", "beta"])
@pytest.mark.parametrize("function", [len, np.sum, np.add, math.sin, "a".join], ids=lambda function: function.__name__)
def test_function_that_is_not_written_in_python__is_no_kernel(jit, function):
    with pytest.raises(NkiMlirError, match=rf"{function.__name__} is not a function that is written in Python \[") as caught:
        jit(function)(X)
    assert caught.value.advice[1] == "decorate a function with nki.jit" and caught.value.at.file == __file__
