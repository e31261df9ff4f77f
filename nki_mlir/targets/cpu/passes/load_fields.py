# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""load-fields: load inputs that alternate in memory, as fields of records do, with the same vector loads.

before:  add(x, x + 4, y)  with steps of two        after:  add(x, x + 4, y)  with one load of whole vectors
"""

from dataclasses import replace

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.function import Argument, NativeFunction, calls_in
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.lanes import MOST_SHUFFLED
from nki_mlir.targets.cpu.loops import AddressedNest, with_memory
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.waist.nest import Nest


class LoadFields(FunctionPass, name="load-fields"):
    def rewrite(self, function: NativeFunction) -> None:
        for call in calls_in(*function.body.nodes):
            if isinstance(call.function, Nest | AddressedNest):
                routine = with_memory(call.function)
                if beside := fields_beside(routine.nest, call.arguments):
                    call.function = replace(routine, use=replace(routine.use, beside=beside))


def fields_beside(nest: Nest, arguments: tuple[Argument, ...]) -> tuple[tuple[int, int, int], ...]:
    """Return the inputs of groups of several: their numbers, the number of the first one in memory, their distance
    from it."""
    steps = {k: max(map(abs, o.strides), default=0) for k, o in enumerate(nest.inputs)}
    if sum(step > 1 for step in steps.values()) < 2 or nest.mask:
        return ()
    vector = schedule(nest).vector
    if vector is None:
        return ()
    groups: dict[object, list[tuple[int, int]]] = {}
    for k, operand in enumerate(nest.inputs):
        step, start = operand.strides[vector], arguments[k]
        if 1 < step <= MOST_SHUFFLED and step.bit_count() == 1 and isinstance(start, Linear):
            record = step * operand.dtype.itemsize
            groups.setdefault((operand, start.symbols, start.const // record), []).append((start.const % record, k))
    return tuple([(k, members[0][1], (offset - members[0][0]) // nest.inputs[k].dtype.itemsize)
                  for members in map(sorted, groups.values()) if len(members) > 1 for offset, k in members])
