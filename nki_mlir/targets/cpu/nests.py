# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a nest costs on the CPU, which bytes it touches, and its parts for several threads."""

from dataclasses import replace
from functools import lru_cache

from nki_mlir.waist.nest import Nest


def cost_of(nest: Nest) -> float:
    """Nanoseconds, roughly: to decide what is worth a second thread."""
    product = nest.reduced and len(nest.inputs) == 2 and [s.name for s in nest.steps[-2:]] == ["multiply", "add"]
    return 20 + nest.elements * (0.02 if product else 0.05 + 0.03 * len(nest.steps))


def parts_of(nest: Nest, least: int, most: int) -> tuple[Nest, int, int] | None:
    """The nest as equal parts along its first axis: one part, how many there are, and the extent of a part.

    None where no number of parts between the two fits, or a part would have to know which one it is.
    """
    if nest.mask or not nest.extents or 0 in nest.reduced or any(
            s.kind == "index" and s.number == 0 for s in nest.steps):
        return None
    for count in range(least, most + 1):
        if nest.extents[0] % count == 0:
            extent = nest.extents[0] // count
            return replace(nest, extents=(extent, *nest.extents[1:])).simplified, count, extent
    return None


@lru_cache(1 << 12)
def reach_of(nest: Nest, operand: int) -> tuple[int, int]:
    """The first and last byte of an operand, from the address of its first element on."""
    given = nest.operands[operand]
    ends = [step * (extent - 1) for step, extent in zip(given.strides, nest.extents)]
    size = given.dtype.itemsize
    return size * sum(min(0, e) for e in ends), size * (sum(max(0, e) for e in ends) + 1) - 1


def dims_of(nest: Nest, operand: int) -> tuple[tuple[int, int], ...]:
    """The steps in bytes and the counts of an operand."""
    given = nest.operands[operand]
    return tuple([(step * given.dtype.itemsize, extent) for step, extent in zip(given.strides, nest.extents)])
