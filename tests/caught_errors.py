# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error of a call from Python, as a user sees it."""

import sys
import traceback
from collections.abc import Callable

import pytest

from nki_mlir.capture.locations import is_toolchain
from nki_mlir.diagnostics import NkiMlirError


def error_of(call: Callable[[], object]) -> NkiMlirError:
    """Return the error of a call. It is at a line of the caller's file, and its traceback has no frame of the
    toolchain."""
    with pytest.raises(NkiMlirError) as caught:
        call()
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    internal = [file for file in files if is_toolchain(file)]
    assert len(internal) <= (sys.version_info < (3, 11)), internal      # a bare ``raise`` adds its function's frame
    assert caught.value.at is not None and caught.value.at.file == sys._getframe(1).f_code.co_filename
    text = str(caught.value)
    assert "\n  fix: " in text and len(text) < 6_000
    return caught.value
