# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Eager execution of a kernel: its own Python on concrete numbers, one program of the grid after the other.

What numbers cannot show, because an iteration stands for others when the kernel is compiled, is asked of capture, where
the run raises a doubt: a kernel that is refused there for it is refused here, with the same error.
"""

from collections.abc import Callable, Container
from functools import partial
from math import prod
from typing import Any

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.diagnostics.device_rules import DeviceRules
from nki_mlir.frontend.builder import current
from nki_mlir.frontend.doubts import REFUSALS, Doubts
from nki_mlir.frontend.eager import CHECKING, EagerBuilder, PrivateResult, verdict_on
from nki_mlir.frontend.locations import raised_at
from nki_mlir.frontend.races import IterationsMeet, ProgramsMeet, RaceWarning, UnknownLevel, Verdict, report
from nki_mlir.frontend.wrapping import wrap
from nki_mlir.language.arguments import Bound
from nki_mlir.language.results import Traced, assemble, check_written, report_missing, structure_of_updates


def run_eager(kernel: Any, bound: Bound, inputs: list[np.ndarray]) -> Any:
    """What the kernel returns for these arrays, which are those of the bound arguments, contiguous."""
    return until_shared(kernel.grid, inputs, lambda results: run_once(kernel, bound, inputs, results))


def until_shared(grid: tuple[int, ...], inputs: list[np.ndarray], run: Callable[[set[tuple]], Any]) -> Any:
    """What ``run(results)`` gives once ``results`` has the places of the tensors in private HBM that are returned."""
    results: set[tuple] = set()
    before = [a.copy() for a in inputs] if prod(grid) > 1 else []
    while True:
        try:
            return run(results)
        except PrivateResult as found:
            results.add(found.place)
            for array, held in zip(inputs, before):
                if array.flags.writeable:
                    array[...] = held


def check_run(kernel: Any, bound: Bound, inputs: list[np.ndarray]) -> None:
    """Report the races of a run with these arrays, which stay as they are."""
    copies = [array.copy() for array in inputs]

    def judge(doubts: Doubts, verdict: Verdict) -> None:
        report(verdict.races)
    checking(lambda: until_shared(kernel.grid, copies, lambda found: executed(kernel, bound, copies, found, judge)))


def checking(run: Callable[[], Any]) -> None:
    """A run for the sake of its races: it prints nothing, and what else goes wrong is left to the one that follows."""
    token = CHECKING.set(True)
    try:
        run()
    except (IterationsMeet, ProgramsMeet, UnknownLevel, RaceWarning):
        raise
    except Exception:
        pass
    finally:
        CHECKING.reset(token)


def run_once(kernel: Any, bound: Bound, inputs: list[np.ndarray], results: Container[tuple]) -> Any:
    programs = executed(kernel, bound, inputs, results, partial(ask_capture, kernel, bound))
    check_written(programs, kernel.location)
    report_missing([(b.handle, b.name, b.place or kernel.location) for b in programs[0].buffers if b.role == "output"])
    places = {id(array): k for k, array in enumerate(inputs)}
    handles, structure = [b.handle for b in programs[0].buffers], programs[0].structure
    if structure is None:
        written = {places[id(b.handle)] for p in programs for b in p.buffers}
        handles = [inputs[k] for k in sorted(written)]
        structure = structure_of_updates(len(handles))
    return assemble(structure, [given(bound, places, h) for h in handles])


def executed(kernel: Any, bound: Bound, inputs: list[np.ndarray], results: Container[tuple],
             judge: Callable[[Doubts, Verdict], None]) -> list[Traced]:
    """All programs; ``judge`` gets what their run says of scopes, iterations and programs."""
    from nki_mlir.frontend.tracing import Runtime
    from nki_mlir.targets.mesh import run_programs
    shared: list[np.ndarray] = []
    doubts = Doubts()
    function = wrap(kernel.func, True, Runtime) if kernel.rolls else kernel.func
    points = list(np.ndindex(*kernel.grid))
    builders: dict[int, EagerBuilder] = {}

    def program(number: int) -> Traced:
        builder = builders[number] = EagerBuilder(kernel.grid, points[number], shared, kernel.platform, doubts=doubts,
                                                  results=results)
        parameters = [builder.parameter(a, s.dtype, s.name) for a, s in zip(inputs, bound.specs)]
        token = current.set(builder)
        try:
            traced = kernel.trace(builder, function, bound, parameters)
            doubts.found |= builder.rules is not DeviceRules.OFF and any(True for _ in builder.memory.findings())
            return traced
        except NkiMlirError as error:
            raise error.located(raised_at(error.__traceback__)) from None
        finally:
            current.reset(token)
    try:
        programs = run_programs(program, len(points))
    except NkiMlirError:
        judge(doubts, Verdict())
        raise
    judge(doubts, verdict_on([builders[number] for number in range(len(points))]))
    return programs


def ask_capture(kernel: Any, bound: Bound, doubts: Doubts, verdict: Verdict) -> None:
    """Raise what capture says of scopes and of iterations that depend on each other, if there is a doubt.

    It reports races, too; what it does not see, because it cannot take the kernel, is the ``verdict`` on the run.
    """
    if not (doubts.found or verdict.races or verdict.undecided):
        return
    try:
        if kernel.specialize(bound).captured.verdict.races:
            return
    except REFUSALS as error:
        raise error from None
    except Exception:           # what else keeps the kernel from being compiled is no matter of this run
        pass
    report(verdict.races)


def given(bound: Bound, places: dict[int, int], used: np.ndarray) -> np.ndarray:
    """The caller's array where an input was updated."""
    if id(used) not in places:
        return np.asarray(used)
    array = bound.tensors[places[id(used)]]
    if array is not used:
        array[...] = used.reshape(array.shape)
    return array
