# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that instructions and graphs call by name: who gives them, and what happens where nobody does."""

import subprocess
import sys
from pathlib import Path

import pytest

from nki_mlir.dialects import programs
from nki_mlir.dialects.programs import NotLoaded, operator_record, program

SAID = {"operator": "giou", "library": "box_ops", "file": "/nowhere/libgiou.so"}
TEXT = """error: operator {operator} is called, but library {library} is not loaded in this process [NKI-CUSTOMOP-NOT-LOADED]
  why: a module only names its libraries; a process loads code only if its program or command line says so
  fix: load it first: custom_op.load_library('{file}'), or --load-library={file} of the commands"""


class Given:
    """Libraries that know everything."""

    def program(self, library, function):
        return lambda arrays, numbers: (library, function)

    def record(self, entry):
        return entry["operator"]


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(programs, "PROGRAMS", {})
    monkeypatch.setattr(programs, "_libraries", [])
    return programs._libraries


def test_nothing_is_registered(registered):
    with pytest.raises(NotLoaded) as caught:
        operator_record(SAID)
    assert str(caught.value) == TEXT.format(**SAID)
    with pytest.raises(NotLoaded) as caught:
        program("/nowhere/libgiou.so", "giou")
    assert str(caught.value) == TEXT.format(**SAID | {"library": "/nowhere/libgiou.so"})


def test_what_is_registered_is_asked_for_what_nobody_has_given(registered):
    programs.register(Given())
    programs.PROGRAMS["file", "given"] = function = lambda arrays, numbers: 0
    assert program("file", "given") is function
    assert program("file", "other")([], []) == ("file", "other")
    assert operator_record(SAID) == "giou"


def test_a_name_loads_nothing():
    """Neither a library's file nor the package that could open it."""
    code = f"""
import sys
from nki_mlir.dialects.programs import NotLoaded, operator_record, program
for ask in (lambda: operator_record({SAID}), lambda: program("/nowhere/libgiou.so", "giou")):
    try:
        ask()
    except NotLoaded as error:
        print(error.code)
print("nki_mlir.customop" in sys.modules)
import nki_mlir.customop
try:
    operator_record({SAID | {"abi": 7}})
except Exception as error:
    print(error.code)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent.parent.parent, capture_output=True,
                          text=True, check=True)
    assert done.stdout.split() == ["NKI-CUSTOMOP-NOT-LOADED"] * 2 + ["False", "NKI-CUSTOMOP-GRAPH-ABI"]
