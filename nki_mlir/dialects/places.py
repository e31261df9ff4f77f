# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The place in a kernel's source that an operation comes from."""

from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Location


def place_of(operation: Any) -> Location | None:
    """(file, line, column) of an operation's location; None where it has no file."""
    location = operation.location
    if not isinstance(location, ir.FileLineColLoc):
        return None
    return Location(location.filename, location.start_line, location.start_col - 1)
