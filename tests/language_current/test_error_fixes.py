# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each error of the current generation says how to mend the kernel."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "nki_mlir/language/current"
RAISES = {"require": 3, "device": 2, "invalid": 2, "out_of_range": 1, "NkiValidationError": 2, "NkiTypeError": 2}


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_error__has_a_fix(file):
    without = []
    for call in ast.walk(ast.parse(file.read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in RAISES and call.args:
            keywords = [keyword.arg for keyword in call.keywords]
            forwards = any(isinstance(argument, ast.Starred) for argument in call.args) or file.stem == "errors"
            if "fix" not in keywords and len(call.args) <= RAISES[call.func.id] and not forwards:
                without.append(f"{file.name}:{call.lineno}")
    assert without == []
