# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engines on which the steps of a run may start, as numbers, for the list scheduler."""

from collections.abc import Sequence

from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen.scheduling_graph import Choice, Choices

FIRST = (Engine.SYNC, Engine.TENSOR, Engine.GPSIMD, Engine.VECTOR, Engine.SCALAR)  # the order in which engines choose


class StepEngines:
    """Engines have numbers, in the order in which they choose. By step: ``several``, the engines that it may run on;
    ``only``, its only engine or -1; ``on``, its choice on each engine. ``alone``: by engine, ns for which it is busy
    with steps that no other engine may run."""

    def __init__(self, choices: Sequence[Choices]) -> None:
        used_engines = {choice.engine for step_choices in set(choices) for choice in step_choices}
        self.engines = [engine for engine in FIRST if engine in used_engines]
        forms: dict[Choices, tuple[tuple[int, ...], int, list[Choice | None]]] = {}
        for step_choices in set(choices):
            numbers = tuple([self.engines.index(choice.engine) for choice in step_choices])
            by_engine: list[Choice | None] = [None] * len(self.engines)
            for e, choice in zip(numbers, step_choices):
                by_engine[e] = choice
            forms[step_choices] = numbers, numbers[0] if len(numbers) == 1 else -1, by_engine
        step_forms = [forms[step_choices] for step_choices in choices]
        self.several = [form[0] for form in step_forms]
        self.only = [form[1] for form in step_forms]
        self.on = [form[2] for form in step_forms]
        self.alone = [0.0] * len(self.engines)
        for step_choices, only in zip(choices, self.only):
            if only >= 0:
                self.alone[only] += step_choices[0].busy
