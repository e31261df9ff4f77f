# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that an instruction calls by name: what they compute, on NumPy arrays.

Custom C++ operators are such programs. They are above the dialects, hence found by name when a program of a library is
asked for that nobody has given yet.
"""

import importlib
from collections.abc import Callable, Sequence

import numpy as np

import nki_mlir

Program = Callable[[Sequence[np.ndarray], Sequence[float]], np.ndarray]

PROGRAMS: dict[tuple[str, str], Program] = {}           # (library, function) -> result of arrays and numbers


def program(library: str, function: str) -> Program:
    """The program; a library that is not loaded is the path of a file, which is."""
    if (library, function) not in PROGRAMS:
        binding = importlib.import_module(f"{nki_mlir.__name__}.{'customop'}.kernel_binding")
        PROGRAMS[library, function] = binding.program(library, function)
    return PROGRAMS[library, function]
