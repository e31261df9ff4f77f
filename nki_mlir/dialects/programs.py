# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that an instruction or a graph calls by name, as functions on NumPy arrays.

Custom C++ operators are such programs. Their loader is above the dialects: it registers itself here when it is
imported, and knows only the libraries that this process has loaded. A name in a module never loads a file.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.files import shown

Program = Callable[[Sequence[np.ndarray], Sequence[float]], np.ndarray]

PROGRAMS: dict[tuple[str, str], Program] = {}           # (library, function) -> result of arrays and numbers


class NotLoaded(NkiMlirError, LookupError):
    code = "NKI-CUSTOMOP-NOT-LOADED"
    message = "operator {operator} is called, but library {library} is not loaded in this process"
    why = "a module only names its libraries; a process loads code only if its program or command line says so"
    fix = "load it first: custom_op.load_library('{file}'), or --load-library={file} of the commands"


class ResultShape(NkiMlirError):
    code = "NKI-CUSTOMOP-RESULT"
    message = "{function} of library {library} returns a result of shape {shape}, but dst has shape {expected}"
    why = "the shape function of a program determines the shape of its result"
    fix = "give dst the same number of elements as the result"


class Libraries(Protocol):
    """Finds operators by name. Both methods raise ``NotLoaded``."""

    def program(self, library: str, function: str) -> Program:
        """Find a program by its library and function."""

    def record(self, state: dict[str, Any]) -> Any:
        """Read the record of a call in a graph from its configuration."""


_libraries: list[Libraries] = []


def register(libraries: Libraries) -> None:
    _libraries.append(libraries)


def program(library: str, function: str) -> Program:
    """Return the program of a library that is loaded in this process."""
    if (library, function) not in PROGRAMS:
        PROGRAMS[library, function] = _registered(function, library, library).program(library, function)
    return PROGRAMS[library, function]


def operator_record(configuration: dict[str, object]) -> Any:
    """Return the record of a graph's call of an operator, from the call's configuration."""
    operator, library, file = (str(configuration[name]) for name in ("operator", "library", "file"))
    return _registered(operator, library, file).record(configuration)


def _registered(operator: str, library: str, file: str) -> Libraries:
    if not _libraries:
        raise NotLoaded(operator=operator, library=library, file=shown(file))
    return _libraries[-1]
