# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The bindings as they are imported, also those of another version."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nki_mlir import bindings
from nki_mlir.bindings import ir

PROGRAM = '''
import importlib.util, sys
package = "mlir" if importlib.util.find_spec("mlir") and importlib.util.find_spec("mlir.dialects.ext") else "torch_mlir"
core = importlib.import_module(f"{package}._mlir_libs._mlir")

class Older:
    """All that this version has but the function which marks dialects as loaded."""

    def __init__(self, real):
        self.real = real

    def __getattr__(self, name):
        if name == "_check_dialect_module_loaded":
            raise AttributeError(name)
        return getattr(self.real, name)

CHANGE
from nki_mlir.bindings import ir
with ir.Context() as context, ir.Location.unknown():
    module = ir.Module.parse("""func.func @f(%x: memref<4xf32>, %c: f32) {
      linalg.fill ins(%c : f32) outs(%x : memref<4xf32>)
      return
    }""")
    fill = module.body.operations[0].regions[0].blocks[0].operations[0]
    print(type(fill).__name__, f"{package}.dialects.linalg" in sys.modules)
'''


@pytest.mark.parametrize("change, expected", [
    ("", "OpView False"),
    ("core.globals = Older(core.globals)", "FillOp True"),
], ids=["this version", "without the function"])
def test_classes_of_a_dialect__are_left_out_where_the_bindings_can(change, expected):
    done = subprocess.run([sys.executable, "-c", PROGRAM.replace("CHANGE", change)], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == (expected, 0), done.stderr


MODULE = """module @named attributes {test.key = 3 : i32} {
  func.func @f() {
    return
  }
}"""


class Problem(Exception):
    pass


@pytest.mark.parametrize("raised", [Problem("a problem"), KeyboardInterrupt(), SystemExit(3)], ids=lambda e: type(e).__name__)
def test_walk__raises_what_its_callback_raises(raised):
    def visit(op):
        names.append(op.name)
        if op.name == "func.func":
            raise raised
        return ir.WalkResult.ADVANCE
    names: list[str] = []
    with ir.Context(), ir.Location.unknown(), pytest.raises(type(raised)) as caught:
        bindings.walk(ir.Module.parse(MODULE), visit)
    assert caught.value is raised and names == ["builtin.module", "func.func"]


def test_walk__signal_before_the_first_line_of_the_callback(monkeypatch):
    """Python runs the handler of a signal at the next function that starts, which is often the callback."""
    class Root:
        operation: object

        def walk(self, callback, order):
            raise RuntimeError("Exception raised in callback: Traceback (most recent call last):\n"
                               '  File "bindings.py", line 1, in guarded\nKeyboardInterrupt: ')
    root = Root()
    root.operation = root
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        bindings.walk(root, lambda op: None)


def test_walk__ctrl_c_at_any_time():
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(MODULE.replace("return", "call @f() : () -> ()\n" * 2000 + "return"))
        for delay in range(20):
            handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
            try:
                with pytest.raises(KeyboardInterrupt, match=r"^$"):
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 + delay * 3e-4)
                    while True:
                        bindings.operations_of(module, str)
            finally:
                signal.signal(signal.SIGALRM, handler)


def test_cloned__is_a_module_with_the_same_attributes_and_locations():
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(MODULE)
        copy = bindings.cloned(module)
        assert isinstance(copy, ir.Module) and str(copy).strip() == MODULE
        assert copy.operation.get_asm(enable_debug_info=True) == module.operation.get_asm(enable_debug_info=True)
        copy.body.operations[0].operation.erase()
        assert str(module).strip() == MODULE


def test_bindings_of_another_build_are_one_line(monkeypatch):
    monkeypatch.setitem(bindings.REQUIRED, "ir", ("WalkOrder", "NoSuchName"))
    with pytest.raises(ImportError, match=r"have no ir.NoSuchName. fix: pip install 'torch-mlir==20261001'"):
        bindings.check_bindings()
    with pytest.raises(ImportError, match=r"have no .*no_such_module. fix: pip install"):
        bindings.load("no_such_module")


def test_names_of_operations__are_read_from_operations():
    """A class of a dialect that is loaded may have an attribute ``name``, as that of memref.get_global has."""
    files = [*Path(bindings.__file__).parent.rglob("*.py")]
    assert not [file for file in files if ".owner.name" in file.read_text()]


@pytest.fixture
def interrupting(tmp_path, monkeypatch):
    """Bindings with a module whose import gets Ctrl-C."""
    (tmp_path / "interrupting").mkdir()
    (tmp_path / "interrupting" / "part.py").write_text(
        "import os, signal\nfor number in range(3):\n    os.kill(os.getpid(), signal.SIGINT)\nis_complete = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(bindings, "PACKAGE", "interrupting")
    before = signal.getsignal(signal.SIGINT)
    yield "interrupting.part"
    signal.signal(signal.SIGINT, before)
    sys.modules.pop("interrupting.part", None)
    sys.modules.pop("interrupting", None)


def test_ctrl_c__waits_until_a_module_is_loaded(interrupting):
    """The native code of a module that Ctrl-C stops halfway ends the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        bindings.load("part")
    assert sys.modules[interrupting].is_complete
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert bindings.load("part") is sys.modules[interrupting]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None], ids=["ignored", "of the program"])
def test_ctrl_c__that_a_program_handles_itself_stops_no_module(interrupting, handler):
    signal.signal(signal.SIGINT, handler)
    assert bindings.load("part").is_complete
    assert signal.getsignal(signal.SIGINT) is handler


def test_modules__load_in_other_threads(interrupting):
    """A thread cannot set a handler."""
    calls, loaded = [], []
    signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    thread = threading.Thread(target=lambda: loaded.append(bindings.load("part").is_complete))
    thread.start()
    thread.join()
    assert loaded == [True] and calls
