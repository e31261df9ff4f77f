# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of kernels read the same wherever Python shows them.

The documents make them SyntaxErrors, which Python's traceback module prints in its own way.
"""

import traceback

import pytest

from nki_mlir.diagnostics import KernelError, Location


class Wrong(KernelError):
    code = "NKI-WRONG"
    message = "{what} is wrong"
    fix = "right it"


@pytest.mark.parametrize("at", [None, Location("nowhere.py", 3, 4)])
def test_traceback_shows_the_text(at):
    try:
        raise Wrong(what="this").located(at)
    except Wrong as error:
        shown = "".join(traceback.format_exception_only(error))
        assert shown == f"{__name__}.Wrong: {error}\n"
        assert "this is wrong [NKI-WRONG]" in shown and "fix: right it" in shown
