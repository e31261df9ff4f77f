# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The only place that looks at Python frames: where the user's code is, and the variables it sees."""

import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import numpy as np

from nki_mlir.diagnostics import Location, errors
from nki_mlir.frontend.positions import positions_of
from nki_mlir.frontend.source import statement_at

PACKAGE = str(Path(__file__).parent.parent) + "/"
NUMPY = str(Path(np.__file__).parent) + "/"
STANDARD_LIBRARY = sysconfig.get_path("stdlib") + "/"
NKI = {"nki_mlir", "neuronxcc", "nki"}          # the packages that the names of NKI come from

_own: dict[str, bool] = {}
_users: dict[str, bool] = {}
_passed: dict[str, bool] = {}


def is_own(file: str) -> bool:
    """Whether a file is part of the toolchain (kernels that ship with it count as user code)."""
    if file not in _own:
        _own[file] = file.startswith(PACKAGE)
    return _own[file]


def is_users(file: str, scope: dict[str, object]) -> bool:
    """Whether code of a file is a user's, given its globals: not the toolchain's, not Python's, and not that of an
    installed package, unless the module uses NKI: kernels come in packages, too."""
    if file not in _users:
        if "site-packages" in file or "dist-packages" in file:
            names = [getattr(v, "__module__" if callable(v) else "__name__", None) for v in list(scope.values())]
            _users[file] = not is_own(file) and any(str(name).split(".")[0] in NKI for name in names)
        else:
            _users[file] = not is_own(file) and not file.startswith((STANDARD_LIBRARY, "<frozen"))
    return _users[file]


def is_passed(file: str) -> bool:
    """Whether frames of a file are between the kernel and the toolchain (``contextlib``, NumPy), or its own."""
    if file not in _passed:
        installed = "site-packages" in file or "dist-packages" in file
        _passed[file] = is_own(file) or file.startswith(NUMPY) or (
            file.startswith((STANDARD_LIBRARY, "<frozen")) and not installed)
    return _passed[file]


def user_frame(skip: int = 1) -> FrameType | None:
    """The innermost frame of user code; ``skip`` frames are known to be others and not looked at."""
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None:
        file = frame.f_code.co_filename
        passed = _passed.get(file)
        if not (is_passed(file) if passed is None else passed):
            break
        frame = frame.f_back
    return frame


class Positions:
    """The places of one code object's instructions. Long code is read once, and asked for the same ones again."""

    def __init__(self, code: CodeType) -> None:
        self.code = code                            # keeps its ``id``, by which it is found, from going to another
        self.all = positions_of(code)
        self.found: dict[int, Location] = {}

    def at(self, instruction: int) -> Location:
        """That of the instruction at an offset in the bytecode; that of its statement where columns are not kept."""
        if instruction not in self.found:
            line, _, column, end = self.all[instruction // 2]
            line, file = line or self.code.co_firstlineno, self.code.co_filename
            if column is None:
                column, end = statement_at(file, line)
            self.found[instruction] = Location(file, line, column, end)
        return self.found[instruction]


_positions: dict[int, Positions] = {}


def _position(code: CodeType, instruction: int) -> Location:
    known = _positions.get(id(code))                # equal code of two files is equal as an object, but not the same
    if known is None:
        known = _positions[id(code)] = Positions(code)
    return known.at(instruction)


def user_location(skip: int = 1) -> Location:
    """The expression in the kernel that is being executed. About 0.1 us for each frame above it that is not skipped."""
    frame = user_frame(skip + 1)
    if frame is None:
        return Location("<unknown>", 0, 0)
    code, instruction = frame.f_code, frame.f_lasti
    known = _positions.get(id(code))
    found = None if known is None else known.found.get(instruction)
    return _position(code, instruction) if found is None else found


errors.kernel_line = user_location


def raised_at(traceback: TracebackType | None) -> Location | None:
    """Where the kernel was when an exception came: the innermost frame of user code in the traceback."""
    at = None
    while traceback is not None:
        if not is_passed(traceback.tb_frame.f_code.co_filename):
            at = traceback
        traceback = traceback.tb_next
    return _position(at.tb_frame.f_code, at.tb_lasti) if at is not None else None


def variables(names: tuple[str, ...]) -> dict[str, object]:
    """The values of those names in the kernel now: locals, closure cells, then globals. Unbound names are left out."""
    frame = user_frame()
    if frame is None:
        return {}
    local, outer = frame.f_locals, frame.f_globals
    return {n: local[n] if n in local else outer[n] for n in names if n in local or n in outer}
