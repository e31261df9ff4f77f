# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors for races between iterations of parallel loops, and between programs of a grid, and how they are reported."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from nki_mlir.capture.races.touches import Touch
from nki_mlir.diagnostics import KernelError, Location, NkiMlirError, warn_once
from nki_mlir.environment import is_strict

VARIABLE = "NKI_MLIR_RACES"
LEVELS = "off", "warn", "error"


class IterationsMeet(KernelError):
    code = "NKI-RACE-ITERATIONS"
    message = ("{tensor}{element} is {done} by iteration {first} of the loop over {loop} here, and {also} by iteration "
               "{second} at {location}")
    why = "iterations of nl.affine_range run in any order, or at the same time"
    fix = "let each iteration write different elements, accumulate with +=, or make the loop an nl.sequential_range"


class ProgramsMeet(KernelError):
    code = "NKI-RACE-PROGRAMS"
    message = "{tensor}{element} is {done} by {first} here, and {also} by {second} at {location}"
    why = "programs of a grid run in any order, or at the same time"
    fix = "let each program write different elements, or order the programs with a barrier (nki.isa.core_barrier)"


class ProgramsRepeat(KernelError):
    code = "NKI-SAME-WRITES"
    message = "{count} programs write the same values to {tensor} here"
    why = "the values that they write do not depend on {what}"
    fix = "divide the work by {what}, or launch the kernel on one program"


class UnknownRaceLevel(NkiMlirError, ValueError):
    code = "NKI-RACES"
    message = "NKI_MLIR_RACES cannot be '{found}'"
    fix = "set it to off, warn or error; by default races are warnings"


class RaceWarning(UserWarning):
    """Warns that iterations of a parallel loop, or programs of a grid, touch the same element."""


def checked() -> bool:
    """Return whether races are checked: ``NKI_MLIR_RACES`` is not off."""
    return os.environ.get(VARIABLE) != "off"


def report(races: Sequence[KernelError]) -> None:
    """Warn of races, one per source line, or raise the first, as the environment says. Repeated work is never an
    error."""
    if not races:
        return
    level = os.environ.get(VARIABLE) or ("error" if is_strict() else "warn")
    if level not in LEVELS:
        raise UnknownRaceLevel(found=level)
    for error in races if level != "off" else ():
        if level == "error" and not isinstance(error, ProgramsRepeat):
            raise type(error)(**error.values).located(error.at)
        warn_once(f"{error.headline} [{error.code}]; {error.advice[1]}", RaceWarning, error.at)


@dataclass
class Verdict:
    """The result of a check: the ``races``, and ``undecided`` pairs of touches, which only a run can decide."""

    races: list[KernelError] = field(default_factory=list)
    undecided: list[tuple[Touch, Touch]] = field(default_factory=list)

    def add_race(self, error: KernelError, at: Location) -> None:
        """Add a race at a source location, unless an equal one is there."""
        error.located(at)
        if all((e.at, type(e), e.values.get("location")) != (error.at, type(error), error.values.get("location"))
               for e in self.races):
            self.races.append(error)
