# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The bindings as they are imported, also those of another version."""

import subprocess
import sys

import pytest

from nki_mlir import bindings

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


def test_bindings_of_another_build_are_one_line(monkeypatch):
    monkeypatch.setitem(bindings.REQUIRED, "ir", ("WalkOrder", "NoSuchName"))
    with pytest.raises(ImportError, match=r"have no ir.NoSuchName. fix: pip install 'torch-mlir==20261001'"):
        bindings.check_bindings()
    with pytest.raises(ImportError, match=r"have no .*no_such_module. fix: pip install"):
        bindings.load("no_such_module")
