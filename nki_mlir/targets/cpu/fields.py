# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs that are fields of one array of records: what is read of one is read of all of them at once.

before:  subtract(boxes + 8, boxes): every fourth element from the third on, every fourth from the first on
after:   the same, with the vectors of whole boxes loaded once, and turned into vectors of fields
"""

from dataclasses import replace

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.lanes import MOST_SHUFFLED
from nki_mlir.targets.cpu.loops import MemoryUse
from nki_mlir.targets.cpu.program import Argument, Assembly
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.targets.cpu.streaming import AddressedNest
from nki_mlir.waist.nest import Nest


def find_fields(code: Assembly) -> None:
    """Say of each nest of the program which of its inputs lie beside each other."""
    for call in code.instructions:
        known = call.function
        if not isinstance(known, Nest | AddressedNest):
            continue
        nest, use = (known, MemoryUse()) if isinstance(known, Nest) else (known.nest, known.use)
        beside = _beside(nest, call.arguments)
        if beside:
            call.function = AddressedNest(nest, replace(use, beside=beside))


def _beside(nest: Nest, arguments: tuple[Argument, ...]) -> tuple[tuple[int, int, int], ...]:
    """The inputs of groups of several: their numbers, the number of the first one in memory, how far behind it."""
    steps = {k: max(map(abs, o.strides), default=0) for k, o in enumerate(nest.inputs)}
    if sum(step > 1 for step in steps.values()) < 2 or nest.mask:
        return ()
    vector = schedule(nest).vector
    if vector is None:
        return ()
    groups: dict[object, list[tuple[int, int]]] = {}
    for k, operand in enumerate(nest.inputs):
        step, start = operand.strides[vector], arguments[k]
        if 1 < step <= MOST_SHUFFLED and step & (step - 1) == 0 and isinstance(start, Linear):
            record = step * operand.dtype.itemsize
            groups.setdefault((operand, start.symbols, start.const // record), []).append((start.const % record, k))
    return tuple([(k, members[0][1], (place - members[0][0]) // nest.inputs[k].dtype.itemsize)
                  for members in map(sorted, groups.values()) if len(members) > 1 for place, k in members])
