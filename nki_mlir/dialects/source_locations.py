# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the source locations of operations: the position in a kernel's source that an operation comes from.

In a linked program a location also names the graph's operation or the kernel that the operation belongs to: its
origin.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.diagnostics import Location, NkiMlirError

# What is between a call and the framework, in any installation.
LAYERS = "/nki_mlir/frameworks/", "/nki_mlir/language/", "/nki_mlir/capture/tracebacks.py"
ORIGIN = "nki.origin: "                 # prefix of an origin, which distinguishes it from frameworks' names

KERNEL = "kernel "                      # prefix of the origin of a kernel's operations


def location_of(operation: Operation) -> Location | None:
    """Return (file, line, column) of an operation's location, and its origin; None if it has no file."""
    return source_location(operation.location)


def source_location(at: ir.Location) -> Location | None:
    if isinstance(at, ir.FileLineColLoc):
        return in_file(at.filename, at.start_line, max(0, at.start_col - 1), "")
    location = file_location(at)
    if location is None:
        return None
    return in_file(location.filename, location.start_line, max(0, location.start_col - 1), origin_of(at))


@lru_cache(1 << 14)
def in_file(file: str, line: int, column: int, origin: str) -> Location:
    """Return a source location. Unrolled code has few of them."""
    return Location(file, line, column, origin=origin)


@contextmanager
def errors_at(operation: Operation) -> Iterator[None]:
    """Give errors that the ``with`` block raises the operation's location, unless they have one."""
    try:
        yield
    except NkiMlirError as error:
        raise error.located(location_of(operation)) from None


def is_mlir_text(module: Module) -> bool:
    """Return whether locations are lines of a text of MLIR, each of which has one operation, not lines of Python."""
    files = {at.file for op in operations_of(module, lambda name: True) if (at := location_of(op)) is not None}
    return not any(file.endswith(".py") or file.startswith("<") for file in files)


def file_location(location: ir.Location) -> ir.FileLineColLoc | None:
    """Return the file position within a location, from before the operation was inlined, renamed or fused; None
    without one."""
    match location:
        case ir.FileLineColLoc():
            return location
        case ir.CallSiteLoc():
            inner = file_location(location.callee)
            return file_location(location.caller) or inner if inner is None or is_toolchain(inner) else inner
        case ir.NameLoc():
            return file_location(location.child_loc)
        case ir.FusedLoc():
            return next((inner for part in location.locations if (inner := file_location(part)) is not None), None)
    return None


def is_toolchain(location: ir.FileLineColLoc) -> bool:
    """Return whether a location is in the toolchain's code between a user's call and the framework."""
    return any(part in location.filename for part in LAYERS)


def origin_of(location: ir.Location) -> str:
    """Return the graph's operation or the kernel that a location names, the outermost; "" if it names none."""
    match location:
        case ir.NameLoc():
            name: str = location.name_str
            return name.removeprefix(ORIGIN) if name.startswith(ORIGIN) else origin_of(location.child_loc)
        case ir.CallSiteLoc():
            return origin_of(location.callee) or origin_of(location.caller)
        case ir.FusedLoc():
            return next(filter(None, map(origin_of, location.locations)), "")
    return ""


def with_origin(origin: str, location: ir.Location | None = None) -> ir.Location:
    """Return a location that names an origin."""
    return ir.Location.name(ORIGIN + origin, location)


def name_operations(module: Module, file: str) -> None:
    """Make each operation of a graph the origin of its lowering. ``file`` is the file of text without locations."""
    with module.context:
        for op in operations_of(module, lambda name: True):
            at = file_location(op.location)
            if at is not None and at.filename == "-":
                op.location = ir.Location.file(file, at.start_line, at.start_col)
            op.location = with_origin(op.name.removeprefix("stablehlo."), op.location)
