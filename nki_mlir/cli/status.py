# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a command ends: errors are ``FILE:LINE:COL: error: ...`` on standard error, with exit status 1.

A mistake in the user's own Python is one line, too, at that line. An exception of the toolchain itself keeps its
traceback: it is a defect.
"""

import sys
import traceback
from collections.abc import Callable

from nki_mlir.diagnostics import Location, NkiMlirError


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
    if error.at is not None and error.at.file == "<unknown>":
        error.at = None                     # the call is the command's own, which is no line of the user's
    print(error, file=sys.stderr)
    return 1


def raised_at(error: Exception) -> Location | None:
    """The user's line that raised an exception, itself or in a library; None where our own code raised it."""
    from nki_mlir.frontend import locations  # start-up: needed where it is asked for
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    known = [file for file in files if locations.is_own(file) or not locations.is_passed(file)]
    return None if known and locations.is_own(known[-1]) else locations.raised_at(error.__traceback__)
