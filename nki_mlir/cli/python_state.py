# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel's file may replace in Python although the command needs it in the same process: built-in functions,
names of ``os``, ``sys`` and NumPy, loaded modules, the recursion limit.

A command that fails restores them before it reports the error, and names what was replaced.
"""

import builtins
import sys
from builtins import BaseException as AnyException
from builtins import Exception as OrdinaryException
from builtins import hasattr as has_attribute
from builtins import isinstance as is_instance
from builtins import setattr as set_attribute
from builtins import vars as names_of
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from nki_mlir.diagnostics import Location, NkiMlirError, text_of

MODULES, RECURSION = "sys.modules", "the recursion limit"
WATCHED = ("os", "os.path", "posixpath", "numpy", "re", "inspect", "traceback", "linecache")
# A program may replace these by others that have the attribute.
USED_OF_SYS = {"stdin": "read", "stdout": "write", "stderr": "write", "path": "insert", "meta_path": "insert",
               "path_hooks": "insert", "modules": "items", "exc_info": "__call__", "getrecursionlimit": "__call__",
               "setrecursionlimit": "__call__"}
CHANGING = {"_", "cache"}          # the last value of a console, and a table that Python replaces itself


class PythonState(NamedTuple):
    """The parts of Python before the kernel's file runs."""

    file: Path
    namespaces: dict[str, tuple[ModuleType, dict[str, Any]]]        # the names of modules
    modules: dict[str, ModuleType]
    recursion_limit: int

    @classmethod
    def before(cls, file: Path) -> "PythonState":
        spaces = {"": builtins, **{name: sys.modules[name] for name in WATCHED if name in sys.modules}}
        namespaces = {name: (module, dict(vars(module))) for name, module in spaces.items()}
        namespaces["sys"] = sys, {name: getattr(sys, name) for name in USED_OF_SYS}
        return cls(file, namespaces, dict(sys.modules), sys.getrecursionlimit())

    def restored(self) -> list[str]:
        """Restore what has been replaced, and return the names. Functions of Python may be missing meanwhile."""
        replaced = []
        for space, (module, names) in self.namespaces.items():
            current = names_of(module)
            for name, value in names.items():
                if current.get(name) is not value and name not in CHANGING and not (
                        space == "sys" and has_attribute(current.get(name), USED_OF_SYS[name])):
                    set_attribute(module, name, value)
                    replaced.append(f"{space}.{name}" if space else name)
        if missing := {name: module for name, module in self.modules.items() if name not in sys.modules}:
            sys.modules.update(missing)
            replaced.append(MODULES)
        if sys.getrecursionlimit() < self.recursion_limit:
            sys.setrecursionlimit(self.recursion_limit)
            replaced.append(RECURSION)
        return replaced

    def line_of(self, replaced: Sequence[str]) -> Location | None:
        """Return the line of the kernel's file that replaces one of the names, if a line shows that."""
        from nki_mlir.capture.replaced_builtins import assignment_in  # start-up: imported on first use
        forms = [r"^[^#]*\bsetrecursionlimit\("] * (RECURSION in replaced)
        forms += [r"^[^#]*\bmodules\.clear\("] * (MODULES in replaced)
        return assignment_in(str(self.file), [name for name in replaced if name != RECURSION], forms)


_states: list[PythonState] = []         # the state before the first file of a kernel


def keep_python_state(file: Path) -> None:
    """Remember the state of Python before a kernel's file runs."""
    if not _states:
        _states.append(PythonState.before(file))


def with_python_restored(command: Callable[[], int]) -> int:
    """Run a command. If it fails, restore what its kernel replaced; an exception that may stem from this becomes an
    error that names it, at the kernel's line."""
    try:
        return command()
    except AnyException as error:
        for state in _states:
            replaced = state.restored()
            if replaced and is_instance(error, OrdinaryException) and not is_instance(error, NkiMlirError):
                # start-up: imported on first use
                from nki_mlir.capture import locations
                from nki_mlir.capture.replaced_builtins import ReplacedPython
                names = ", ".join(replaced[:4] + ["others"] * (len(replaced) > 4))
                raised = ReplacedPython(program="the kernel's file", what=names,
                                        text=f"{type(error).__name__}: {text_of(error)}")
                at = state.line_of(replaced) or locations.raised_at(error.__traceback__)
                raise raised.located(at).with_traceback(error.__traceback__) from error
        raise
