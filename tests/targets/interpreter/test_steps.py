# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The registry of what the interpreter executes: one function for each operation."""

import pytest

from nki_mlir.diagnostics import InternalError
from nki_mlir.targets.interpreter.module import executes, steps


def test_an_operation_is_registered_once():
    before = steps()["memref.load"]
    with pytest.raises(InternalError) as caught:
        executes("memref.load")(lambda code, op: None)
    assert str(caught.value).splitlines()[0] == (
        "error: internal error: 'memref.load' is compiled by nki_mlir.targets.interpreter.module._element and "
        "tests.targets.interpreter.test_steps.test_an_operation_is_registered_once.<locals>.<lambda> [NKI-INTERNAL]")
    assert steps()["memref.load"] is before
