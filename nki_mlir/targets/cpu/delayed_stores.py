# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A loop over vectors in which each iteration rounds and stores the results of the previous one.

Rounding to bfloat16 ends in a branch, for numbers that the host's instruction does not round. The branch tests results
that the previous iteration computed, so that the instructions after it hardly wait.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from nki_mlir.scalar.dtypes import BFLOAT16
from nki_mlir.targets.cpu.body import NestEvaluator, Point
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.cpu.roundings import last_roundings
from nki_mlir.targets.cpu.schedule import Schedule
from nki_mlir.waist.nest import Nest

Position: TypeAlias = Value | int


def delayed_outputs(nest: Nest, plan: Schedule) -> tuple[int, ...]:
    """Return the outputs that a loop over vectors can round to bfloat16 and store one iteration later; none if the
    loop is not innermost, or the body reads what such a store writes."""
    if nest.mask or plan.vector is None or plan.lanes == 1 or plan.order[-1] != plan.vector:
        return ()
    last = last_roundings(nest, BFLOAT16)
    rounded = [output for output, result in enumerate(nest.results) if result in last and output not in plan.carried
               and nest.outputs[output].strides[plan.vector] == 1]
    stored = [nest.first_output + output for output in range(len(nest.outputs)) if output not in plan.carried]
    return () if any(map(nest.uses, stored)) else tuple(rounded)


class DelayedStores:
    """The outputs whose stores are delayed, and the values for them that an iteration has computed.

    ``store(value, output, point)`` emits a store. While an iteration of the loop is emitted, ``values`` has the values
    that it passes to the next one; None elsewhere.
    """

    def __init__(self, code: FunctionEmitter, body: NestEvaluator, outputs: Sequence[int],
                 store: Callable[[Value, int, Point], None]) -> None:
        self.code, self.body, self.outputs, self.store = code, body, outputs, store
        self.values: list[Value] | None = None

    @property
    def left_out(self) -> frozenset[int]:
        """Return the roundings that the next iteration computes."""
        results = self.body.nest.results
        return frozenset() if self.values is None else frozenset([results[output] for output in self.outputs])

    def carry(self, output: int, point: Point) -> bool:
        """Keep the value of an output for the next iteration; return whether its store is delayed."""
        if self.values is None or output not in self.outputs:
            return False
        nest = self.body.nest
        wide, = nest.step(nest.results[output]).operands                                    # type: ignore[union-attr]
        self.values.append(self.code.spread(point.values[wide], point.lanes))
        return True

    def loop(self, span: range, carried: list[Value], vectors: Callable[[Position, list[Value]], list[Value]],
             points: Callable[[Position], Sequence[Point]]) -> list[Value]:
        """Emit a loop over ``span`` whose iterations emit ``vectors(start, carried)``. ``points(start)`` are the points
        of one iteration, whose stores the next iteration does."""
        count = len(carried)

        def computed(start: Position, values: list[Value]) -> list[Value]:
            self.values = unrounded = list[Value]()
            after = vectors(start, values)
            self.values = None
            return [*after, *unrounded]

        def following(start: Value, values: list[Value]) -> list[Value]:
            after = computed(start, values[:count])
            self.finish(points(self.code.sub(start, span.step)), values[count:])
            return after
        results = self.code.loop(span[1:], computed(span[0], carried), following)
        self.finish(points(span[-1]), results[count:])
        return results[:count]

    def finish(self, points: Sequence[Point], unrounded: Sequence[Value]) -> None:
        """Round and store the values of an iteration."""
        nest, values = self.body.nest, iter(unrounded)
        for point in points:
            for output in self.outputs:
                rounding = nest.step(nest.results[output])
                assert rounding is not None
                self.store(self.body.step(rounding, {rounding.operands[0]: next(values)}, point), output, point)
