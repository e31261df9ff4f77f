# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What somebody sees who stands in a running kernel: whether code is typed at a prompt, and what variables hold.

A debugger compiles what is typed as its own module, whose file has no name: ``<stdin>``, ``<string>``. A kernel's
own code is a function. So the same expression has a value at a prompt, and is refused in a kernel, which could not be
compiled.
"""

import re
import sys
from collections.abc import Callable
from types import FrameType

from nki_mlir.capture.locations import NUMPY, is_own, is_passed

GENERATED = re.compile(r"t\d+")         # names that the toolchain gives


def at_prompt() -> bool:
    """Whether the innermost code that is neither ours nor NumPy's was typed at a debugger's prompt."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_own(frame.f_code.co_filename) or frame.f_code.co_filename.startswith(NUMPY)):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith("<")


def variable(holds: Callable[[object], bool]) -> str:
    """The variable of the innermost function whose value is one of those; an empty text where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_passed[frame.f_code.co_filename]:
            found = next((name for name, value in list(frame.f_locals.items()) if holds(value)), "")
            if found:
                return found
        frame = frame.f_back
    return ""
