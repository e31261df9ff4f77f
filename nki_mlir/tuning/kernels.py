# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tune a kernel of this process: parameters are keyword arguments, results are compared with a reference."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.arguments import BadArgument
from nki_mlir.language.kernel import Kernel, unwrap
from nki_mlir.language.specialization import Specialization
from nki_mlir.scoring.reference import copied, difference, flat, mistake_of
from nki_mlir.targets import neuron
from nki_mlir.tuning.search import Attempt, TuningResult, search
from nki_mlir.tuning.space import GRID, LEVEL, Choice, space_of

Reference = Callable[..., Any]


def tune_kernel(kernel: object, space: Mapping[str, Sequence[object]], arguments: Sequence[Any],
                reference: Reference | None, tolerance: Mapping[str, float], trials: int, seed: int) -> TuningResult:
    """Implement ``nki_mlir.tune``."""
    for need, value, kinds in (("a dict of values to search", space, Mapping),
                               ("a list of arguments", arguments, (list, tuple)),
                               ("a function as reference", reference, (Callable, type(None))),
                               ("a dict of tolerances", tolerance, Mapping), ("an integer of trials", trials, int),
                               ("an integer as seed", seed, int)):
        if not isinstance(value, kinds):            # type: ignore[arg-type]
            raise BadArgument(what=f"nki_mlir.tune takes {need}, got a value of type {type(value).__name__}").here()
    if wrong := mistake_of(tolerance):
        raise BadArgument(what=f"the tolerance of nki_mlir.tune {wrong[0]}", fix=wrong[1]).here()
    if trials < 1:
        raise BadArgument(what=f"nki_mlir.tune makes {trials} trials", fix="give a number of 1 or more").here()
    plain_kernel, searched = unwrap(kernel), space_of(space)
    first_choice = {name: values[0] for name, values in searched.items()}
    expected = flat(reference(*map(copied, arguments))) if reference is not None else \
        [np.array(a) for a in flat(run(plain_kernel, first_choice, arguments))]

    def judge(choices: Sequence[Choice]) -> Iterator[Attempt]:
        for choice in choices:
            try:
                yield attempt(plain_kernel, choice, arguments, expected, dict(tolerance))
            except (NkiMlirError, TypeError, ValueError, ArithmeticError, AssertionError, LookupError) as error:
                yield Attempt(choice, math.inf, reason=str(error).splitlines()[0] if str(error) else repr(error))
    result = search(searched, judge, trials, seed)
    result.check()
    return result


def launched(kernel: Kernel, choice: Choice) -> tuple[Kernel, dict[str, object]]:
    """Return the kernel on the grid of a choice, and the choice's parameters as keywords."""
    keywords = {name: value for name, value in choice.items() if name not in (GRID, LEVEL)}
    return (kernel[choice[GRID]] if GRID in choice else kernel), keywords


def run(kernel: Kernel, choice: Choice, arguments: Sequence[Any]) -> Any:
    on_grid, keywords = launched(kernel, choice)
    return on_grid(*map(copied, arguments), **keywords)


def attempt(kernel: Kernel, choice: Choice, arguments: Sequence[Any], expected: Sequence[np.ndarray],
            tolerance: dict[str, float]) -> Attempt:
    """Run, compare, compile and time a choice."""
    results = flat(run(kernel, choice, arguments))
    if [a.shape for a in results] != [a.shape for a in expected]:
        return Attempt(choice, math.inf, reason="the results' shapes differ from the reference's")
    wrong = next((text for a, b in zip(expected, results) if (text := difference(a, b, tolerance))), "")
    if wrong:
        return Attempt(choice, math.inf, reason=wrong)
    on_grid, keywords = launched(kernel, choice)
    spec: Specialization = on_grid.lower(*arguments, **keywords).specialization
    if races := spec.captured.verdict.races:
        return Attempt(choice, math.inf, reason=races[0].headline)
    level = int(str(choice.get(LEVEL, 1)))
    timing = neuron.timed(neuron.streams(spec.captured, spec.grid, neuron.emission(level=level), spec.cores))
    low, high = timing.interval_ns
    return Attempt(choice, timing.total_ns / 1e9, (low / 1e9, high / 1e9))
