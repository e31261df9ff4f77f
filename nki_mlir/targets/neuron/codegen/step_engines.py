# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engines on which the steps of a run may start, as numbers, for the list scheduler."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nki_mlir.machine import Engine, Work

FIRST = (Engine.SYNC, Engine.TENSOR, Engine.GPSIMD, Engine.VECTOR, Engine.SCALAR)  # the order in which engines choose


class Choice(NamedTuple):
    """A step on one engine, in ns as ``Cost`` has them, with its ``work`` there. ``port``: it takes PSUM for itself;
    ``share``: the part of the rows that it needs, on an engine with a ramp."""

    engine: Engine
    busy: float
    result: float
    result_in_engine: float
    port: bool
    share: float
    work: Work


class StepChoices(tuple[Choice, ...]):
    """A step on each engine that may run it. ``DistinctChoices`` returns one object for equal ones, so that they
    are hashed and compared as objects."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__


class DistinctChoices:
    """The choices of a search, each once."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Choice, ...], StepChoices] = {}
        self.parts: dict[tuple[StepChoices, int | Engine], StepChoices] = {}

    def of(self, choices: Iterable[Choice]) -> StepChoices:
        key = tuple(choices)
        return self.objects.get(key) or self.objects.setdefault(key, StepChoices(key))

    def one(self, choices: StepChoices, at: int) -> StepChoices:
        """Return only one of several choices."""
        if len(choices) == 1:
            return choices
        key = choices, at
        return self.parts.get(key) or self.parts.setdefault(key, self.of([choices[at]]))

    def without(self, choices: StepChoices, engine: Engine) -> StepChoices:
        """Return the choices without an engine, unless it is the first."""
        if len(choices) == 1:
            return choices
        key = choices, engine
        return self.parts.get(key) or self.parts.setdefault(
            key, self.of([c for n, c in enumerate(choices) if not n or c.engine is not engine]))


class StepEngines:
    """Engines have numbers, in the order in which they choose.

    Arrays by step: ``forms``, the number of its choices; ``masks``, the engines that it may run on, as bits; ``only``,
    its only engine or -1. By form and engine: the fields of the choice; and ``loaded``, ``busy`` for longer on an
    engine that is busy with steps that only it may run. ``alone``: by engine, ns for which it is busy with these.
    """

    def __init__(self, choices: Sequence[StepChoices]) -> None:
        numbers: dict[StepChoices, int] = {}
        self.choices = numbers                  # the distinct ones, by the number of the form
        self.forms = np.array([numbers.setdefault(step_choices, len(numbers)) for step_choices in choices], np.int64)
        used_engines = {choice.engine for step_choices in numbers for choice in step_choices}
        self.engines = [engine for engine in FIRST if engine in used_engines]
        shape = len(numbers), len(self.engines)
        busy, result, result_in_engine, share = (np.zeros(shape) for _ in range(4))
        port, masks, only = np.zeros(shape, np.int64), np.zeros(shape[0], np.int64), np.full(shape[0], -1)
        for form, step_choices in enumerate(numbers):
            for choice in step_choices:
                e = self.engines.index(choice.engine)
                busy[form, e], result[form, e] = choice.busy, choice.result
                result_in_engine[form, e], share[form, e] = choice.result_in_engine, choice.share
                port[form, e] = choice.port
                masks[form] |= 1 << e
                only[form] = e if len(step_choices) == 1 else -1
        self.masks, self.only = masks[self.forms], only[self.forms]
        self.alone = [0.0] * len(self.engines)
        alone = busy[np.arange(shape[0]), only]
        for form, engine in zip(self.forms.tolist(), self.only.tolist()):
            if engine >= 0:
                self.alone[engine] += float(alone[form])
        load = np.array(self.alone) / max(*self.alone, 1.0)         # any other step that goes there delays these
        self.loaded = (busy * (1 + load)).reshape(-1)
        self.busy, self.result, self.port, self.share = (array.reshape(-1) for array in (busy, result, port, share))
        self.result_in_engine = result_in_engine.reshape(-1)
