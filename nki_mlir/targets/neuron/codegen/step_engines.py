# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engines on which the steps of a run may start, as numbers, for the list scheduler."""

from collections.abc import Sequence
from typing import NamedTuple

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


Choices = tuple[Choice, ...]    # of a step on each engine that may run it; those of a form are one object
Rivals = tuple[float, tuple[tuple[int, float, float], ...]]


class StepEngines:
    """Engines have numbers, in the order in which they choose.

    By step: ``several``, the engines that it may run on, and ``masks``, the same as bits; ``only``, its only engine or
    -1; ``on``, its choice on each engine. ``alone``: by engine, ns for which it is busy with steps that no other engine
    may run. ``rivals``: by step and engine, ns until others see the result, and the engines that may be faster, each
    with its ns until it is free and from then on. A step that several engines may run counts for longer on an engine
    that is busy with steps that only it may run.
    """

    def __init__(self, choices: Sequence[Choices]) -> None:
        kinds = set(choices)
        used_engines = {choice.engine for step_choices in kinds for choice in step_choices}
        self.engines = [engine for engine in FIRST if engine in used_engines]
        self.alone = [0.0] * len(self.engines)
        numbers = {step_choices: tuple([self.engines.index(choice.engine) for choice in step_choices])
                   for step_choices in kinds}
        self.several = [numbers[step_choices] for step_choices in choices]
        for step_choices, engines in zip(choices, self.several):
            if len(engines) == 1:
                self.alone[engines[0]] += step_choices[0].busy
        busiest = max(max(self.alone, default=0.0), 1.0)
        self.load = [busy / busiest for busy in self.alone]         # any other step that goes there delays these
        forms: dict[Choices, tuple[int, int, list[Choice | None], list[Rivals]]] = {}
        for step_choices, engines in numbers.items():
            by_engine: list[Choice | None] = [None] * len(self.engines)
            for e, choice in zip(engines, step_choices):
                by_engine[e] = choice
            forms[step_choices] = (sum([1 << e for e in engines]), engines[0] if len(engines) == 1 else -1, by_engine,
                                   self.rivals_on(by_engine))
        step_forms = [forms[step_choices] for step_choices in choices]
        self.masks = [form[0] for form in step_forms]
        self.only = [form[1] for form in step_forms]
        self.on = [form[2] for form in step_forms]
        self.rivals = [form[3] for form in step_forms]

    def rivals_on(self, by_engine: Sequence[Choice | None]) -> list[Rivals]:
        """Return for each engine the ns of a step there, and the other engines that may complete it earlier."""
        times = [None if choice is None else (choice.busy * (1 + self.load[e]), choice.result)
                 for e, choice in enumerate(by_engine)]
        several: list[Rivals] = []
        for engine, time in enumerate(times):
            ns = 0.0 if time is None else time[0] + time[1]
            several.append((ns, tuple([(e, *other) for e, other in enumerate(times) if (
                e != engine and other is not None and other[0] + other[1] < ns)])))
        return several
