# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that replace parts of Python which the command needs: an error names them, at the line that does it."""

import builtins
import os
import subprocess
import sys

import pytest

from nki_mlir.cli import python_state
from nki_mlir.cli.python_state import PythonState, ReplacedPython, with_python_restored

HEAD = """import builtins, os, sys
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
@nki.jit
def f(x):
    {line}
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out
"""
KERNELS = {
    "builtins.isinstance = None": ("isinstance", "TypeError: 'NoneType' object is not callable"),
    "builtins.len = lambda value: 3": ("len", "IndexError"),
    "builtins.BaseException = builtins.type = 3": ("type, BaseException", "TypeError: catching classes"),
    "builtins.__dict__.clear()": ("__name__, __doc__, __package__, __loader__, others", "NameError: name "),
    "sys.modules.clear()": ("sys.modules", ""),
    "sys.setrecursionlimit(60)": ("the recursion limit", "RecursionError: maximum recursion depth exceeded"),
    "np.ndarray = np.asarray = None": ("numpy.asarray, numpy.ndarray", "TypeError: "),
    "sys.stdout = builtins.print = object()": ("print, sys.stdout", "TypeError: 'object' object is not callable")}


@pytest.mark.parametrize("line", KERNELS)
def test_a_command_names_what_a_kernel_replaces(line, tmp_path):
    what, text = KERNELS[line]
    (tmp_path / "k.py").write_text(HEAD.format(line=line))
    done = subprocess.run([sys.executable, "-m", "nki_mlir.cli.run", "k.py:f", "--arg=4x4xf32"], cwd=tmp_path,
                          capture_output=True, text=True, env={**os.environ, "NKI_MLIR_CACHE": "off"})
    first, *rest = done.stderr.splitlines()
    assert first.startswith(f"k.py:7:5: error: the kernel's file replaces {what}, which the toolchain needs in the same "
                            f"process: {text}"), done.stderr
    assert first.endswith(" [NKI-PYTHON-REPLACED]") and len(rest) == 3 and line in rest[0]
    assert rest[-1] == ("  fix: leave Python's and NumPy's names, modules and limits unchanged, and give the file's "
                        "variables other names")
    assert done.returncode == 1


def test_an_error_of_the_kernel_stays_the_kernels(tmp_path):
    (tmp_path / "k.py").write_text(HEAD.format(line="sys.stderr = os.getcwd = None; nl.lode(x)"))
    done = subprocess.run([sys.executable, "-m", "nki_mlir.cli.run", "k.py:f", "--arg=4x4xf32"], cwd=tmp_path,
                          capture_output=True, text=True)
    assert done.stderr.startswith("k.py:7:36: error: module 'neuronxcc.nki.language' has no attribute 'lode'"), done.stderr


@pytest.fixture
def state(tmp_path, monkeypatch):
    file = tmp_path / "kernel.py"
    file.write_text("\n# ascii = 1\nif ascii == 2:\n  f(ascii=3)\n  builtins.ascii = None\nsetattr(os, 'getcwd', 1)\n")
    state = PythonState.before(file)
    monkeypatch.setattr(python_state, "_states", [state])
    return state


def test_restored__names_what_differs(state):
    assert state.restored() == []
    ascii_function, getcwd, limit, stdout = builtins.ascii, os.getcwd, sys.getrecursionlimit(), sys.stdout
    builtins.ascii = os.getcwd = None
    sys.setrecursionlimit(limit - 1)
    sys.stdout = object()
    del sys.modules["json"]
    assert state.restored() == ["ascii", "os.getcwd", "sys.stdout", "sys.modules", "the recursion limit"]
    assert (builtins.ascii, os.getcwd, sys.getrecursionlimit(), sys.stdout) == (ascii_function, getcwd, limit, stdout)
    assert "json" in sys.modules and state.restored() == []


def test_restored__leaves_what_works(state, monkeypatch, tmp_path):
    """A higher limit, another stream, a further module."""
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(limit + 1)
        with open(tmp_path / "out", "w") as out:
            monkeypatch.setattr(sys, "stdout", out)
            monkeypatch.setitem(sys.modules, "mine", builtins)
            assert state.restored() == [] and sys.stdout is out and sys.getrecursionlimit() == limit + 1
    finally:
        sys.setrecursionlimit(limit)


def test_line_of__is_the_first_that_assigns_a_name(state):
    assert state.line_of(["ascii"])[1:3] == (5, 2) and state.line_of(["os.getcwd"])[1:3] == (6, 0)
    assert state.line_of(["print", "the recursion limit", "sys.modules"]) is None


def test_with_python_restored__converts_errors_of_python_alone(state):
    def failing(error):
        builtins.ascii = None
        raise error
    with pytest.raises(ReplacedPython, match=r"replaces ascii, which .*: ValueError: no"):
        with_python_restored(lambda: failing(ValueError("no")))
    for error in (KeyboardInterrupt(), SystemExit(3), ReplacedPython(what="x", text="y")):
        with pytest.raises(type(error)) as caught:
            with_python_restored(lambda error=error: failing(error))
        assert caught.value is error and builtins.ascii is not None
    with pytest.raises(ValueError, match="invalid literal"):
        with_python_restored(lambda: int("no"))
    assert with_python_restored(lambda: 3) == 3
