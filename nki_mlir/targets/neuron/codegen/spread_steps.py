# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choose for each step the engine that completes it first, if steps wait only for their engine and the port of PSUM.

The method also runs as machine code, which chooses the same engines.
"""

from typing import Any

import numpy as np

from nki_mlir.targets.neuron.codegen.step_engines import FIRST, DistinctChoices
from nki_mlir.targets.runtime.compiled_class import (
    CompiledClass,
    float_array,
    int_array,
    new_floats,
    unset_array,
    with_lists,
)

PAYS_OFF = 30_000               # steps that Python spreads in the time in which the method compiles


class SpreadSteps:
    """By step: the number of its ``choices``; whether it ``is_transfer``, which any of its engines may trigger; the
    result, which of its choices is ``chosen``. By choices: where they begin (``starts``). By choice: the number of its
    engine (``engines``), ns for which that is ``busy``, and whether it takes the ``port``. ``free``: by engine, when it
    is free."""

    count: int
    choices: list[int]
    is_transfer: list[int]
    starts: list[int]
    engines: list[int]
    busy: list[float]
    port: list[int]
    free: list[float]
    port_free: float
    chosen: list[int]

    def __init__(self, numbers: Any, is_transfer: Any, distinct: DistinctChoices) -> None:
        present, at = np.unique(numbers, return_inverse=True)
        self.choices = int_array(at)
        distinct_choices = [distinct.numbered[number] for number in present.tolist()]
        self.count, self.is_transfer = len(numbers), int_array(is_transfer)
        self.starts = int_array(np.cumsum([0, *map(len, distinct_choices)]))
        self.engines = int_array([FIRST.index(choice.engine) for choices in distinct_choices for choice in choices])
        self.busy = float_array([choice.busy for choices in distinct_choices for choice in choices])
        self.port = int_array([choice.port for choices in distinct_choices for choice in choices])
        self.free, self.port_free, self.chosen = new_floats(len(FIRST)), 0.0, unset_array(self.count)

    def spread(self) -> None:
        for k in range(self.count):
            begin, end = self.starts[self.choices[k]], self.starts[self.choices[k] + 1]
            best = begin
            if self.is_transfer[k] != 0:
                if end - begin == 1:
                    self.free[self.engines[begin]] += self.busy[begin]
            else:
                earliest = self.end_of(begin)
                for at in range(begin + 1, end):
                    ns = self.end_of(at)
                    if ns < earliest:
                        best, earliest = at, ns
                self.free[self.engines[best]] = earliest
                if self.port[best] != 0:
                    self.port_free = earliest
            self.chosen[k] = best - begin

    def end_of(self, at: int) -> float:
        """Return when an engine completes the step with which it begins now."""
        begin = self.free[self.engines[at]]
        if self.port[at] != 0:
            begin = max(begin, self.port_free)
        return begin + self.busy[at]


CODE = CompiledClass(SpreadSteps, ("spread",), PAYS_OFF)


def spread_steps(numbers: Any, is_transfer: Any, distinct: DistinctChoices) -> Any:
    """Return for each step the number of its only engine; of a transfer, the number of all of its choices."""
    state = SpreadSteps(numbers, is_transfer, distinct)
    is_code = CODE.is_ready(state.count)
    if not is_code:
        with_lists(state)
    CODE.call("spread", state, is_code)
    pairs, at = np.unique(numbers * len(FIRST) + int_array(state.chosen), return_inverse=True)
    ones = int_array([distinct.one(distinct.numbered[pair // len(FIRST)], pair % len(FIRST)).number
                      for pair in pairs.tolist()])
    return np.where(is_transfer, numbers, ones[at])
