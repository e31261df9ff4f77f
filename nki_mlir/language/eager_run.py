# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a kernel eagerly: its Python on concrete numbers, one program of the grid after the other.

Calls on arrays, in both generations, programs of frameworks and runs for the race check alone all come here. Concrete
numbers cannot show whether one iteration stands for all when the kernel is compiled. If the run depends on that,
capture decides: if it refuses the kernel, the run raises the same error.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from nki_mlir.capture.builder import current
from nki_mlir.capture.eager import CHECKING, EagerBuilder, Launch, PrivateResult, verdict_on
from nki_mlir.capture.errors import OutOfScope, SharedHbmInside, UnexpectedOutputDependencies
from nki_mlir.capture.locations import raised_at
from nki_mlir.capture.races.verdicts import IterationsMeet, ProgramsMeet, RaceWarning, UnknownRaceLevel, report
from nki_mlir.capture.tensor import Buffer
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.target_rules import TargetRule
from nki_mlir.language.argument_memory import ArgumentMemory
from nki_mlir.language.arguments import Bound
from nki_mlir.language.results import Traced, as_result, assemble, check_agreement, check_written, report_missing
from nki_mlir.targets.mesh import run_programs
from nki_mlir.targets.small_products import on_one_thread

if TYPE_CHECKING:
    from nki_mlir.language.specialization import Specialization

Program = Callable[..., EagerBuilder]           # of a grid, a point in it, and the ``Launch`` that programs share
Judge = Callable[[Launch, Sequence[EagerBuilder]], None]        # checks a run for races and doubts

# Errors of capture that an eager run raises, too.
REFUSALS = (OutOfScope, SharedHbmInside, UnexpectedOutputDependencies, TargetRule, IterationsMeet, ProgramsMeet,
            UnknownRaceLevel)


class EagerKernel(Protocol):
    """The attributes and methods of a kernel that an eager run uses."""

    must_write: ClassVar[bool]

    @property
    def grid(self) -> tuple[int, ...]: ...
    @property
    def mode(self) -> str: ...
    @property
    def python(self) -> Callable[..., object]: ...
    @property
    def location(self) -> Any: ...
    def eager_program(self) -> Program: ...
    def trace(self, builder: EagerBuilder, function: Callable[..., object], bound: Bound, parameters: list[Buffer]
              ) -> Traced: ...
    def reported(self, error: NkiMlirError) -> NkiMlirError: ...
    def specialize(self, bound: Bound) -> "Specialization": ...


def run_eager(kernel: EagerKernel, bound: Bound, memory: ArgumentMemory) -> object:
    """Run a kernel on bound arguments, whose arrays are in ``memory``, and return its result."""
    judge = partial(ask_capture, kernel, bound)
    structure, values, written = results(kernel, bound, memory.arrays, kernel.eager_program(), judge)
    numbers = {id(array): k for k, array in enumerate(memory.arrays)}
    changed = {numbers[id(v)] for v in (*values, *written) if id(v) in numbers}
    memory.check(changed)
    memory.write_back(changed)
    return assemble(structure, [as_result(bound.tensors[numbers[id(v)]], kernel.mode) if id(v) in numbers
                                else np.asarray(v) for v in values])


def results(kernel: EagerKernel, bound: Bound, arrays: list[np.ndarray], program: Program, judge: Judge
            ) -> tuple[str | None, list[np.ndarray], list[np.ndarray]]:
    """Return the structure of a run's result, its arrays, and the inputs that it wrote. If it returns nothing, the
    structure is None, and the arrays are these inputs."""
    programs = executed(kernel, bound, arrays, program, judge)
    buffers, structure = programs[0].buffers, programs[0].structure
    check_written(programs, kernel.location, kernel.must_write)
    check_agreement((p.buffers for p in programs if p.structure is not None), kernel.location)
    report_missing([(b.handle, b.name, b.created_at or kernel.location) for b in buffers if b.role == "output"])
    names = {b.name for p in programs for b in p.updated}
    written = [array for array, spec in zip(arrays, bound.specs) if spec.name in names]
    return structure, written if structure is None else [b.handle for b in buffers], written


def check_run(kernel: EagerKernel, bound: Bound, arrays: list[np.ndarray]) -> None:
    """Report the races of a run with these arrays, which do not change.

    It prints nothing. Other errors are left to the run that follows.
    """
    token = CHECKING.set(True)
    try:
        executed(kernel, bound, [array.copy() for array in arrays], kernel.eager_program(), report_races)
    except (IterationsMeet, ProgramsMeet, UnknownRaceLevel, RaceWarning):
        raise
    except Exception:
        pass
    finally:
        CHECKING.reset(token)


def executed(kernel: EagerKernel, bound: Bound, arrays: list[np.ndarray], program: Program, judge: Judge
             ) -> list[Traced]:
    """Run all programs of the grid, and return their results. If one returns a tensor in private HBM, all run again
    and share it."""
    returned: set[tuple[object, ...]] = set()                # the keys of such tensors
    before = [a.copy() for a in arrays] if prod(kernel.grid) > 1 else []
    while True:
        try:
            return attempt(kernel, bound, arrays, program, Launch(returned), judge)
        except PrivateResult as result:
            returned.add(result.key)
            for array, original in zip(arrays, before):
                if array.flags.writeable:
                    array[...] = original


def attempt(kernel: EagerKernel, bound: Bound, arrays: list[np.ndarray], program: Program, launch: Launch, judge: Judge
            ) -> list[Traced]:
    function, builders = kernel.python, [program(kernel.grid, point, launch) for point in np.ndindex(*kernel.grid)]

    def run(number: int) -> Traced:
        builder = builders[number]
        token = current.set(builder)
        try:
            parameters = [builder.parameter(a, s.dtype, s.name) for a, s in zip(arrays, bound.specs)]
            traced = kernel.trace(builder, function, bound, parameters)
            builder.end()
            return traced
        except NkiMlirError as error:
            raise kernel.reported(error).located(raised_at(error.__traceback__)) from None
        finally:
            current.reset(token)
    try:
        with on_one_thread():
            programs = run_programs(run, len(builders))
    except NkiMlirError:
        judge(launch, ())
        raise
    judge(launch, builders)
    return programs


# -- judges ------------------------------------------------------------------------------------------------------------
def report_races(launch: Launch, programs: Sequence[EagerBuilder]) -> None:
    report(verdict_on(programs).races)


def ask_capture(kernel: EagerKernel, bound: Bound, launch: Launch, programs: Sequence[EagerBuilder]) -> None:
    """Raise the error that capture finds in scopes and in dependences between iterations, if the run left a doubt.

    Races are reported, too: capture's, or this run's if capture cannot take the kernel.
    """
    verdict = verdict_on(programs)
    if not (launch.doubtful or verdict.races or verdict.undecided):
        return
    try:
        if kernel.specialize(bound).captured.verdict.races:
            return
    except REFUSALS as error:
        raise error from None
    except Exception:           # other obstacles to compilation do not concern this run
        pass
    report(verdict.races)
