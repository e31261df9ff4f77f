# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tells expressions typed at a debugger's prompt from a kernel's code, and finds variables' names for messages.

A debugger compiles each input as a module whose file has no name: ``<stdin>``, ``<string>``. A kernel's code is a
function. So an expression that needs a value gets it at a prompt, and is refused in a kernel, which could not be
compiled.
"""

import re
import sys
from collections.abc import Callable
from types import FrameType

from nki_mlir.capture.locations import NUMPY, is_passed, is_toolchain

GENERATED = re.compile(r"t\d+")         # names that the toolchain generates


def at_prompt() -> bool:
    """Return whether the innermost code that is neither the toolchain's nor NumPy's was typed at a
    debugger's prompt."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_toolchain(frame.f_code.co_filename) or frame.f_code.co_filename.startswith(NUMPY)):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith("<")


def variable(holds: Callable[[object], bool]) -> str:
    """Return the name of a variable whose value satisfies ``holds``, from the innermost function outward; "" if there
    is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_passed[frame.f_code.co_filename]:
            matching = next((name for name, value in list(frame.f_locals.items()) if holds(value)), "")
            if matching:
                return matching
        frame = frame.f_back
    return ""
