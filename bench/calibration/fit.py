# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fit the numbers of a machine that are documented as fitted, and compare the errors with those without the fit.

It changes each number by 5%, times all kernels again, and assumes that the effect is linear in the logarithms of
both. So a fit on any of the entries is a least-squares problem, in which small errors count by their squares and large
errors by their size; a prior keeps every number near its value. Orders of instructions stay as they are. The errors
are those of kernels that are timed with the fitted numbers.

It prints the errors of a fit on half of the operators beside those of the other half, and the errors of each operator
beside those of a fit without it. It changes no number of a machine.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from error_table import Outcome, eightieth, error, ordered

from nki_mlir.dialects.isa.program import Program
from nki_mlir.machine import Cited, Machine, machine_named
from nki_mlir.machine.cited import FITTED
from nki_mlir.targets.neuron.timing import machine as timing

STEP = 0.05                     # relative change of a number to see what depends on it
PRIOR = 0.2                     # standard deviation of a number about its value, relative
NOISE = 0.08                    # the same of latencies about the model; larger errors count by size, not square
ROUNDS = 20                     # iterations that weight large errors


class Timed(NamedTuple):
    """An entry's programs, the measured time, and the time that its harness adds."""

    name: str
    operator: str
    target: str
    published_ns: float
    launch_ns: float
    programs: Sequence[Program]

    def model_ns(self, machine: Machine) -> float:
        """Return the model's time on that machine, with the time that the harness adds."""
        with mock.patch.object(timing, "machine_named", lambda target: machine):    # it is looked up once, by name
            run = timing.TimedMachine(self.programs)
        run.run()
        return run.end + self.launch_ns


class Fitted(NamedTuple):
    """A number of a target: its position in the costs, which begins with its field."""

    target: str
    path: tuple[Any, ...]
    number: Cited

    def text(self) -> str:
        return f"{self.target} {'.'.join(str(getattr(part, 'value', part)) for part in self.path)}"


def numbers_of(target: str) -> list[Fitted]:
    """Return the fitted numbers of a target; a number that several laws share counts once."""
    numbers: dict[int, Fitted] = {}

    def walk(value: object, path: tuple[Any, ...]) -> None:
        if isinstance(value, Cited):
            if value.kind == FITTED and path[0] != "control":
                numbers.setdefault(id(value), Fitted(target, path, value))
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                walk(inner, (*path, key))
        elif isinstance(value, tuple):
            for name, inner in value._asdict().items():
                walk(inner, (*path, name))

    walk(machine_named(target).costs, ())
    return list(numbers.values())


def with_numbers(machine: Machine, values: Mapping[int, float]) -> Machine:
    """Return the machine with other values of some numbers, found by identity."""
    def copy(value: Any) -> Any:
        if isinstance(value, Cited):
            return Cited(values[id(value)], value.source, value.residual) if id(value) in values else value
        if isinstance(value, Mapping):
            return {key: copy(inner) for key, inner in value.items()}
        return type(value)(*map(copy, value)) if isinstance(value, tuple) else value

    return dataclasses.replace(machine, costs=copy(machine.costs))


class Sensitivities:
    """The logarithm of model / published of each entry, and its derivative by the logarithm of each number."""

    def __init__(self, entries: Sequence[Timed]) -> None:
        self.entries = entries
        self.numbers = [number for target in sorted({e.target for e in entries}) for number in numbers_of(target)]
        machines = {e.target: machine_named(e.target) for e in entries}
        base = np.array([e.model_ns(machines[e.target]) for e in entries])
        self.errors = np.log(base / [e.published_ns for e in entries])
        self.slopes = np.zeros((len(entries), len(self.numbers)))
        for k, number in enumerate(self.numbers):
            other = with_numbers(machines[number.target], {id(number.number): number.number * (1 + STEP)})
            for row, entry in enumerate(entries):
                if entry.target == number.target:
                    self.slopes[row, k] = np.log(entry.model_ns(other) / base[row]) / np.log1p(STEP)

    def fit(self, rows: np.ndarray) -> np.ndarray:
        """Return the logarithms of the changes of numbers that fit some entries best."""
        errors, slopes = self.errors[rows], self.slopes[rows]
        change = np.zeros(len(self.numbers))
        prior = np.eye(len(self.numbers)) / PRIOR ** 2
        for _ in range(ROUNDS):
            off = np.abs(errors + slopes @ change)
            weights = 1 / (NOISE * np.maximum(off, NOISE))
            change = np.linalg.solve(slopes.T * weights @ slopes + prior, -slopes.T * weights @ errors)
        return change

    def rows(self, operators: Sequence[str]) -> np.ndarray:
        return np.array([k for k, e in enumerate(self.entries) if e.operator in operators], int)

    def outcomes(self, rows: np.ndarray, change: np.ndarray) -> list[Outcome]:
        """Return the published times of some entries, and the model's with changed numbers. The entries are timed
        again, because large changes have effects that are not linear."""
        values = {id(number.number): float(number.number * np.exp(by)) for number, by in zip(self.numbers, change)}
        entries = [self.entries[k] for k in rows]
        machines = {target: with_numbers(machine_named(target), values) for target in {e.target for e in entries}}
        return [Outcome(published_ns=e.published_ns, model_ns=e.model_ns(machines[e.target])) for e in entries]

    def off(self, rows: np.ndarray, change: np.ndarray) -> list[float]:
        """Return the relative errors of some entries with changed numbers."""
        return [error(outcome) for outcome in self.outcomes(rows, change)]

    def spread(self, k: int) -> float:
        """Return the standard deviation of measurements about a number, from the errors of entries, weighted by how
        much they depend on it."""
        weights = self.slopes[:, k] ** 2
        return float(np.sqrt(weights @ self.errors ** 2 / weights.sum())) if weights.sum() else 0.0


def errors_text(errors: Sequence[float]) -> str:
    return f"median {statistics.median(errors):5.1%}, 80th percentile {eightieth(errors):5.1%}"


def report(entries: Sequence[Timed]) -> list[str]:
    """Return lines: the numbers, and the errors of the fit, of operators that it has not seen, and of fits without an
    operator. With a single operator no entry remains to judge a fit by."""
    if len({e.operator for e in entries}) < 2:
        return ["no fit: it needs entries of two operators, of targets with fitted numbers"]
    laws = Sensitivities(entries)
    operators = sorted({e.operator for e in entries})
    everything = np.arange(len(entries))
    change_of_all = laws.fit(everything)
    lines = [f"fit of {len(laws.numbers)} numbers on {len(entries)} entries of {len(operators)} operators",
             f"{'number':45} {'value':>8} {'fit':>8} {'residual':>8}  fitted on"]
    for k, (number, change) in enumerate(zip(laws.numbers, change_of_all)):
        lines.append(f"{number.text():45} {number.number:8.4g} {number.number * np.exp(change):8.4g} "
                     f"{laws.spread(k):8.1%}  {', '.join(number.number.fit)}")
    lines += ["", f"as they are:                {errors_text(laws.off(everything, np.zeros(len(change_of_all))))}",
              f"fitted on all:              {errors_text(laws.off(everything, change_of_all))}"]
    for name, half in (("first", operators[::2]), ("second", operators[1::2])):
        change, other_half = laws.fit(laws.rows(half)), [o for o in operators if o not in half]
        lines += [f"fitted on the {name} half:  {errors_text(laws.off(laws.rows(half), change))}",
                  f"  the other half:           {errors_text(laws.off(laws.rows(other_half), change))}"]
    lines += ["", f"{'operator':20} entries   fitted on all                        left out"]
    left_out: list[float] = []
    right = total = 0
    for operator in operators:
        rows = laws.rows([operator])
        outcomes = laws.outcomes(rows, laws.fit(np.setdiff1d(everything, rows)))
        errors = [error(outcome) for outcome in outcomes]
        left_out += errors
        right, total = (a + b for a, b in zip((right, total), ordered(outcomes)))
        lines.append(f"{operator:20} {len(rows):7}   {errors_text(laws.off(rows, change_of_all))}   "
                     f"{errors_text(errors)}")
    return [*lines, f"left out, all operators:    {errors_text(left_out)}, {right} of {total} pairs of one operator "
                    "that differ by 10% in the published order"]
