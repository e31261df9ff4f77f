# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engines on which the steps of a run may start, as numbers, for the list scheduler."""

from collections.abc import Sequence
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


Choices = tuple[Choice, ...]    # of a step on each engine that may run it; those of a form are one object


class StepEngines:
    """Engines have numbers, in the order in which they choose.

    Arrays by step: ``forms``, the number of its choices; ``masks``, the engines that it may run on, as bits; ``only``,
    its only engine or -1. By form and engine: the fields of the choice; and ``loaded``, ``busy`` for longer on an
    engine that is busy with steps that only it may run. ``alone``: by engine, ns for which it is busy with these.
    """

    def __init__(self, choices: Sequence[Choices]) -> None:
        numbers: dict[Choices, int] = {}
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
