# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that an instruction or a graph calls by name: what they compute, on NumPy arrays.

Custom C++ operators are such programs. They are above the dialects, hence their binding is found by name when a program
of a library is asked for that nobody has given yet. It knows the libraries that this process has loaded, and no others:
a name in a module is no reason to load a file.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nki_mlir

Program = Callable[[Sequence[np.ndarray], Sequence[float]], np.ndarray]

PROGRAMS: dict[tuple[str, str], Program] = {}           # (library, function) -> result of arrays and numbers


def program(library: str, function: str) -> Program:
    """The program of a library that is loaded in this process."""
    if (library, function) not in PROGRAMS:
        PROGRAMS[library, function] = _binding("kernel_binding").program(library, function)
    return PROGRAMS[library, function]


def operator_record(said: dict[str, Any]) -> Any:
    """The record of a graph's call of an operator, by what the graph says of it."""
    return _binding("graph_binding").record_from(said)


def _binding(name: str) -> Any:
    return importlib.import_module(f"{nki_mlir.__name__}.{'customop'}.{name}")
