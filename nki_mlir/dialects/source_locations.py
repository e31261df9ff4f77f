# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The place in a kernel's source that an operation comes from."""


from nki_mlir.bindings import Operation, ir
from nki_mlir.diagnostics import Location


def location_of(operation: Operation) -> Location | None:
    """(file, line, column) of an operation's location; None where it has no file."""
    at = operation.location
    location = at if isinstance(at, ir.FileLineColLoc) else file_location(at)
    if location is None:
        return None
    return Location(location.filename, location.start_line, location.start_col - 1)


def file_location(location: ir.Location) -> ir.FileLineColLoc | None:
    """The place in a file within a location: where something stood before it was inlined, renamed or joined."""
    match location:
        case ir.FileLineColLoc():
            return location
        case ir.CallSiteLoc():
            return file_location(location.callee)
        case ir.NameLoc():
            return file_location(location.child_loc)
        case ir.FusedLoc():
            return next((found for part in location.locations if (found := file_location(part)) is not None), None)
    return None
