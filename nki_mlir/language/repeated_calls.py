# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls like one before: arrays and simple constants by position, on the JIT.

They need no binding, only a check that what the kernel's Python sees is what it was.
"""

import sys
from collections.abc import Sequence
from math import isnan

import numpy as np

from nki_mlir.diagnostics.device_rules import LEVEL
from nki_mlir.environment import EXECUTOR, TARGET
from nki_mlir.language.closure_state import ClosureState
from nki_mlir.language.results import structure_of_updates
from nki_mlir.language.specialization import Specialization

EXACT = (int, str, bool, type(None))


def key_of(settings: tuple[object, ...], arguments: tuple[object, ...]) -> tuple[object, ...] | None:
    """What the program of a call depends on, but for what the kernel's Python sees. None where only binding tells.

    ``settings`` are those of the kernel.
    """
    key = list(settings)
    for value in arguments:
        kind = type(value)
        if kind is np.ndarray:
            array: np.ndarray = value           # type: ignore[assignment]
            if not array.flags.c_contiguous or array.dtype.metadata is not None:
                return None
            key += array.shape, array.dtype
        elif kind in EXACT or (kind is float and value and not isnan(value)):       # type: ignore[arg-type]
            key += kind, value
        else:
            return None
    key += EXECUTOR.raw(), TARGET.raw(), LEVEL.raw(), "_XLAC" in sys.modules
    return tuple(key)


class RepeatedCall:
    """The program of a call, and its results: all that is left is to make their memory and run."""

    def __init__(self, seen: ClosureState, spec: Specialization) -> None:
        self.holds, self.program = seen.holds, spec.program("jit")
        self.shared = [(make, s.shape, s.dtype.numpy) for s, make in zip(spec.shared, spec.makers)]
        first = len(spec.inputs)
        self.results = [r.input if r.shared is None else first + r.shared for r in spec.results]
        self.updated = [r.input for r in spec.results if r.input is not None]
        self.is_one = structure_of(spec) == "one"

    def fits(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether what the call updates may be written, and what the kernel's Python sees is what it was."""
        for k in self.updated:
            if not arrays[k].flags.writeable:
                return False
        return self.holds()

    def __call__(self, arrays: Sequence[np.ndarray]) -> object:
        shared = [make(shape, dtype) for make, shape, dtype in self.shared]
        self.program(arrays, shared)
        memory = [*arrays, *shared]
        if self.is_one:
            return memory[self.results[0]]                  # type: ignore[index]
        return tuple([memory[k] for k in self.results])     # type: ignore[index]


def structure_of(spec: Specialization) -> str:
    return structure_of_updates(len(spec.results)) if spec.structure is None else spec.structure


def can_repeat(spec: Specialization) -> bool:
    """Whether a call has nothing to say or to do but its results: no warnings, no elements left out."""
    return structure_of(spec) in ("one", "tuple") and not spec.left_out and not spec.captured.verdict.races
