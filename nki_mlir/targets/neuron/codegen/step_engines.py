# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engines on which the steps of a run may start, as numbers, for the list scheduler."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.machine import Engine, Work
from nki_mlir.targets.runtime.compiled_class import float_array, int_array

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
    are hashed and compared as objects, and gives it a ``number``."""

    number: int

    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__


class FirstChoices(NamedTuple):
    """Arrays by the number of choices: the first engine, as its index in ``FIRST``; ns for which it is busy; whether it
    is the only one."""

    engine: Any
    busy: Any
    is_only: Any


class DistinctChoices:
    """The choices of a search, each once, by number."""

    def __init__(self) -> None:
        self.numbered: list[StepChoices] = []
        self.objects: dict[tuple[Choice, ...], StepChoices] = {}
        self.columns: FirstChoices | None = None        # of the choices that the arrays have

    def of(self, choices: Iterable[Choice]) -> StepChoices:
        key = tuple(choices)
        distinct = self.objects.get(key)
        if distinct is None:
            distinct = self.objects[key] = StepChoices(key)
            distinct.number = len(self.numbered)
            self.numbered.append(distinct)
        return distinct

    def one(self, choices: StepChoices, at: int = 0) -> StepChoices:
        """Return one of several choices as the only one."""
        return choices if len(choices) == 1 else self.of([choices[at]])

    def without(self, choices: StepChoices, engine: Engine) -> StepChoices:
        """Return the choices without an engine, unless it is the first."""
        return self.of([c for n, c in enumerate(choices) if not n or c.engine is not engine])

    def derived(self, numbers: Any, change: Callable[[StepChoices], StepChoices]) -> Any:
        """Return the numbers of changed choices, for an array of numbers."""
        present, at = np.unique(numbers, return_inverse=True)
        return int_array([change(self.numbered[number]).number for number in present.tolist()])[at]

    @property
    def firsts(self) -> FirstChoices:
        if self.columns is None or len(self.columns.engine) < len(self.numbered):
            self.columns = FirstChoices(int_array([FIRST.index(choices[0].engine) for choices in self.numbered]),
                                        float_array([choices[0].busy for choices in self.numbered]),
                                        np.array([len(choices) == 1 for choices in self.numbered], np.bool_))
        return self.columns


class StepEngines:
    """The engines that each step may run on, as arrays. Engines have numbers, in the order of ``FIRST``.

    Arrays by step: ``forms``, the index of its choices in ``choices``; ``masks``, the engines that it may run on, as
    bits; ``only``, its only engine or -1. Arrays by form and engine: the fields of the choice, and ``loaded``, which is
    ``busy``, increased for engines that are busy with steps that no other engine can run. ``alone``: by engine, the ns
    for which such steps keep it busy.
    """

    def __init__(self, numbers: Any, distinct: DistinctChoices) -> None:
        """``numbers`` are the numbers of each step's choices in ``distinct``."""
        present, self.forms = np.unique(numbers, return_inverse=True)
        self.choices = [distinct.numbered[number] for number in present.tolist()]
        used_engines = {choice.engine for step_choices in self.choices for choice in step_choices}
        self.engines = [engine for engine in FIRST if engine in used_engines]
        shape = len(self.choices), len(self.engines)
        busy, result, result_in_engine, share = (np.zeros(shape) for _ in range(4))
        port, masks, only = np.zeros(shape, np.int64), np.zeros(shape[0], np.int64), np.full(shape[0], -1)
        for form, step_choices in enumerate(self.choices):
            for choice in step_choices:
                e = self.engines.index(choice.engine)
                busy[form, e], result[form, e] = choice.busy, choice.result
                result_in_engine[form, e], share[form, e] = choice.result_in_engine, choice.share
                port[form, e] = choice.port
                masks[form] |= 1 << e
                only[form] = e if len(step_choices) == 1 else -1
        self.masks, self.only = masks[self.forms], only[self.forms]
        has_one = self.only >= 0
        self.alone = np.bincount(self.only[has_one], busy[np.arange(shape[0]), only][self.forms[has_one]], shape[1])
        load = self.alone / max(*self.alone.tolist(), 1.0)          # any other step that goes there delays these
        self.loaded = (busy * (1 + load)).reshape(-1)
        self.busy, self.result, self.port, self.share = (array.reshape(-1) for array in (busy, result, port, share))
        self.result_in_engine = result_in_engine.reshape(-1)
