# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Name the built-in functions that a program has replaced, if an exception of the toolchain may stem from that.

The toolchain and NumPy call ``len`` or ``isinstance`` in the same process. The program keeps its replacements: Python's
own ones are back only while the error is refusal, so nothing here may call a built-in function before.
"""

import builtins
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from nki_mlir.capture import locations
from nki_mlir.diagnostics import Location, NkiMlirError, text_of

AnyException = BaseException        # for ``except`` where the program may have replaced the class's name
BUILTINS: dict[str, Any] = builtins.__dict__
# Programs replace these for good reasons: the toolchain works with other functions, too.
REPLACEABLE = ("_", "__build_class__", "__debug__", "__import__", "breakpoint", "copyright", "credits", "exit", "help",
               "input", "license", "open", "print", "quit")
OWN = dict(BUILTINS)
NEEDED = {name: value for name, value in OWN.items() if name not in REPLACEABLE}


class ReplacedPython(NkiMlirError):
    code = "NKI-PYTHON-REPLACED"
    message = "{program} replaces {what}, which the toolchain needs in the same process: {text}"
    fix = "leave Python's and NumPy's names, modules and limits unchanged, and give the file's variables other names"

    shown = ""                          # the text, for a process in which it cannot be composed

    def __str__(self) -> str:
        return self.shown or NkiMlirError.__str__(self)


def replaced_builtins() -> list[str]:
    """Return the names of the built-in functions and classes that the program has replaced."""
    return [name for name, value in NEEDED.items() if BUILTINS.get(name) is not value]


class RestoredBuiltins:
    """Python's own built-in functions in a ``with`` block, and the program's before and after it."""

    def __init__(self) -> None:
        self.replacements: dict[str, Any] = {}

    def __enter__(self) -> None:
        self.replacements = BUILTINS.copy()
        BUILTINS.update(OWN)

    def __exit__(self, *error: object) -> None:
        for name in OWN:                    # other threads may run meanwhile
            if name not in self.replacements:
                BUILTINS.pop(name)
        BUILTINS.update(self.replacements)


def explained(error: BaseException, names: Sequence[str], handle: Callable[[BaseException], bool]) -> BaseException:
    """Return the error that names what the program replaces, if ``handle`` says that the exception is a defect of the
    toolchain, or else the exception."""
    frame: FrameType | None = sys._getframe()
    with RestoredBuiltins():
        if not handle(error):
            return error
        named = ", ".join([*names[:4], *["others"] * (len(names) > 4)])
        refusal = ReplacedPython(program="this program", what=named, text=f"{type(error).__name__}: {text_of(error)}")
        refusal.located(assignment_of(names, error.__traceback__, frame) or locations.raised_at(error.__traceback__))
        refusal.shown = str(refusal)
        return refusal


def assignment_of(names: Sequence[str], traceback: TracebackType | None, frame: FrameType | None) -> Location | None:
    """Return the line that replaces one of the names in the files of the user's functions that were running: those of
    the traceback, and those around the frame."""
    files: dict[str, None] = {}
    while traceback is not None:
        files[traceback.tb_frame.f_code.co_filename] = None
        traceback = traceback.tb_next
    while frame is not None:
        files[frame.f_code.co_filename] = None
        frame = frame.f_back
    return next((at for file in files if not locations.is_passed[file] and Path(file).is_file()
                 if (at := assignment_in(file, names))), None)


def assignment_in(file: str, names: Sequence[str], more_forms: Sequence[str] = ()) -> Location | None:
    """Return the line of a file that assigns or deletes one of the names, if a line shows that."""
    words = "|".join(re.escape(name.rpartition(".")[2]) for name in names) or "$^"          # which matches nothing
    forms = [rf"^[^#]*\bdel\b.*\b(?:{words})\b", *more_forms,
             rf"^[^=(#]*\b(?:{words})\b[^=(]*=(?!=)", rf"^[^#]*\b(?:setattr|delattr)\(.*\b(?:{words})\b"]
    forms += [r"^[^#]*\b__dict__\.clear\("] * ("__name__" in names)
    lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    return next((Location(file, number, len(line) - len(line.lstrip()))
                 for number, line in enumerate(lines, 1) if any(re.match(form, line) for form in forms)), None)
