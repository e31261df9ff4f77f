# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that replace parts of Python which the command needs: an error names them, at the line that does it."""

import builtins
import os
import re
import subprocess
import sys

import pytest

from nki_mlir.capture.replaced_builtins import ReplacedPython
from nki_mlir.cli import python_state
from nki_mlir.cli.python_state import PythonState, with_python_restored

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


DIRECT = {
    "builtins.len = lambda value: 3": ("len", "IndexError: list index out of range"),
    "builtins.isinstance = None": ("isinstance", "TypeError: 'NoneType' object is not callable"),
    "builtins.BaseException = builtins.type = 3": ("type, BaseException", "TypeError: "),
    "builtins.__dict__.clear()": ("__name__, __doc__, __package__, __loader__, others", "NameError: name '"),
    "del builtins.zip": ("zip", "NameError: name 'zip' is not defined")}


@pytest.mark.parametrize("line", DIRECT)
def test_a_call_from_python_names_what_the_program_replaces(line, tmp_path):
    """At the top of the module, and in the kernel. No frame of the toolchain is shown."""
    what, text = DIRECT[line]
    head = "import nki_mlir.compat; nki_mlir.compat.install()\n" + HEAD
    call = "f(np.ones((4, 4), np.float32))\n"
    (tmp_path / "top.py").write_text(head.replace("@nki.jit", f"{line}\n@nki.jit").format(line="pass") + call)
    (tmp_path / "body.py").write_text(head.format(line=line) + call)
    for file, at in (("top.py", "6:1"), ("body.py", "8:5")):
        done = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True,
                              env={**os.environ, "NKI_MLIR_CACHE": "off", "NKI_MLIR_TRACEBACK": ""})
        where, said = done.stderr.split("\nnki_mlir.capture.replaced_builtins.ReplacedPython: ")
        assert said.startswith(f"{tmp_path / file}:{at}: error: this program replaces {what}, which the toolchain needs in "
                               f"the same process: {text}"), done.stderr
        assert "  fix: leave Python's and NumPy's names" in said and done.returncode == 1
        assert re.findall(r'File "(.*?)"', where) == [str(tmp_path / file)], done.stderr
        assert "nki_mlir/" not in said and "nki_mlir" not in where, done.stderr


def test_a_call_from_python__leaves_what_the_program_replaced(tmp_path):
    (tmp_path / "k.py").write_text("import nki_mlir.compat; nki_mlir.compat.install()\n" + HEAD.format(line="pass") + """
own = builtins.len
builtins.len = other = lambda value: 3
del builtins.copyright
builtins.mine = 5
try:
    f(np.ones((4, 4), np.float32))
except Exception as error:
    assert type(error).__name__ == "ReplacedPython" and error.__cause__ is None
    assert builtins.len is other and "copyright" not in vars(builtins) and builtins.mine == 5
    builtins.len = own
assert f(np.ones((4, 4), np.float32)).sum() == 16
builtins.print = None
assert f(np.ones((4, 5), np.float32)).sum() == 20
""")
    done = subprocess.run([sys.executable, "k.py"], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "NKI_MLIR_CACHE": "off", "NKI_MLIR_TRACEBACK": ""})
    assert done.returncode == 0, done.stderr


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
    for error in (KeyboardInterrupt(), SystemExit(3), ReplacedPython(program="p", what="x", text="y")):
        with pytest.raises(type(error)) as caught:
            with_python_restored(lambda error=error: failing(error))
        assert caught.value is error and builtins.ascii is not None
    with pytest.raises(ValueError, match="invalid literal"):
        with_python_restored(lambda: int("no"))
    assert with_python_restored(lambda: 3) == 3
