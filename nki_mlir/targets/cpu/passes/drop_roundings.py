# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""drop-roundings: leave out roundings to narrow floats of values that the narrow dtype represents.

before:  m = widen(round(max(widen(x), widen(y))))       for x and y in bfloat16
after:   m = max(widen(x), widen(y))

An extremum of representable values is representable. So are magnitudes and negatives of representable values, and their
products with a mask. Results keep their bits.
"""

from dataclasses import replace

from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, calls_in, compute
from nki_mlir.targets.cpu.roundings import is_representable, roundings
from nki_mlir.waist.nest import Nest


class DropRoundings(FunctionPass, name="drop-roundings"):
    def rewrite(self, function: NativeFunction) -> None:
        calls = {call: without_exact_roundings(call.nest) for call in calls_in(*function.body.nodes)
                 if isinstance(call, Compute) and call.function is call.nest}
        function.replace_calls({call: compute(nest, call.regions, call.symbols) for call, nest in calls.items()
                                if nest is not call.nest})


def without_exact_roundings(nest: Nest) -> Nest:
    """Return the nest without roundings that keep their values: steps read the values before them. Without such
    roundings, return the nest itself."""
    exact = {value: wide for value, (wide, dtype) in roundings(nest).items() if is_representable(nest, wide, dtype)}
    if not exact:
        return nest

    def before(value: int) -> int:
        return before(exact[value]) if value in exact else value
    read = {value: [before(v) for v in step.operands] for value, step in enumerate(nest.steps, nest.first_step)}
    results = [before(value) for value in nest.results]
    needed = {*results}
    for value in sorted(read, reverse=True):
        needed.update(read[value] if value in needed else ())
    remaining = [value for value in read if value in needed]
    number = {**{v: v for v in range(nest.first_step)}, **{v: k for k, v in enumerate(remaining, nest.first_step)}}
    steps = [replace(nest.steps[value - nest.first_step], operands=tuple([number[v] for v in read[value]]))
             for value in remaining]
    return replace(nest, steps=tuple(steps), results=tuple([number[v] for v in results]))
