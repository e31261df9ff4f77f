# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a command ends: errors are ``FILE:LINE:COL: error: ...`` on standard error, with exit status 1.

A mistake in the user's own Python is one line, too, at that line. An exception of the toolchain itself keeps its
traceback: it is a defect.
"""

import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

from nki_mlir.diagnostics import Location, NkiMlirError

PACKAGE = str(Path(__file__).parent.parent)


class KernelRaised(NkiMlirError):
    code = "NKI-KERNEL-RAISED"
    message = "{kind}: {text}"


def exit_status(command: Callable[[], int]) -> int:
    """Run a command, print the error that ends it, and give the exit status."""
    try:
        return command()
    except NkiMlirError as error:
        return fail(error)
    except BrokenPipeError:
        return 1
    except Exception as error:
        at = raised_at(error)
        if at is None:
            raise
        return fail(KernelRaised(kind=type(error).__name__, text=error).located(at))


def fail(error: NkiMlirError) -> int:
    """Print an error as commands do; the exit status."""
    print(error, file=sys.stderr)
    return 1


def raised_at(error: Exception) -> Location | None:
    """The user's line that raised an exception, itself or in a library; None where our own code raised it."""
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(PACKAGE):
            return None
        if not frame.filename.startswith((*libraries, "<")):
            column = getattr(frame, "colno", None) or 0             # Python 3.10 keeps lines alone
            return Location(frame.filename, frame.lineno or 1, column)
    return None
