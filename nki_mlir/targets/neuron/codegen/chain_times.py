# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adds times along the chains of dependences of a run: in program order, and from each step to the end of its chains.

The methods also run as machine code, which adds the same numbers in the same order.
"""

from typing import Any

from nki_mlir.targets.neuron.codegen.dependence_scan import StepEdges
from nki_mlir.targets.neuron.codegen.step_engines import FIRST, StepEngines
from nki_mlir.targets.runtime.compiled_class import CompiledClass, new_floats, with_lists

PAYS_OFF = 15_000               # steps after which the method is compiled, for this process and later ones


class ChainTimes:
    """By step: its ``engine``, and for how many ns it is ``busy``; the ns from then on until the engine (``in_engine``)
    and others (``result``) see its result; ``moving``: of a transfer, the ns that it is under way; -1.0 of another
    step. The ``related`` steps, from ``start`` on: those that it comes after, or those that come after it.

    ``times``: by step, the result. ``seen_in_engine``: when its engine sees its result;
    ``free``: by engine, when it is free.
    """

    count: int
    start: list[int]
    related: list[int]
    engine: list[int]
    busy: list[float]
    result: list[float]
    in_engine: list[float]
    moving: list[float]
    trigger_ns: float
    notify_ns: float
    times: list[float]
    seen_in_engine: list[float]
    free: list[float]
    end: float

    def __init__(self, engines: StepEngines, related: StepEdges, moving: Any, trigger_ns: float, notify_ns: float
                 ) -> None:
        """``engines``: of each step, the only one on which it may run. ``moving``: of each transfer, the ns that it is
        under way; -1.0 for other steps."""
        self.count, self.start, self.related = len(related), related.starts, related.steps
        only: Any = engines.only
        at = engines.forms * len(engines.engines) + only
        self.engine = only
        self.busy, self.result, self.in_engine = engines.busy[at], engines.result[at], engines.result_in_engine[at]
        self.moving, self.trigger_ns, self.notify_ns = moving, trigger_ns, notify_ns
        self.times, self.seen_in_engine = new_floats(self.count), new_floats(self.count)
        self.free, self.end = new_floats(len(FIRST)), 0.0

    def in_program_order(self) -> None:
        """Let each step start, in program order, once its engine is free and sees the results of the steps that it
        comes after. Store in ``times`` when other engines see each result, and in ``end`` when all do, and all engines
        are free."""
        for k in range(self.count):
            engine = self.engine[k]
            begin = self.free[engine]
            for at in range(self.start[k], self.start[k + 1]):
                other = self.related[at]
                visible = self.times[other]
                if self.engine[other] == engine and self.moving[other] < 0.0:
                    visible = self.seen_in_engine[other]
                begin = max(begin, visible)
            end = begin + self.busy[k]
            self.free[engine] = end
            self.seen_in_engine[k], self.times[k] = end + self.in_engine[k], end + self.result[k]
            if self.moving[k] >= 0.0:
                self.times[k] = begin + self.trigger_ns + self.moving[k] + self.notify_ns
            self.end = max(self.end, max(end, self.times[k]))

    def to_the_end(self) -> None:
        """Store in ``times`` the time from the start of each step to the end of the longest chain after it."""
        for k in range(self.count - 1, -1, -1):
            result, is_transfer = self.result[k], self.moving[k] >= 0.0
            if is_transfer:
                result = self.trigger_ns + self.moving[k] + self.notify_ns - self.busy[k]
            longest = result
            for at in range(self.start[k], self.start[k + 1]):
                user = self.related[at]
                if not is_transfer and self.engine[user] == self.engine[k]:
                    longest = max(longest, self.in_engine[k] + self.times[user])
                else:
                    longest = max(longest, result + self.times[user])
            self.times[k] = self.busy[k] + longest


class LeastRests:
    """By step: ``until``, ns at least from its start until a step that comes after it may start; ``complete``: until
    all see its result; ``rests``, the result: until the longest chain after it ends. ``users``: the steps that come
    after each, from ``users_start`` on."""

    count: int
    users_start: list[int]
    users: list[int]
    until: list[float]
    complete: list[float]
    rests: list[float]

    def __init__(self, users: StepEdges, until: Any, complete: Any) -> None:
        self.count, self.users_start, self.users = len(users), users.starts, users.steps
        self.until, self.complete, self.rests = until, complete, new_floats(self.count)

    def add(self) -> None:
        for k in range(self.count - 1, -1, -1):
            after = 0.0
            for at in range(self.users_start[k], self.users_start[k + 1]):
                after = max(after, self.rests[self.users[at]])
            self.rests[k] = max(self.until[k] + after, self.complete[k])


TIMES = CompiledClass(ChainTimes, ("in_program_order", "to_the_end"), PAYS_OFF)
RESTS = CompiledClass(LeastRests, ("add",), PAYS_OFF)


def summed(compiled: CompiledClass, entry: str, state: Any) -> Any:
    """Let a method visit all steps, and return its instance."""
    is_code = compiled.is_ready(state.count)
    if not is_code:
        with_lists(state)
    compiled.call(entry, state, is_code)
    return state
